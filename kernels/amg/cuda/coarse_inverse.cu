#include <algorithm>
#include <cuda/atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/amg/cuda/coarse_inverse.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::Lane, layout::ThreadOfGrid, layout::ThreadsOfGrid;

// Rows of a block, where there are blocks for all: fewer blocks wait less for one another.
constexpr int64_t kRowsOfBlock = 8;

struct Findings {
  unsigned long long largest = 0;  // bits of the largest element
  int32_t bad = 0;                 // some element is not finite
};

// The row that a block would eliminate next.
struct alignas(16) Candidate {
  unsigned long long size;  // bits of a number that is not negative, in its order
  int32_t row;              // kNoRow: none
};
constexpr int32_t kNoRow = INT32_MAX;

// The largest of a warp's, of equals the first row.
__device__ Candidate BestOfWarp(Candidate own) {
  const auto high = static_cast<uint32_t>(own.size >> 32), low = static_cast<uint32_t>(own.size);
  const uint32_t most_high = __reduce_max_sync(~0u, own.row == kNoRow ? 0 : high);
  const bool first = own.row != kNoRow && high == most_high;
  const uint32_t most_low = __reduce_max_sync(~0u, first ? low : 0);
  const int32_t row = __reduce_min_sync(~0u, first && low == most_low ? own.row : kNoRow);
  return {static_cast<unsigned long long>(most_high) << 32 | most_low, row};
}

__device__ Candidate Better(const Candidate& x, const Candidate& y) {
  if (x.row == kNoRow || y.row == kNoRow) return x.row == kNoRow ? y : x;
  if (x.size != y.size) return x.size > y.size ? x : y;
  return x.row < y.row ? x : y;
}

struct Inversion {
  PatternRef a;
  const double* values;
  bool symmetric;
  double* inverse;  // as elimination leaves it
  uint8_t* done;    // zeros before
  int64_t* exchanged;
  Findings* found;            // zeros before
  Candidate* candidates[2];   // of each block, by turns
  double* candidate_rows[2];  // and their elements
  unsigned* arrived;          // 0 before
};

// The rows of a block, in shared memory.
struct OwnRows {
  __host__ __device__ static int64_t Most(int64_t n, int64_t blocks) {
    return (n + blocks - 1) / blocks;
  }
  __host__ static int64_t Bytes(int64_t n, int64_t blocks) {
    const int64_t rows = Most(n, blocks);
    return 8 * ((rows + 1) * n + 2 * rows) + 8 * rows;
  }
  __device__ OwnRows(double* memory, int64_t n, int64_t blocks)
      : elements(memory),
        pivot_row(memory + Most(n, blocks) * n),
        factor(pivot_row + n),
        diagonal(factor + Most(n, blocks)),
        place(reinterpret_cast<int32_t*>(diagonal + Most(n, blocks))),
        done(place + Most(n, blocks)) {}

  double *elements, *pivot_row, *factor;
  double* diagonal;       // of A
  int32_t *place, *done;  // which row each is; whether its unknown is eliminated
};

