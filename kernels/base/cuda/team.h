// Threads that work on one list in shared memory together: a warp, or a whole block.
#pragma once

#include <cstdint>

namespace spaid::cuda {

template <int kThreads>
struct Team {
  static __device__ int thread() {
    return static_cast<int>(kThreads == 32 ? threadIdx.x % 32 : threadIdx.x);
  }
  static __device__ void Sync() {
    if (kThreads == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
};

// Bitonic (Batcher 1968), ascending; `size` a power of two, 2 or more. The keys must be seen by all
// threads before, and are after.
template <int kThreads>
__device__ void Sort(uint32_t* keys, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      for (int i = Team<kThreads>::thread(); i < size / 2; i += kThreads) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const bool ascending = (low & run) == 0;
        const uint32_t x = keys[low], y = keys[high];
        if ((x > y) == ascending) {
          keys[low] = y;
          keys[high] = x;
        }
      }
      Team<kThreads>::Sync();
    }
  }
}

}  // namespace spaid::cuda
