// Sums over all threads of a grid, in an order that depends on the grid alone: the same bits in
// every run. The last block to arrive adds up the partial sums of the others and continues with the
// totals, so that no scalar visits the host.
//
// kColumns vectors at once are interleaved, x[i * kColumns + v]: a thread has one column, and
// kColumns threads side by side have a row. A warp that takes 32 rows of a single vector takes 32
// rows of kColumns vectors, too: each thread then has kColumns of these rows, one in each of its
// slots, and stands for the lanes that would have them with a single vector. Sums are kept slot by
// slot and added as those lanes would add them, so that a column's sums are the same bits whatever
// columns are beside it. The compiler may contract a * b + c differently from kernel to kernel, so
// vectors and their sums call fma() explicitly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cuda/atomic>
#include <string>
#include <type_traits>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/solve_device_estimate.h"

namespace spaid::cuda {

inline constexpr int kSumThreads = 256;
inline constexpr int kMostSumBlocks = 2048;
inline constexpr int kMostSums = 4;
inline constexpr int kMostColumns = kernels::kMostCudaColumns;

// use(std::integral_constant<int, columns>{}).
template <class Use>
auto WithColumns(int columns, const Use& use) {
  switch (columns) {
    case 1:
      return use(std::integral_constant<int, 1>{});
    case 2:
      return use(std::integral_constant<int, 2>{});
    case 4:
      return use(std::integral_constant<int, 4>{});
    default:
      throw Failure(CudaFault::kError,
                    "no kernels for so many columns: " + std::to_string(columns));
  }
}

// Memory for the blocks' partial sums; `arrived` is 0 between launches. One launch at a time uses
// it.
struct SumSpace {
  double* partial;  // kMostSumBlocks * kMostSums for each column
  unsigned* arrived;
  // In a persistent kernel (fused_steps.h): the blocks that a step is for, and, in the shared
  // memory of each block, the number of grid barriers so far. 0, null: the whole grid, which ends
  // with a sum.
  unsigned blocks = 0;
  unsigned* barriers = nullptr;

  __device__ unsigned Blocks() const { return blocks != 0 ? blocks : gridDim.x; }
};

// The calling thread's column.
template <int kColumns>
__device__ int Column() {
  return static_cast<int>(threadIdx.x) % kColumns;
}
// The lane that a slot of the calling thread stands for.
template <int kColumns>
__device__ int LaneOf(int slot) {
  return slot * (32 / kColumns) + static_cast<int>(threadIdx.x) % 32 / kColumns;
}

// Whether any column of the block `runs`. Called by all of its threads.
template <int kColumns>
__device__ bool AnyRuns(bool runs) {
  if constexpr (kColumns == 1) {
    return runs;
  } else {
    return __syncthreads_or(runs ? 1 : 0) != 0;
  }
}

// The block's sums for the thread's column. Called by all of its kSumThreads threads.
template <int kColumns, int kSums>
__device__ void SumBlock(double (&sums)[kColumns][kSums], double (&total)[kSums]) {
  __shared__ double of_warp[kSums][kColumns][kSumThreads / 32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
#pragma unroll
    for (int half = kColumns / 2; half > 0; half /= 2) {
#pragma unroll
      for (int slot = 0; slot < half; ++slot) sums[slot][k] += sums[slot + half][k];
    }
    double sum = sums[0][k];
#pragma unroll
    for (int step = 16; step >= kColumns; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane < kColumns) of_warp[k][lane][warp] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    double sum = 0;
#pragma unroll
    for (int w = 0; w < kSumThreads / 32; ++w) sum += of_warp[k][Column<kColumns>()][w];
    total[k] = sum;
  }
  __syncthreads();
}

// Adds up the partial sums of `blocks` blocks, for the thread's column.
template <int kColumns, int kSums>
__device__ void SumPartials(const double* partial, unsigned blocks, double (&sums)[kColumns][kSums],
                            double (&total)[kSums]) {
#pragma unroll
  for (int slot = 0; slot < kColumns; ++slot) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      sums[slot][k] = 0;
      for (unsigned b = threadIdx.x / 32 * 32 + LaneOf<kColumns>(slot); b < blocks;
           b += kSumThreads) {
        sums[slot][k] += __ldcg(&partial[(b * kSums + k) * kColumns + Column<kColumns>()]);
      }
    }
  }
  SumBlock(sums, total);
}

