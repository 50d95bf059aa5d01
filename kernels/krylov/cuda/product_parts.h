// Shared by the products of all layouts by rows. For .cu files.
#pragma once

#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda::product {

// Loads an entry of the matrix; kStream: evicted first, so that a matrix larger than the caches
// does not drive x out of them.
template <bool kStream, class T>
__device__ T Load(const T* at) {
  if constexpr (kStream) {
    return __ldcs(at);
  } else {
    return __ldg(at);
  }
}

// Sums, in each slot, over the lanes that differ from the slot's own only in the bits below kLanes,
// a power of two.
template <int kLanes, int kColumns>
__device__ void SumOver(double (&values)[kColumns]) {
  constexpr int kApart = 32 / kColumns;  // lanes from slot to slot
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    if (step >= kApart) {
#pragma unroll
      for (int slot = 0; slot < kColumns; ++slot) {
        const int other = slot ^ (step / kApart);
        if (other < slot) continue;
        values[slot] = values[other] = values[slot] + values[other];
      }
    } else {
#pragma unroll
      for (int slot = 0; slot < kColumns; ++slot) {
        values[slot] += __shfl_xor_sync(~0u, values[slot], step * kColumns);
      }
    }
  }
}

}  // namespace spaid::cuda::product
