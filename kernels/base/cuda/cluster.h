// Blocks that work on one problem together: a thread-block cluster, with a barrier of the device's
// own and sight of each other's shared memory. Where there are none (before compute capability
// 9.0) a cluster is one block. Launch (context.h) makes them.
#pragma once

#include <cooperative_groups.h>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

struct Cluster {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  static __device__ int size() {
    return static_cast<int>(cooperative_groups::cluster_group::num_blocks());
  }
  static __device__ int rank() {
    return static_cast<int>(cooperative_groups::cluster_group::block_rank());
  }
  // All threads of all blocks; what they have written, to global memory too, all see afterwards.
  static __device__ void Sync() { cooperative_groups::cluster_group::sync(); }
  // Returns what block `rank` has in place of `own`, which is shared memory.
  template <class T>
  static __device__ T* Of(T* own, int rank) {
    return cooperative_groups::cluster_group::map_shared_rank(own, rank);
  }
#else
  static __device__ int size() { return 1; }
  static __device__ int rank() { return 0; }
  static __device__ void Sync() { __syncthreads(); }
  template <class T>
  static __device__ T* Of(T* own, int) {
    return own;
  }
#endif
};

// Blocks of a cluster that every device which has clusters can hold; 1 where `kernel` was compiled
// for one that has none.
template <class... Args>
int MostClusterBlocks(void (*kernel)(Args...)) {
  constexpr int kPortable = 8;
  cudaFuncAttributes attributes{};
  Check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion >= 90 ? kPortable : 1;
}

}  // namespace spaid::cuda