// Gauss and Jordan, as the host has it. Each block shows its best candidate, and that row; then all
// choose, show what comes next, and eliminate in their rows. Cooperative: all blocks run at once.
__global__ void __launch_bounds__(kThreads) InvertKernel(Inversion of) {
  extern __shared__ double memory[];
  __shared__ int pivot_slot;
  const ::cuda::atomic_ref<unsigned, ::cuda::thread_scope_device> arrived(*of.arrived);
  const int64_t n = of.a.n;
  const OwnRows own(memory, n, gridDim.x);
  const auto thread = static_cast<int>(threadIdx.x), lane = Lane();
  const auto count = static_cast<int>((n - blockIdx.x + gridDim.x - 1) / gridDim.x);
  for (int64_t e = thread; e < count * n; e += kThreads) own.elements[e] = 0;
  for (int r = thread; r < count; r += kThreads) {
    own.place[r] = static_cast<int32_t>(blockIdx.x + r * gridDim.x);
    own.diagonal[r] = 0;
    own.done[r] = 0;
  }
  __syncthreads();
  double most = 0;
  for (int r = thread / 32; r < count; r += kThreads / 32) {
    const int32_t i = own.place[r];
    for (int64_t p = of.a.col_ptr[i] + lane; p < of.a.col_ptr[i + 1]; p += 32) {
      const double value = of.values[p];
      if (!isfinite(value)) of.found->bad = 1;
      own.elements[r * n + of.a.row_idx[p]] = value;
      if (of.a.row_idx[p] == i) own.diagonal[r] = fabs(value);
      most = fmax(most, fabs(value));
    }
  }
  atomicMax(&of.found->largest, static_cast<unsigned long long>(__double_as_longlong(most)));
  __syncthreads();
  const double rounding = kernels::kPivotRounding * static_cast<double>(n);
  // Shows what the rows are after this step, before they are: `now(r, j)`.
  const auto show = [&](int64_t step, const auto& now) {
    Candidate best{0, kNoRow};
    int slot = 0;
    for (int r = lane; r < count; r += 32) {
      const int32_t i = own.place[r];
      if (of.symmetric ? own.done[r] != 0 : i < step) continue;
      double size = fabs(now(r, of.symmetric ? i : step));
      if (of.symmetric) {
        if (!(size > rounding)) continue;
        size /= own.diagonal[r];
      }
      const Candidate next{static_cast<unsigned long long>(__double_as_longlong(size)), i};
      const Candidate better = Better(best, next);
      if (better.row != best.row) slot = r;
      best = better;
    }
    const int32_t of_lane = best.row;
    best = BestOfWarp(best);
    if (best.row != kNoRow) {
      const uint32_t its = __ballot_sync(~0u, of_lane == best.row);
      slot = __shfl_sync(~0u, slot, __ffs(static_cast<int>(its)) - 1);
      double* const to = of.candidate_rows[step % 2] + blockIdx.x * n;
      for (int64_t j = thread; j < n; j += kThreads) to[j] = now(slot, j);
    }
    if (thread == 0) of.candidates[step % 2][blockIdx.x] = best;
    __syncthreads();
    if (thread == 0) arrived.fetch_add(1, ::cuda::memory_order_release);
  };
  const auto wait = [&](int64_t step) {
    const auto all = static_cast<unsigned>((step + 1) * gridDim.x);
    while (thread == 0 && arrived.load(::cuda::memory_order_acquire) < all) {
    }
    __syncthreads();
  };
  show(0, [&](int r, int64_t j) { return own.elements[r * n + j]; });
  wait(0);
  const double largest = __longlong_as_double(static_cast<long long>(__ldcg(&of.found->largest)));
  if (__ldcg(&of.found->bad) != 0) return;
  for (int64_t step = 0; step < n; ++step) {
    if (step > 0) wait(step);
    Candidate best{0, kNoRow};
    int from_block = 0;
    for (int b = lane; b < static_cast<int>(gridDim.x); b += 32) {
      const auto* const shown = of.candidates[step % 2] + b;
      const Candidate next = Better(best, {__ldcg(&shown->size), __ldcg(&shown->row)});
      if (next.row != best.row) from_block = b;
      best = next;
    }
    const int32_t of_lane = best.row;
    best = BestOfWarp(best);
    const double size = __longlong_as_double(static_cast<long long>(best.size));
    if (of.symmetric && (best.row == kNoRow || !(size > kernels::kSingularPivot))) break;
    const uint32_t its = __ballot_sync(~0u, of_lane == best.row);
    from_block = __shfl_sync(~0u, from_block, __ffs(static_cast<int>(its)) - 1);
    const int64_t from = best.row, k = of.symmetric ? from : step;
    const bool eliminates = of.symmetric || size > kernels::kSingularPivot * largest;
    const double* const shown_row = of.candidate_rows[step % 2] + from_block * n;
    const double scale = 1 / __ldcg(shown_row + k);
    for (int64_t j = thread; j < n; j += kThreads) {
      const double value = __ldcg(shown_row + j);
      own.pivot_row[j] = eliminates ? (j == k ? 1 : value) * scale : value;
    }
    if (thread == 0) pivot_slot = -1;
    __syncthreads();
    for (int r = thread; r < count; r += kThreads) {
      // Rows k and `from` are exchanged.
      const int32_t i = own.place[r];
      if (i == from || i == k) own.place[r] = static_cast<int32_t>(i == from ? k : from);
      own.factor[r] = own.elements[r * n + k];
      if (own.place[r] != k) continue;
      pivot_slot = r;
      if (eliminates) own.done[r] = 1;
    }
    if (thread == 0 && blockIdx.x == 0) {
      of.exchanged[step] = from;
      of.done[k] = eliminates ? 1 : 0;
    }
    __syncthreads();
    const auto now = [&](int r, int64_t j) {
      const double before = own.elements[r * n + j];
      return eliminates ? fma(-own.factor[r], own.pivot_row[j], j == k ? 0 : before) : before;
    };
    if (step + 1 < n) show(step + 1, now);
    // While others do the same.
    constexpr int kTogether = 4;
    for (int64_t j = thread; j < n; j += kThreads) {
      for (int first = 0; eliminates && first < count; first += kTogether) {
        double element[kTogether];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          if (first + u < count) element[u] = now(first + u, j);
        }
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          if (first + u < count) own.elements[(first + u) * n + j] = element[u];
        }
      }
      if (pivot_slot >= 0) own.elements[pivot_slot * n + j] = own.pivot_row[j];
    }
  }
  __syncthreads();
  for (int r = 0; r < count; ++r) {
    for (int64_t j = thread; j < n; j += kThreads) {
      of.inverse[own.place[r] * n + j] = own.elements[r * n + j];
    }
  }
}

