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

// Loads the elements of a row of kColumns interleaved vectors; `in` false: zeros.
template <int kColumns>
__device__ void LoadRow(const double* from, bool in, double* to) {
  if constexpr (kColumns == 1) {
    to[0] = in ? __ldg(from) : 0.0;
  } else {
#pragma unroll
    for (int v = 0; v < kColumns; v += 2) {
      const double2 pair = in ? __ldg(reinterpret_cast<const double2*>(from + v)) : double2{0, 0};
      to[v] = pair.x;
      to[v + 1] = pair.y;
    }
  }
}
template <int kColumns>
__device__ void LoadRow(const float* from, bool in, double* to) {
  static_assert(kColumns <= 2 || kColumns == 4);
  if constexpr (kColumns == 1) {
    to[0] = in ? __ldg(from) : 0.0;
  } else if constexpr (kColumns == 2) {
    const float2 row = in ? __ldg(reinterpret_cast<const float2*>(from)) : float2{0, 0};
    to[0] = row.x;
    to[1] = row.y;
  } else {
    const float4 row = in ? __ldg(reinterpret_cast<const float4*>(from)) : float4{0, 0, 0, 0};
    to[0] = row.x;
    to[1] = row.y;
    to[2] = row.z;
    to[3] = row.w;
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
