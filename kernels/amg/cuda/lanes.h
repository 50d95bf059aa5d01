// Rows that some lanes of a warp share. For .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {

// The kLanes lanes of a warp, a power of two, that have one row after another.
template <int kLanes>
struct LaneGroup {
  __device__ LaneGroup()
      : lane(static_cast<int>(threadIdx.x) % kLanes),
        mask(kLanes == 32 ? ~0u
                          : ((1u << kLanes % 32) - 1u)
                                << (static_cast<int>(threadIdx.x) % 32 / kLanes * kLanes)),
        first(layout::ThreadOfGrid() / kLanes),
        all(layout::ThreadsOfGrid() / kLanes) {}

  // Calls body(i) for the rows of the group.
  template <class Body>
  __device__ void ForRows(int64_t n, const Body& body) const {
    for (int64_t i = first; i < n; i += all) body(i);
  }
  // The lanes of which it is true, and how many of them are before this one.
  __device__ uint32_t Ballot(bool is) const { return __ballot_sync(mask, is) & mask; }
  __device__ static int Before(uint32_t lanes) {
    return __popc(lanes & ((1u << threadIdx.x % 32) - 1u));
  }
  // One value of all lanes, of any two of which `better` takes one.
  template <class T, class Better>
  __device__ T Best(T value, const Better& better) const {
    for (int step = kLanes / 2; step > 0; step /= 2) {
      value = better(value, __shfl_xor_sync(mask, value, step));
    }
    return value;
  }
  // `sum` plus the parts of the first `count` lanes, one after the other, each sum rounded.
  __device__ double AddInOrder(double sum, double part, int count) const {
    for (int l = 0; l < count; ++l) sum = __dadd_rn(sum, __shfl_sync(mask, part, l, kLanes));
    return sum;
  }

  const int lane;
  const uint32_t mask;
  const int64_t first, all;
};

// Calls launch(lanes), an integral constant, with as many as rows of that mean length keep busy.
template <class Launch>
void WithLanes(int64_t entries, int64_t rows, const Launch& launch) {
  if (entries <= 10 * rows) return launch(std::integral_constant<int, 8>{});
  if (entries <= 20 * rows) return launch(std::integral_constant<int, 16>{});
  launch(std::integral_constant<int, 32>{});
}

}  // namespace spaid::cuda
