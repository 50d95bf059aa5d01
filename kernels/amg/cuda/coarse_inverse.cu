#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/amg/cuda/coarse_inverse.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

constexpr int64_t kMostRows = 2048;

struct Findings {
  unsigned long long largest = 0;  // bits of the largest element
  int32_t bad = 0;                 // some element is not finite
  int32_t steps = 0;               // of the elimination
};

__global__ void __launch_bounds__(kThreads)
    DenseKernel(PatternRef a, const double* __restrict__ values, double* __restrict__ dense,
                double* __restrict__ diagonal, Findings* found) {
  for (int64_t i = ThreadOfGrid(); i < a.n; i += ThreadsOfGrid()) {
    double own = 0;
    for (int64_t p = a.col_ptr[i]; p < a.col_ptr[i + 1]; ++p) {
      const double value = values[p];
      if (!isfinite(value)) found->bad = 1;
      dense[i * a.n + a.row_idx[p]] = value;
      if (a.row_idx[p] == i) own = fabs(value);
      atomicMax(&found->largest,
                static_cast<unsigned long long>(__double_as_longlong(fabs(value))));
    }
    diagonal[i] = own;
  }
}

struct Inversion {
  int64_t n;
  double* a[2];  // by turns
  const double* diagonal;
  uint8_t* done;
  int64_t* exchanged;
  Findings* found;
  bool symmetric;
  SumSpace space;
};

struct Pivot {
  double size;
  int32_t row;  // -1: none
};
__device__ Pivot Better(const Pivot& x, const Pivot& y) {
  if (x.row < 0 || y.row < 0) return x.row < 0 ? y : x;
  if (x.size != y.size) return x.size > y.size ? x : y;
  return x.row < y.row ? x : y;
}

// The best of all threads, for all of them.
__device__ Pivot BestOfBlock(Pivot own) {
  __shared__ Pivot of_warp[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) {
    own = Better(own, {__shfl_xor_sync(~0u, own.size, step), __shfl_xor_sync(~0u, own.row, step)});
  }
  __syncthreads();  // of_warp of the step before has been read
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  Pivot best = of_warp[0];
  for (int w = 1; w < kThreads / 32; ++w) best = Better(best, of_warp[w]);
  return best;
}

// Gauss and Jordan, as the host has it. Each block has rows of its own, and looks for the pivot,
// and scales its row, by itself. Cooperative: all blocks run at once.
__global__ void __launch_bounds__(kThreads) InvertKernel(Inversion of) {
  __shared__ unsigned barriers;
  __shared__ uint8_t done[kMostRows];
  __shared__ double pivot_row[kMostRows];
  const int64_t n = of.n;
  const auto thread = static_cast<int64_t>(threadIdx.x);
  if (thread == 0) barriers = 0;
  for (int64_t i = thread; i < n; i += kThreads) done[i] = 0;
  __syncthreads();
  of.space.barriers = &barriers;
  const double largest = __longlong_as_double(static_cast<long long>(of.found->largest));
  const double rounding = kernels::kPivotRounding * static_cast<double>(n);
  int32_t step = 0;
  for (; step < n; ++step) {
    const double* const a = of.a[step % 2];
    double* const next = of.a[(step + 1) % 2];
    Pivot own{0, -1};
    for (int64_t i = thread; i < n; i += kThreads) {
      if (of.symmetric ? done[i] != 0 : i < step) continue;
      double size = fabs(__ldcg(a + i * n + (of.symmetric ? i : step)));
      if (of.symmetric) {
        if (!(size > rounding)) continue;
        size /= of.diagonal[i];
      }
      own = Better(own, {size, static_cast<int32_t>(i)});
    }
    const Pivot best = BestOfBlock(own);
    if (of.symmetric && (best.row < 0 || !(best.size > kernels::kSingularPivot))) break;
    const int64_t from = best.row, k = of.symmetric ? from : step;
    const bool eliminates = of.symmetric || best.size > kernels::kSingularPivot * largest;
    const double scale = 1 / __ldcg(a + from * n + k);
    for (int64_t j = thread; j < n; j += kThreads) {
      const double value = __ldcg(a + from * n + j);
      pivot_row[j] = eliminates ? (j == k ? 1 : value) * scale : value;
    }
    if (thread == 0 && eliminates) done[k] = 1;
    if (thread == 0 && blockIdx.x == 0) of.exchanged[step] = from;
    __syncthreads();
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
      // Rows k and `from` are exchanged.
      const double* const row = a + (i == from ? k : i) * n;
      const double factor = i == k || !eliminates ? 0 : __ldcg(row + k);
      for (int64_t j = thread; j < n; j += kThreads) {
        double value = pivot_row[j];
        if (i != k) {
          value = __ldcg(row + j);
          if (eliminates) value = fma(-factor, pivot_row[j], j == k ? 0 : value);
        }
        next[i * n + j] = value;
      }
    }
    GridBarrier(of.space);
  }
  if (blockIdx.x != 0) return;
  if (thread == 0) of.found->steps = step;
  for (int64_t i = thread; i < n; i += kThreads) of.done[i] = done[i];
}

}  // namespace

std::optional<kernels::CoarseInverse> InvertCoarse(Context& context, const RowMatrix& rows,
                                                   bool symmetric) {
  const int64_t n = rows.n;
  if (n > kMostRows) return std::nullopt;
  const Buffer<double> first(context, n * n), second(context, n * n), diagonal(context, n);
  const Buffer<uint8_t> done(context, n);
  const Buffer<int64_t> exchanged(context, n);
  const Buffer<Findings> there(context, 1);
  const Buffer<unsigned> arrived(context, 2);
  first.Fill(0);
  there.Fill(0);
  arrived.Fill(0);
  exchanged.Fill(0);
  DenseKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(
      rows.pattern(), rows.values.get(), first.get(), diagonal.get(), there.get());
  CheckLaunch("DenseKernel");
  Inversion inversion{n,
                      {first.get(), second.get()},
                      diagonal.get(),
                      done.get(),
                      exchanged.get(),
                      there.get(),
                      symmetric,
                      SumSpace{nullptr, arrived.get()}};
  void* arguments[] = {&inversion};
  const int blocks = static_cast<int>(std::min<int64_t>(n, context.multiprocessors));
  Check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&InvertKernel),
                                    dim3(static_cast<unsigned>(blocks)), dim3(kThreads), arguments,
                                    0, context.stream),
        "cudaLaunchCooperativeKernel");
  Findings found;
  std::vector<uint8_t> done_here(static_cast<size_t>(n));
  std::vector<int64_t> exchanged_here(static_cast<size_t>(n));
  context.Download(
      {there.To(&found, 1), done.To(done_here.data(), n), exchanged.To(exchanged_here.data(), n)});
  if (found.bad != 0) return std::nullopt;
  kernels::Array<double> dense(static_cast<size_t>(n * n));
  context.Download({(found.steps % 2 == 0 ? first : second).To(dense.data(), n * n)});
  return kernels::FinishInverse(n, std::move(dense), done_here, exchanged_here, symmetric);
}

}  // namespace spaid::cuda
