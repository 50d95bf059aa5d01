#include <algorithm>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/sell.h"

namespace spaid::cuda {
namespace {

using namespace layout;

// Sorts each window's rows by length, the longest first; stable.
__global__ void OrderKernel(CsrArrays a, int window, int32_t* order) {
  __shared__ int64_t lengths[kMostWindow];
  for (int64_t begin = int64_t{blockIdx.x} * window; begin < a.n;
       begin += int64_t{gridDim.x} * window) {
    const int count = static_cast<int>(min(int64_t{window}, a.n - begin));
    for (int own = static_cast<int>(threadIdx.x); own < count; own += kThreads) {
      lengths[own] = a.Length(begin + own);
    }
    __syncthreads();
    for (int own = static_cast<int>(threadIdx.x); own < count; own += kThreads) {
      int before = 0;
      for (int other = 0; other < count; ++other) {
        const bool longer = lengths[other] > lengths[own];
        const bool equal = lengths[other] == lengths[own];
        before += longer || (equal && other < own) ? 1 : 0;
      }
      order[begin + before] = static_cast<int32_t>(begin + own);
    }
    __syncthreads();
  }
}

// One warp chooses a slice's steps: the number that costs least when longer rows are stored apart;
// of equally cheap ones the greatest. `begin` gets the number of its entries, `apart` a 1 for each
// row that is stored apart.
__global__ void CutKernel(CsrArrays a, const int32_t* order, int t, CsrTuning tuning,
                          int64_t slices, Slice* slice, int64_t* begin, int32_t* apart) {
  const int rows = 32 / t;
  for (int64_t s = WarpOfGrid(); s < slices; s += WarpsOfGrid()) {
    const int64_t place = s * rows + Lane();
    const bool is_row = Lane() < rows && place < a.n;
    const int64_t row = is_row ? RowAt(order, place) : 0;
    const int64_t length = is_row ? a.Length(row) : 0;
    const int64_t steps = (length + t - 1) / t;
    int64_t cost = 32 * steps;  // if this lane's row were the longest
    for (int other = 0; other < rows; ++other) {
      const int64_t its = __shfl_sync(~0u, length, other);
      if (its > steps * t) cost += its + tuning.apart_cost;
    }
    if (steps > tuning.max_steps) cost = INT64_MAX;
    int64_t best = steps;
    for (int step = 16; step > 0; step /= 2) {
      const int64_t other_cost = __shfl_xor_sync(~0u, cost, step);
      const int64_t other_best = __shfl_xor_sync(~0u, best, step);
      if (other_cost < cost || (other_cost == cost && other_best > best)) {
        cost = other_cost;
        best = other_best;
      }
    }
    // Every row may be too long.
    if (cost == INT64_MAX) best = 0;
    const bool is_apart = is_row && steps > best;
    const uint32_t none = __ballot_sync(~0u, is_apart || !is_row);
    if (is_row) apart[row] = is_apart ? 1 : 0;
    if (Lane() == 0) {
      slice[s] = {0, static_cast<int32_t>(best), none};
      begin[s] = 32 * best;
    }
  }
}

__global__ void SliceBeginKernel(const int64_t* begin, int64_t slices, Slice* slice) {
  for (int64_t s = ThreadOfGrid(); s < slices; s += ThreadsOfGrid()) slice[s].begin = begin[s];
}

// One warp fills a slice of t threads a row, kTile steps at a time: reads row by row, writes step
// by step.
template <int t, int kTile, class From, class Value>
__global__ void __launch_bounds__(kThreads)
    SliceKernel(CsrArrays a, const From* __restrict__ from, const int32_t* order, int64_t slices,
                const Slice* slices_at, int32_t* __restrict__ cols, Value* __restrict__ values) {
  // A row of the tile for each thread of the slice; one element of padding avoids bank conflicts.
  using ColumnTile = int32_t[32][kTile + 1];
  using ValueTile = Value[32][kTile + 1];
  extern __shared__ char tiles[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  ValueTile& value_tile = reinterpret_cast<ValueTile*>(tiles)[warp];
  ColumnTile& col_tile = reinterpret_cast<ColumnTile*>(tiles + kWarps * sizeof(ValueTile))[warp];
  constexpr int kWidth = kTile * t;  // entries of a row in a tile
  const int lane = Lane();
  for (int64_t s = WarpOfGrid(); s < slices; s += WarpsOfGrid()) {
    const Slice slice = slices_at[s];
    // Row `lane` of the slice:
    const int64_t row = RowAt(order, min(s * (32 / t) + lane, a.n - 1));
    const int64_t begin = a.row_ptr[row];
    const bool apart = lane >= 32 / t || (slice.apart >> lane & 1) != 0;
    const auto length = static_cast<int32_t>(apart ? 0 : a.row_ptr[row + 1] - begin);
    for (int first = 0; first < slice.steps; first += kTile) {
      // Loads of several parts are issued before the first is waited for.
      constexpr int kParts = 8;
      for (int some = 0; some < kTile; some += kParts) {
        int32_t column[kParts];
        From value[kParts];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const int at = 32 * (some + part) + lane, r = at / kWidth, k = first * t + at % kWidth;
          const int64_t its_begin = __shfl_sync(~0u, begin, r);
          const int32_t its_length = __shfl_sync(~0u, length, r);
          column[part] =
              static_cast<int32_t>(min(int64_t{__shfl_sync(~0u, row, r)}, a.columns - 1));
          value[part] = 0;
          if (its_length > 0 && k < t * slice.steps) {
            column[part] = a.cols[its_begin + min(k, its_length - 1)];
          }
          if (from != nullptr && k < its_length) value[part] = from[its_begin + k];
        }
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const int at = 32 * (some + part) + lane, r = at / kWidth, e = at % kWidth;
          col_tile[r * t + e % t][e / t] = column[part];
          value_tile[r * t + e % t][e / t] = static_cast<Value>(value[part]);
        }
      }
      __syncwarp();
#pragma unroll 8
      for (int step = 0; step < kTile; ++step) {
        if (first + step >= slice.steps) break;
        const int64_t at = slice.begin + 32 * int64_t{first + step} + lane;
        cols[at] = col_tile[lane][step];
        if (from != nullptr) values[at] = value_tile[lane][step];
      }
      __syncwarp();
    }
  }
}

}  // namespace

