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
  static constexpr int lanes = kLanes;

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
  __device__ uint32_t Ballot(bool is) const {
    if constexpr (kLanes == 1) {
      return is ? mask : 0;
    } else {
      return __ballot_sync(mask, is) & mask;
    }
  }
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
  // The sum of the values of lanes 0 .. count - 1 after `sum`, one after the other, each rounded.
  // All lanes of the group call it.
  __device__ double AddInOrder(double sum, double value, int count) const {
    if constexpr (kLanes == 1) {
      return __dadd_rn(sum, value);
    } else {
      for (int other = 0; other < count; ++other) {
        sum = __dadd_rn(sum, __shfl_sync(mask, value, other, kLanes));
      }
      return sum;
    }
  }

  const int lane;
  const uint32_t mask;
  const int64_t first, all;
};

// Calls body(group, i) for all rows: by kLanes lanes each, but by a whole warp where a row has over
// 16 entries for each of these, as beside a hub. `entries(i)`: of row i; `group`: the LaneGroup.
template <int kLanes, class Entries, class Body>
__device__ void ForRowsByLength(int64_t n, const Entries& entries, const Body& body) {
  const LaneGroup<kLanes> group;
  const LaneGroup<32> warp;
  constexpr int kRows = 32 / kLanes;
  for (int64_t first = warp.first * kRows; first < n; first += warp.all * kRows) {
    const int64_t i = first + static_cast<int>(threadIdx.x) % 32 / kLanes;
    const bool is_long = i < n && entries(i) > 16 * kLanes;
    if (i < n && !is_long) body(group, i);
    __syncwarp();
    uint32_t rows = __ballot_sync(~0u, is_long && group.lane == 0);
    for (; rows != 0; rows &= rows - 1) {
      body(warp, first + (__ffs(static_cast<int>(rows)) - 1) / kLanes);
    }
  }
}

// The columns of a row, ascending.
struct RowColumns {
  __device__ RowColumns(const int64_t* ptr, const int32_t* all, int64_t i)
      : columns(all + ptr[i]), count(ptr[i + 1] - ptr[i]) {}

  // The entries before that column.
  __device__ int64_t Before(int32_t column) const {
    int64_t at = 0;
    for (int64_t left = count; left > 0;) {
      const int64_t half = left / 2;
      const bool before = columns[at + half] < column;
      at = before ? at + half + 1 : at;
      left = before ? left - half - 1 : half;
    }
    return at;
  }
  __device__ bool Has(int32_t column, int64_t before) const {
    return before < count && columns[before] == column;
  }
  __device__ bool Has(int32_t column) const { return Has(column, Before(column)); }

  const int32_t* columns;
  int64_t count;
};

// Calls launch(lanes), an integral constant, with as many as rows of that mean length keep busy.
template <class Launch>
void WithLanes(int64_t entries, int64_t rows, const Launch& launch) {
  if (entries <= 10 * rows) return launch(std::integral_constant<int, 8>{});
  if (entries <= 20 * rows) return launch(std::integral_constant<int, 16>{});
  launch(std::integral_constant<int, 32>{});
}

// The same for sums in order, by which lanes wait for one another: one, where rows are short and
// many.
template <class Launch>
void WithFewLanes(int64_t entries, int64_t rows, const Launch& launch) {
  if (entries <= 16 * rows && rows >= 1 << 16) return launch(std::integral_constant<int, 1>{});
  launch(std::integral_constant<int, 8>{});
}

}  // namespace spaid::cuda
