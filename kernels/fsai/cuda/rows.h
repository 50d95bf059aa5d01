// Shared by the kernels of FSAI: A as they read it, the workspace in which one row of G is made,
// and the output. fsai.h has the build; rows_kernel.h explains how a row is made.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda::fsai {

// An entry of A, in the precision of the set-up.
template <class Real>
struct Entry;
template <>
struct alignas(8) Entry<float> {
  int32_t index;
  float value;
};
template <>
struct alignas(16) Entry<double> {
  double value;
  int32_t index;
  int32_t unused;
};

// A by rows, symmetric entry by entry, each row's diagonal entry first.
template <class Real>
struct Rows {
  const Entry<Real>* entries;
  const int64_t* ptr;  // n + 1
  // Not 0: row i is entries[i stride, (i + 1) stride), filled up with index n; `ptr` is not read.
  int32_t stride;
};

// Candidates have slots, 32 to a pass of the warp; their rows of L are stored in tiles of 32 slots
// by 16 bytes, each followed by a vector of padding, so that a warp has no bank conflicts, whether
// it reads a block of columns or a row.
inline constexpr int kPassSlots = 32;
inline constexpr int kTileVectors = kPassSlots + 1;

// Size of the workspace of one row of G.
struct Shape {
  int32_t slots = 0;   // candidates, a multiple of kPassSlots
  int32_t tiles = 0;   // tiles of L
  int32_t table = 0;   // places of the hash table, a power of two
  int32_t pivots = 0;  // entries of the row besides the diagonal
  int32_t steps = 0;
  bool few = false;  // on a pattern with at most 32 pivots: each has a lane's registers
};

// Offsets of the parts of a row's workspace, in this order, and its bytes.
struct Layout {
  int64_t tiles, yq, c, history, sums, z, index, passes, pivot_rows, pivot_index, picks, table,
      bytes;
};

__host__ __device__ inline int64_t Aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// The layout of a workspace. `few`: Shape::few, and a warp makes the row.
template <class Real, class Slot>
__host__ __device__ Layout LayOut(const Shape& shape, int32_t per_step, bool few) {
  const int64_t real = sizeof(Real);
  Layout out{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at;
    at += Aligned(bytes);
    return begin;
  };
  out.tiles = take(int64_t{shape.tiles} * kTileVectors * 16);
  out.yq = take(2 * real * shape.slots);
  out.c = take(real * shape.slots);
  out.history = take(8 * (int64_t{shape.steps} + 1));
  out.sums = take(8 * (int64_t{shape.steps} + 2));
  // z, the pivots' inverse roots and a copy of z.
  out.z = take(few ? 0 : 3 * real * shape.pivots);
  out.index = take(4 * int64_t{shape.slots});
  out.passes = take(8 * (int64_t{shape.slots} / kPassSlots));
  out.pivot_rows = take(few ? 0 : 8 * int64_t{shape.pivots});
  out.pivot_index = take(4 * int64_t{shape.pivots});
  out.picks = take(per_step > 1 ? 8 * int64_t{per_step} : 0);
  out.table = take(static_cast<int64_t>(sizeof(int32_t) + sizeof(Slot)) * shape.table);
  out.bytes = at;
  return out;
}

// The layout for a row that a warp grows (Team::kGrow), with at most 4 passes.
struct GrowLayout {
  int64_t tiles, index, beside, passes, pick, table, bytes;
};

// Places of its hash table, whose entries are slots: with many candidates, space is worth more than
// short searches.
__host__ __device__ inline int32_t GrowTable(const Shape& shape) {
  const int32_t least = shape.slots <= 4 * kPassSlots ? 2 * shape.slots : shape.slots * 4 / 3;
  int32_t places = 64;
  while (places < least) places *= 2;
  return places;
}

// Blocks of 16 bytes for so many columns of L.
template <class Real>
__host__ __device__ int BlocksFor(int columns) {
  constexpr int kSize = 16 / static_cast<int>(sizeof(Real));
  return columns > 0 ? (columns + kSize - 1) / kSize : 0;
}

// Blocks of its L: the pivots of the last two steps need none.
template <class Real>
__host__ __device__ int GrowBlocks(const Shape& shape) {
  const int all = BlocksFor<Real>(shape.pivots), steps = BlocksFor<Real>(shape.steps - 2);
  return steps < all ? steps : all;
}

template <class Real>
__host__ __device__ GrowLayout LayOutGrow(const Shape& shape) {
  GrowLayout out{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at;
    at += Aligned(bytes);
    return begin;
  };
  out.tiles = take(int64_t{shape.tiles} * kTileVectors * 16);
  out.index = take(4 * int64_t{shape.slots});
  out.beside = take(int64_t{sizeof(Real)} * shape.slots);
  out.passes = take(8 * (int64_t{shape.slots} / kPassSlots));
  out.pick = take(2 * int64_t{sizeof(Real)} + 16);
  out.table = take(2 * int64_t{GrowTable(shape)});
  out.bytes = at;
  return out;
}

// Rows with at most so many candidates have their gradients in registers.
inline constexpr int kGrowHeldSlots = 12 * kPassSlots;

