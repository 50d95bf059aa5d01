// The plan of static SPAI on a device: the data that depends on the pattern alone.
//
// Columns of M with equal J are a group (they share a factor). Groups whose local problems are
// shifted copies of one another share a structure: a list with the place of each entry of Â. On a
// grid there are a few dozen structures for millions of columns; on an irregular matrix each group
// has its own. A build only gathers by the structure and does arithmetic. If all of A lies on few
// diagonals none of this is needed: dia.h.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/pattern.h"
#include "kernels/static_spai/cuda/dia.h"

namespace spaid::cuda {

// Rows of a chunk of Â: the part that shared memory holds at once.
inline constexpr int kChunkRows = 32;
// Columns of M in a group, at most.
inline constexpr int kMaxWidth = 4;
// |J| of a problem for the Gram kernels, at most.
inline constexpr int kMaxColumns = 128;
// Entries of Â of a problem for them, at most.
inline constexpr int kMaxEntries = 16384;

// Classes of groups by the kernel that solves them: |J| <= 8, 16, 24, 32 by a warp, alone or with
// several right-hand sides, <= 48, 64, 88, 128 by a block; larger ones in global memory; then those
// that are left to the host, and those without a column of the plan's range.
inline constexpr int kWarpSizes = 4;
__host__ __device__ constexpr int BlockSize(int i) {
  return i == 0 ? 48 : i == 1 ? 64 : i == 2 ? 88 : 128;
}
inline constexpr int kClasses = 2 * kWarpSizes + 4 + 3;
inline constexpr int kLargeClass = kClasses - 3;
inline constexpr int kHostClass = kClasses - 2;
inline constexpr int kOtherClass = kClasses - 1;
// |J|, and entries of Â, of a problem that is solved in global memory, at most.
inline constexpr int kMaxLargeColumns = 2048;
inline constexpr int64_t kMaxLargeEntries = int64_t{1} << 22;

// 8 x 8 tiles in each direction in the kernel for a group with |J| = n2.
__host__ __device__ constexpr int TilesFor(int n2) {
  if (n2 <= 8 * kWarpSizes) return (n2 + 7) / 8;
  int i = 0;
  while (n2 > BlockSize(i)) ++i;
  return BlockSize(i) / 8;
}

// A structure. Its table, from `table` on in `tables`, has
//   chunks + 1 words: offset of the entries of each chunk of rows, counted from the first entry;
//   chunks * kMaskWords words: for each four rows of a chunk, 16 bits: the tiles of columns that
//     have an entry there;
//   `entries` words: PackEntry, by chunks;
//   `width` words: the local rows of the right-hand sides' ones, kNoRow if k is not in I.
struct Structure {
  int64_t table = 0;
  int32_t entries = 0;
  int32_t n1 = 0;      // |I|
  int32_t chunks = 0;  // chunks of kChunkRows rows; 0: there is no table
  int32_t width = 0;
  int64_t all_entries = 0;  // entries of Â, whether there is a table or not

  // Words of its table, at most: I is not known before it is made.
  __host__ __device__ int64_t words() const {
    return entries > 0 ? 1 + int64_t{chunks_at_most()} * (1 + kMaskWords) + entries + width : 0;
  }
  // `chunks` if that is known; not 0: there is a table, or will be.
  __host__ __device__ int32_t chunks_at_most() const {
    return chunks > 0 ? chunks : (entries + kChunkRows - 1) / kChunkRows;
  }
  __host__ __device__ int64_t list() const { return table + chunks + 1 + chunks * kMaskWords; }
  __host__ __device__ int64_t targets() const { return list() + entries; }
  static constexpr int kMaskWords = kChunkRows / 8;
};
inline constexpr uint32_t kNoRow = ~uint32_t{0};

// Index of (row r, column a) in a chunk of 8 `tiles` columns: in the order in which tensor cores
// read. 8 columns of 4 rows, column by column; then the next 8 columns; then the next 4 rows.
__host__ __device__ constexpr uint32_t ChunkPlace(uint32_t tiles, uint32_t r, uint32_t a) {
  return ((r >> 2) * tiles + (a >> 3)) * 32 + ((a & 7) << 2) + (r & 3);
}
__host__ __device__ constexpr uint32_t ChunkRow(uint32_t tiles, uint32_t place) {
  return place / (32 * tiles) * 4 + (place & 3);
}

// Entry i of local column a, with its ChunkPlace. Longer columns are left to the host.
inline constexpr int64_t kMaxLength = int64_t{1} << 13;
__host__ __device__ constexpr uint32_t PackEntry(uint32_t i, uint32_t a, uint32_t place) {
  return i << 19 | a << 12 | place;
}
static_assert(kMaxColumns <= 1 << 7 && kChunkRows * kMaxColumns <= 1 << 12);

// Least number of groups of one column that share a structure, with |J| <= kMaxLaneColumns and at
// most kMaxLaneEntries entries of Â, for them to be solved one thread a group (gram_thread.h).
inline constexpr int kLanes = 32;
inline constexpr int kMaxLaneColumns = 10;
inline constexpr int kMaxLaneEntries = 128;

// The table of a structure that is solved one thread a group. Entries e of Â are counted column by
// column.
struct LaneTable {
  static constexpr int kPairs = kMaxLaneColumns * (kMaxLaneColumns + 1) / 2;
  // A row of Â has at most kMaxLaneColumns entries.
  static constexpr int kMaxProducts = kMaxLaneEntries * (kMaxLaneColumns + 1) / 2;