// The host's FinishInverse. `columns`: null where A is symmetric, else where each comes from.
__global__ void __launch_bounds__(kThreads)
    FinishKernel(int64_t n, const double* __restrict__ from, const uint8_t* __restrict__ done,
                 const int64_t* __restrict__ columns, double* __restrict__ to) {
  for (int64_t e = ThreadOfGrid(); e < n * n; e += ThreadsOfGrid()) {
    const int64_t i = e / n, j = columns != nullptr ? columns[e % n] : e % n;
    double value = 0;
    if (done[i] != 0 && done[j] != 0) {
      value = from[i * n + j];
      if (columns == nullptr) value = 0.5 * (value + from[j * n + i]);
    }
    to[e] = value;
  }
}

}  // namespace

std::optional<CoarseInverse> InvertCoarse(Context& context, const RowMatrix& a, bool symmetric) {
  const int64_t n = a.n;
  const int64_t blocks =
      std::min<int64_t>((n + kRowsOfBlock - 1) / kRowsOfBlock, context.multiprocessors);
  const int64_t bytes = OwnRows::Bytes(n, blocks);
  int most_bytes = 0;
  Check(
      cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.ordinal),
      "cudaDeviceGetAttribute");
  if (bytes + 1024 > most_bytes) return std::nullopt;
  const Buffer<double> left(context, n * n), shown(context, 2 * blocks * n);
  const Buffer<Candidate> candidates(context, 2 * blocks);
  const Buffer<uint8_t> done(context, n);
  const Buffer<int64_t> exchanged(context, n);
  const Buffer<Findings> there(context, 1);
  const Buffer<unsigned> arrived(context, 1);
  done.Fill(0);
  there.Fill(0);
  arrived.Fill(0);
  Inversion inversion{a.pattern(),
                      a.values.get(),
                      symmetric,
                      left.get(),
                      done.get(),
                      exchanged.get(),
                      there.get(),
                      {candidates.get(), candidates.get() + blocks},
                      {shown.get(), shown.get() + blocks * n},
                      arrived.get()};
  AllowSharedMemory(context, InvertKernel, static_cast<int>(bytes));
  void* arguments[] = {&inversion};
  Check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&InvertKernel),
                                    dim3(static_cast<unsigned>(blocks)), dim3(kThreads), arguments,
                                    static_cast<size_t>(bytes), context.stream),
        "cudaLaunchCooperativeKernel");
  Findings found;
  std::vector<uint8_t> done_here(static_cast<size_t>(n));
  std::vector<int64_t> exchanged_here(static_cast<size_t>(symmetric ? 0 : n));
  context.Download({there.To(&found, 1), done.To(done_here.data(), n),
                    exchanged.To(exchanged_here.data(), symmetric ? 0 : n)});
  if (found.bad != 0) return std::nullopt;
  CoarseInverse made{n, Buffer<double>(context, n * n),
                     std::count(done_here.begin(), done_here.end(), 0)};
  // Rows of A that were exchanged are columns of its inverse.
  std::vector<int64_t> column(exchanged_here.size());
  std::iota(column.begin(), column.end(), 0);
  for (size_t k = column.size(); k-- > 0;) {
    std::swap(column[k], column[static_cast<size_t>(exchanged_here[k])]);
  }
  const Buffer<int64_t> columns(context, static_cast<int64_t>(column.size()));
  columns.CopyIn(column.data(), columns.size());
  FinishKernel<<<Blocks(context, n * n, kThreads), kThreads, 0, context.stream>>>(
      n, left.get(), done.get(), columns.get(), made.rows.get());
  CheckLaunch("FinishKernel");
  if (!symmetric) context.Synchronize();  // `column` has been read
  return made;
}

}  // namespace spaid::cuda
