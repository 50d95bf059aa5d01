// Sums over all threads of a grid, in an order that depends on the grid alone: the same bits in
// every run. The last block to arrive adds up what the others left, and goes on with the totals, so
// that no scalar visits the host.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context_cuda.h"

namespace spaid::cuda {

inline constexpr int kSumThreads = 256;
inline constexpr int kMostSumBlocks = 2048;
inline constexpr int kMostSums = 4;

// Where blocks leave their sums; `arrived` is 0 between launches. One launch at a time uses it.
struct SumSpace {
  double* partial;  // kMostSumBlocks * kMostSums
  unsigned* arrived;
};

// The sums of one block in all of its threads' `sums`; kSumThreads threads, all of them.
template <int kSums>
__device__ void SumBlock(double (&sums)[kSums]) {
  __shared__ double of_warp[kSums][kSumThreads / 32];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    for (int step = 16; step > 0; step /= 2) sums[k] += __shfl_xor_sync(~0u, sums[k], step);
    if (lane == 0) of_warp[k][warp] = sums[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    double sum = 0;
#pragma unroll
    for (int w = 0; w < kSumThreads / 32; ++w) sum += of_warp[k][w];
    sums[k] = sum;
  }
  __syncthreads();
}

// then(totals), by one thread of the grid, when all blocks have called this with all of their
// threads. What the blocks wrote before is visible to it.
template <int kSums, class Then>
__device__ void SumGrid(double (&sums)[kSums], const SumSpace& space, const Then& then) {
  __shared__ bool is_last;
  SumBlock(sums);
  if (threadIdx.x == 0) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) space.partial[blockIdx.x * kSums + k] = sums[k];
    __threadfence();
    is_last = atomicAdd(space.arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    sums[k] = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kSumThreads) {
      sums[k] += __ldcg(&space.partial[b * kSums + k]);
    }
  }
  SumBlock(sums);
  if (threadIdx.x != 0) return;
  *space.arrived = 0;
  then(sums);
}

// Blocks for a loop over n elements.
inline int SumBlocks(const Context& context, int64_t n) {
  const int64_t each = 4 * kSumThreads;  // some loads in flight for every thread
  const int64_t most = 8 * context.multiprocessors;
  const int64_t needed = (n + each - 1) / each;
  return static_cast<int>(needed < 1 ? 1 : needed < most ? needed : most);
}

// Calls use(i) for the elements that are this thread's.
template <class Use>
__device__ void ForOwn(int64_t n, const Use& use) {
  const int64_t stride = int64_t{gridDim.x} * kSumThreads;
  int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
#pragma unroll 4
  for (; i < n; i += stride) use(i);
}

}  // namespace spaid::cuda