// The layout for a row whose tiles come from the block's pool (tile_pool.h): `lists` has their
// offsets. `in`: 32 bits a pass.
struct PoolLayout {
  int64_t lists, first, in, pivot_row, y, index, table, bytes;
};

// Blocks of columns of its L: the last step's pivot needs none.
template <class Real>
__host__ __device__ int PoolBlocks(const Shape& shape) {
  const int all = BlocksFor<Real>(shape.pivots), steps = BlocksFor<Real>(shape.steps - 1);
  const int least = steps < all ? steps : all;
  return least > 1 ? least : 1;
}
// Places of a list: one a pass, read in fours.
__host__ __device__ inline int PoolListed(const Shape& shape) {
  return (shape.slots / kPassSlots + 3) / 4 * 4;
}

template <class Real>
__host__ __device__ PoolLayout LayOutPool(const Shape& shape) {
  PoolLayout out{};
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at;
    at += Aligned(bytes);
    return begin;
  };
  const int64_t blocks = PoolBlocks<Real>(shape), listed = PoolListed(shape);
  out.lists = take(4 * blocks * listed);
  out.first = take(4 * listed);
  out.in = take(4 * listed);
  out.pivot_row = take(16 * blocks);
  out.y = take(shape.slots <= kGrowHeldSlots ? 0 : int64_t{sizeof(Real)} * shape.slots);
  out.index = take(4 * int64_t{shape.slots});
  out.table = take(2 * int64_t{GrowTable(shape)});
  out.bytes = at;
  return out;
}

// Form of the growth: a row of G for an SPD matrix; or the pattern of a column of M that minimises
// ‖A m − e_k‖₂ (dynamic SPAI), by the same steps: kernels/dynamic_spai/dynamic_spai.h.
//
// kColumn: `a` is B = AᵀA for A with columns scaled to length 1, and for column k the row −A(k, :)
// of the scaled A (Work::own) takes the place of A's row k, with 1 as its diagonal: ψ is ‖r‖². All
// indices are candidates. Growth begins with k itself. A ψ of zero, up to rounding, is no fault:
// its index joins, and the column has converged. Only the pattern is kept.
enum class Form { kRow, kColumn };

// The last part of a record.
inline constexpr int64_t kRecordNotSpd = 1, kRecordConverged = 2;

// Arguments of a launch.
template <class Real>
struct Work {
  Rows<Real> a;
  Rows<Real> own;  // kColumn; without a stride
  int64_t n;
  Shape shape;
  // The rows to make: `rows`, or those from `first` on where that is null; `count` of them, taken
  // from *queue.
  const int32_t* rows;
  int64_t first;
  int32_t count;
  uint32_t* queue;

  int32_t k_max, per_step;
  int32_t most;  // kColumn: entries of a column, at most
  double epsilon, min_gain, post_filter;
  // Initial pivots: the entries of row i but the last, which is the diagonal; all entries of a
  // column. Null: none.
  const int64_t* initial_ptr;
  const int32_t* initial_idx;

  // Output. Row i begins at (i − first_out) out_stride, plus the number of initial entries of the
  // rows before it: the entries of G in ascending order, the diagonal last; or the pattern of
  // column i, ascending, without values.
  int64_t first_out;
  int64_t out_stride;
  int32_t* out_idx;
  Real* out_values;
  int32_t* out_count;  // row i's count is at i − first_out
  double* psi_ratio;   // n; written for the rows made only
  // Σ ln(ψ/a_ii) in units of 1/log_scale: integers, whose sum does not depend on the order. After 0
  // .. k_max steps, and in the end.
  int64_t* log_sums;
  double log_scale;
  unsigned long long* products;  // with entries of L, each of 32 candidates

  // Null, or a record of what row i adds to these, at record_of[i − first_out] (k_max + 4): its
  // part of log_sums, its products and kRecord bits.
  int64_t* records;
  const int32_t* record_of;

  // Rows for which this workspace is too small; the next one takes them.
  int32_t* overflow;
  uint32_t* overflow_count;
  // Null, or slots and tiles that the t-th row of the launch took.
  int2* taken;
  uint32_t* not_spd_count;
  int32_t* first_not_spd;
  uint32_t* converged_count;

  // Workspaces in global memory, one a block, in place of shared memory.
  char* workspaces;
};

// The threads that make a row: a warp, or a block, in shared memory; or a block in global memory.
// kGrow: a warp, for rows that grow from the diagonal by one index a step, in at most kGrowSteps.
enum class Team { kGrow, kWarp, kBlock, kGlobal };
inline constexpr int kGrowSteps = 30;
inline constexpr int kBlockThreads = 128, kWarpTeamThreads = 128;

// Bytes of a workspace, which for kGlobal is in global memory.
template <class Real>
int64_t WorkspaceBytes(const Shape& shape, int32_t per_step, Team team);

// Makes the rows of `work`. `grow` false: the initial pivots are the pattern; Form::kRow only.
// *work.queue must be 0. `blocks`: number of workspaces for kGlobal.
template <class Real, Form kForm = Form::kRow>
void LaunchRows(Context& context, const Work<Real>& work, Team team, bool grow, int blocks);

}  // namespace spaid::cuda::fsai
