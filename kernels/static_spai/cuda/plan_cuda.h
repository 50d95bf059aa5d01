// The plan of static SPAI on a device: what depends on the pattern alone.
//
// Columns of M with equal J are a group (they share a factor). Groups whose local problems are
// shifted copies of one another share a structure: a list that says, for each entry of Â, where it
// goes. On a grid there are a few dozen structures for millions of columns; on an irregular matrix
// each group has its own. A build gathers by the structure and does arithmetic, no more.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context_cuda.h"
#include "kernels/sparse/cuda/matrix_cuda.h"

namespace spaid::cuda {

// Rows of Â come in chunks of as many: a chunk is what shared memory holds at once.
inline constexpr int kChunkRows = 32;
// Columns of M in a group, at most.
inline constexpr int kMaxWidth = 4;
// |J| of what the Gram kernels take.
inline constexpr int kMaxColumns = 128;
// Entries of Â of what they take.
inline constexpr int kMaxEntries = 16384;

// Groups by the kernel that solves them: |J| <= 8, 16, 24, 32 by a warp, alone or with several
// right-hand sides, <= 48, 64, 88, 128 by a block; the last class is left to the host.
inline constexpr int kWarpSizes = 4;
__host__ __device__ constexpr int BlockSize(int i) {
  return i == 0 ? 48 : i == 1 ? 64 : i == 2 ? 88 : 128;
}
inline constexpr int kClasses = 2 * kWarpSizes + 4 + 1;
inline constexpr int kHostClass = kClasses - 1;

// Of a structure: in `tables`, from `table` on, stand
//   chunks + 1 words: where the entries of each chunk of rows begin, counted from the first entry;
//   `entries` words: PackEntry, by chunks;
//   `width` words: the local rows of the right-hand sides' ones, kNoRow where k is not in I.
struct Structure {
  int64_t table = 0;
  int32_t entries = 0;
  int32_t n1 = 0;      // |I|
  int32_t chunks = 0;  // of kChunkRows rows
  int32_t width = 0;
};
inline constexpr uint32_t kNoRow = ~uint32_t{0};

// Entry i of local column a, in row r of its chunk. A chunk is stored in the order in which tensor
// cores read it: 8 columns of 4 rows, column by column, stand together; those for all columns of 4
// rows; those for all rows. So `place` depends on how many columns there are, and is made by the
// reader.
__host__ __device__ inline uint32_t PackEntry(uint32_t i, uint32_t a, uint32_t r) {
  return i << 12 | a << 5 | r;
}

struct StaticSpaiPlan {
  int64_t n = 0, nnz_a = 0, nnz_m = 0;
  uint64_t pattern_hash = 0;  // of A
  Buffer<int64_t> m_ptr;
  Buffer<int32_t> m_idx;
  int32_t n_groups = 0, n_structures = 0;
  Buffer<int32_t> members, group_ptr;
  Buffer<int32_t> structure_of;  // of each group
  Buffer<Structure> structures;
  Buffer<uint32_t> tables;
  Buffer<int32_t> order;  // groups, by class, ascending in each
  int32_t class_begin[kClasses + 1] = {};

  PatternRef pattern() const { return {n, m_ptr.get(), m_idx.get()}; }
  int64_t device_bytes() const;
};

// `user` null: the pattern of E + |A|, or, where tau >= 0, of its threshold pattern (|a_ij| > (1 −
// tau) max_i |a_ij|, and the diagonal). Every column of `a` must have an entry.
StaticSpaiPlan MakePlan(Context& context, const Matrix& a, const SpaidCudaCsc* user, double tau);

// structures_cuda.cu: fills n1, chunks and the tables of all structures. `representative`: a group
// of each structure.
void MakeTables(Context& context, const Matrix& a, const int32_t* representative,
                StaticSpaiPlan& plan);

}  // namespace spaid::cuda