// A grid barrier in a persistent kernel: waits until all blocks have called this with all of their
// threads; what they wrote before is visible then. `arrived` has to be 0 when the kernel begins.
__device__ inline void GridBarrier(const SumSpace& space) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const ::cuda::atomic_ref<unsigned, ::cuda::thread_scope_device> arrived(*space.arrived);
    const unsigned all = ++*space.barriers * gridDim.x;
    arrived.fetch_add(1, ::cuda::memory_order_release);
    while (arrived.load(::cuda::memory_order_acquire) < all) {
    }
  }
  __syncthreads();
}

// Calls then(total) once all blocks have called this with all of their threads: by one thread of
// the grid for each column, as the last action of a launch; or, in a persistent kernel, by one
// thread of each block, before the block continues. What the blocks wrote before is visible to it.
// `sums` is overwritten.
template <int kColumns, int kSums, class Then>
__device__ void SumGrid(double (&sums)[kColumns][kSums], const SumSpace& space, const Then& then) {
  static_assert(kSums <= kMostSums && kColumns <= kMostColumns);
  double total[kSums];
  SumBlock(sums, total);
  if constexpr (kColumns == 1) {
    if (space.barriers != nullptr) {
      // Two halves by turns: blocks past the barrier write beside what others still read.
      double* const partial =
          space.partial + *space.barriers % 2 * (kMostSumBlocks / 2 * kMostSums);
      if (threadIdx.x == 0 && blockIdx.x < space.Blocks()) {
#pragma unroll
        for (int k = 0; k < kSums; ++k) partial[blockIdx.x * kSums + k] = total[k];
      }
      GridBarrier(space);
      SumPartials(partial, space.Blocks(), sums, total);
      if (threadIdx.x == 0) then(total);
      __syncthreads();
      return;
    }
  }
  __shared__ bool is_last;
  if (threadIdx.x < kColumns) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      space.partial[(blockIdx.x * kSums + k) * kColumns + threadIdx.x] = total[k];
    }
    __threadfence();
    __syncwarp((1u << kColumns) - 1);
    if (threadIdx.x == 0) is_last = atomicAdd(space.arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  SumPartials(space.partial, gridDim.x, sums, total);
  if (threadIdx.x >= kColumns) return;
  if (threadIdx.x == 0) *space.arrived = 0;
  then(total);
}

// Blocks for a loop over n elements: first two a multiprocessor with one element a thread, then
// several elements a thread, so that each has some loads in flight.
inline int SumBlocks(const Context& context, int64_t n) {
  const auto of = [n](int64_t each) { return (n + each - 1) / each; };
  const int64_t spread = std::min<int64_t>(of(kSumThreads), 2 * context.multiprocessors);
  const int64_t most = 8 * context.multiprocessors;
  return static_cast<int>(
      std::clamp<int64_t>(of(4 * kSumThreads), std::max<int64_t>(spread, 1), most));
}

// Calls use(i, at, slot) for this thread's elements, in the blocks that the step is for: row i of
// its column, which is element `at` of the interleaved vectors, and the slot that the row is summed
// in.
template <int kColumns, class Use>
__device__ void ForOwn(const SumSpace& space, int64_t n, const Use& use) {
  constexpr int kTogether = kColumns == 1 ? 4 : 1, kApart = 32 / kColumns;
  if (blockIdx.x >= space.Blocks()) return;
  const int64_t stride = int64_t{space.Blocks()} * kSumThreads;
  int64_t first = int64_t{blockIdx.x} * kSumThreads + threadIdx.x / 32 * 32 + LaneOf<kColumns>(0);
  const auto call = [&](int slot) {
    const int64_t i = first + slot * kApart;
    use(i, i * kColumns + Column<kColumns>(), slot);
  };
#pragma unroll kTogether
  for (; first + (kColumns - 1) * kApart < n; first += stride) {
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) call(slot);
  }
  if constexpr (kColumns > 1) {
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) {
      if (first + slot * kApart < n) call(slot);
    }
  }
}

template <int kColumns, class Use>
__device__ void ForOwn(int64_t n, const Use& use) {
  ForOwn<kColumns>(SumSpace{}, n, use);
}

}  // namespace spaid::cuda