  int32_t n2 = 0;
  int32_t entries = 0;
  int32_t shift[kMaxLaneColumns] = {};       // J less the group's column
  int32_t offset[kMaxLaneColumns + 1] = {};  // the first entry of each column
  int32_t target[kMaxLaneColumns] = {};      // e + 1 of the entry in row k of each column, 0: none
  // The products that make B_ab, b <= a, at a (a + 1) / 2 + b: e of a, e of b << 8.
  uint16_t pair_begin[kPairs + 2] = {};
  uint16_t products[kMaxProducts] = {};
  uint16_t rows[kMaxLaneEntries] = {};           // row by row: e, a << 8, flags
  static constexpr uint32_t kLast = 1u << 15;    // the row's last entry
  static constexpr uint32_t kTarget = 1u << 14;  // in row k
};

// The largest local problem of a class.
struct LargestLocal {
  int64_t n2 = 0, entries = 0;
};

struct QrPlan;  // qr.h

// The columns that a plan computes. Pattern, groups and structures are those of the whole M, so
// that each column is solved as it is if one device computes all; tables are made, and groups
// solved, only if a column of the range needs them.
struct ColumnRange {
  int64_t begin = 0, end = 0;

  __host__ __device__ bool Has(int64_t k) const { return k >= begin && k < end; }
};

struct StaticSpaiPlan {
  int64_t n = 0, nnz_a = 0;
  ColumnRange own;
  int64_t first_entry = 0, entries = 0;  // M's, in the columns of `own`
  uint64_t pattern_hash = 0;             // A's
  DevicePattern m;
  // If it has nodes, the Gram path works by diagonals, and the groups are made by the first build
  // that needs them: by QR, or for a rescue.
  DiaPlan dia;
  bool grouped = false;  // all below is filled
  int32_t n_groups = 0, n_structures = 0;
  Buffer<int32_t> members, group_ptr;
  Buffer<int32_t> structure_of;  // the structure of each group
  Buffer<Structure> structures;
  Buffer<uint32_t> tables;
  // The tables do not fit beside a build: each build makes them, in waves of groups
  // (table_waves.h), and no structure is solved one thread a group.
  bool in_waves = false;
  int64_t table_bytes = 0;         // all tables
  int64_t most_table_bytes = 0;    // at once; 0: what there is room for
  Buffer<int32_t> representative;  // a group of each structure; only for waves
  Buffer<int32_t> order;  // groups: those of each lane structure, then by class; else ascending
  int32_t class_begin[kClasses + 1] = {};
  LargestLocal large;  // over the problems of the whole M that are too large for other kernels
  int32_t lane_structures = 0;
  // By |J| = n2: the lane structures [lane_size_begin[n2], lane_size_begin[n2 + 1]), the warps'
  // work on these, and the most entries of Â of one.
  int32_t lane_size_begin[kMaxLaneColumns + 2] = {};
  int32_t lane_task_begin[kMaxLaneColumns + 2] = {};
  int32_t lane_entries[kMaxLaneColumns + 1] = {};
  Buffer<LaneTable> lane_tables;
  Buffer<int32_t> lane_begin;  // lane_structures + 1, into order
  Buffer<int32_t> lane_tasks;  // lane_structures + 1: the first warp's work of each

  bool by_qr = false;          // made for builds by QR
  std::shared_ptr<QrPlan> qr;  // for these, from the first on
  int32_t large_groups = 0;    // in the whole M: decides how many blocks share one

  PatternRef pattern() const { return m.ref(); }
  bool whole() const { return own.end - own.begin == n; }
  int64_t device_bytes() const;
};

// `pattern`: of M, canonical, each column with an entry. Every column of `a` must have one too.
// Arrays to which the pattern refers must outlive the plan.
// `by_qr`: for builds by QR; if it is false, the path by diagonals may be taken.
// `most_table_bytes`: the plan's.
StaticSpaiPlan MakePlan(Context& context, const Matrix& a, DevicePattern pattern, bool by_qr,
                        ColumnRange own, int64_t most_table_bytes = 0);
// Makes the groups, and all that belongs to them: tables, too, if they fit beside such a build.
void AddGroups(Context& context, const Matrix& a, bool by_qr, StaticSpaiPlan& plan);

// structures.cu, with a group of each structure in `representative`.
// Fills plan.structures except for n1, chunks and table, and words[s] with the words of each table,
// at most (n_structures + 1, the last one 0). `uses`: 0 for structures that no kernel is to see;
// null: there are none.
void MeasureStructures(Context& context, const Matrix& a, const int32_t* representative,
                       const int32_t* uses, StaticSpaiPlan& plan, int64_t* words);
// The largest local problem that has no table and is not left to the host; after MeasureStructures.
LargestLocal FindLargest(Context& context, const Matrix& a, const int32_t* representative,
                         const StaticSpaiPlan& plan);
// Makes the tables of structures which[0, count), null: all of plan.structures; that of the i-th
// has the words from begin[i] to begin[i + 1], all of them `words`. Fills n1, chunks and table.
Buffer<uint32_t> MakeTables(Context& context, const Matrix& a, const StaticSpaiPlan& plan,
                            const int32_t* representative, const int32_t* which, int32_t count,
                            const int64_t* begin, int64_t words, Structure* structures);

}  // namespace spaid::cuda