int64_t CountEntries(const Context& context, const PatternRef& a) {
  int64_t count = 0;
  context.Download({{&count, a.col_ptr + a.n, sizeof(count)}});
  return count;
}

void OrderByLength(const Context& context, const CsrArrays& a, int window,
                   const Buffer<int32_t>& order) {
  OrderKernel<<<Blocks(context, a.n, window), kThreads, 0, context.stream>>>(a, window,
                                                                             order.get());
  CheckLaunch("OrderKernel");
}

int64_t CutSlices(Context& context, const CsrArrays& a, const int32_t* order, int threads_a_row,
                  const CsrTuning& tuning, const Buffer<Slice>& slices,
                  const Buffer<int32_t>& apart) {
  const int64_t count = slices.size();
  const Buffer<int64_t> begin(context, count + 1);
  CutKernel<<<Blocks(context, count, kWarps), kThreads, 0, context.stream>>>(
      a, order, threads_a_row, tuning, count, slices.get(), begin.get(), apart.get());
  CheckLaunch("CutKernel");
  Scan(context, begin, count + 1);
  SliceBeginKernel<<<Blocks(context, count, kThreads), kThreads, 0, context.stream>>>(
      begin.get(), count, slices.get());
  CheckLaunch("SliceBeginKernel");
  return Read(context, begin, count);
}

template <class From, class Value>
void FillSlices(const Context& context, const CsrArrays& a, const From* from, const int32_t* order,
                int threads_a_row, const Buffer<Slice>& slices, const Buffer<int32_t>& cols,
                const Buffer<Value>& values) {
  // With wide tiles long rows are read in whole cache lines, so that no cache need keep their rest.
  constexpr int64_t kLongSteps = 12;
  const auto launch = [&](auto kernel, int tile) {
    const int bytes = kWarps * 32 * (tile + 1) * static_cast<int>(sizeof(int32_t) + sizeof(Value));
    AllowSharedMemory(context, kernel, bytes);
    kernel<<<Blocks(context, slices.size(), kWarps), kThreads, static_cast<size_t>(bytes),
             context.stream>>>(a, from, order, slices.size(), slices.get(), cols.get(),
                               values.get());
    CheckLaunch("SliceKernel");
  };
  constexpr int kMany = 4;
  if (threads_a_row == kMany) {
    launch(SliceKernel<kMany, 8, From, Value>, 8);
  } else if (cols.size() >= 32 * kLongSteps * slices.size()) {
    launch(SliceKernel<1, 32, From, Value>, 32);
  } else {
    launch(SliceKernel<1, 8, From, Value>, 8);
  }
}

template void FillSlices(const Context&, const CsrArrays&, const double*, const int32_t*, int,
                         const Buffer<Slice>&, const Buffer<int32_t>&, const Buffer<double>&);
template void FillSlices(const Context&, const CsrArrays&, const double*, const int32_t*, int,
                         const Buffer<Slice>&, const Buffer<int32_t>&, const Buffer<float>&);
template void FillSlices(const Context&, const CsrArrays&, const float*, const int32_t*, int,
                         const Buffer<Slice>&, const Buffer<int32_t>&, const Buffer<float>&);

}  // namespace spaid::cuda
