// Grid-stride helpers of the kernels that lay matrices out, by threads or by warps. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda::layout {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

// Blocks of kThreads threads for so much work, of which a block does `a_block` at once.
inline int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

__device__ inline int64_t WarpOfGrid() {
  return int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / 32;
}
__device__ inline int64_t WarpsOfGrid() { return int64_t{gridDim.x} * kWarps; }
__device__ inline int64_t ThreadOfGrid() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ inline int64_t ThreadsOfGrid() { return int64_t{gridDim.x} * kThreads; }
__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % 32; }

}  // namespace spaid::cuda::layout
