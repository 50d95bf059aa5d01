#include <algorithm>
#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // of a row

int Blocks(const Context& context, int64_t threads) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, most));
}

// Row i of the transpose has a_ki: of row k of A.
__global__ void __launch_bounds__(kThreads)
    PlacesKernel(PatternRef a, PatternRef transpose, int32_t* __restrict__ from) {
  const int64_t lane = threadIdx.x % kLanes;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes; i < transpose.n;
       i += int64_t{gridDim.x} * kThreads / kLanes) {
    for (int64_t p = transpose.col_ptr[i] + lane; p < transpose.col_ptr[i + 1]; p += kLanes) {
      from[p] = static_cast<int32_t>(FindEntry(a, i, transpose.row_idx[p]));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    GatherKernel(int64_t count, const int32_t* __restrict__ from, const double* __restrict__ values,
                 double* __restrict__ to) {
  for (int64_t p = int64_t{blockIdx.x} * kThreads + threadIdx.x; p < count;
       p += int64_t{gridDim.x} * kThreads) {
    to[p] = values[from[p]];
  }
}

}  // namespace

RowMatrix CopyPattern(Context& context, const RowMatrix& of) {
  RowMatrix to;
  to.n = of.n;
  to.nnz = of.nnz;
  to.pattern_hash = of.pattern_hash;
  to.columns = of.columns;
  to.longest = of.longest;
  to.empty = of.empty;
  to.col_ptr = Buffer<int64_t>(context, of.n + 1);
  to.row_idx = Buffer<int32_t>(context, of.nnz);
  Copy(context, of.col_ptr, to.col_ptr, of.n + 1);
  Copy(context, of.row_idx, to.row_idx, of.nnz);
  return to;
}

RowMatrix PatternOf(RowMatrix of) {
  of.values = {};
  return of;
}

RowMatrix OnPattern(Context& context, const RowMatrix& pattern) {
  RowMatrix to = CopyPattern(context, pattern);
  to.values = Buffer<double>(context, to.nnz);
  return to;
}

RowMatrix Transpose(Context& context, const RowMatrix& a, Transposition& kept) {
  {
    auto rows = SortByRows<double>(context, a.pattern(), a.nnz, nullptr, a.columns);
    RowMatrix& to = kept.pattern;
    to.n = a.columns;
    to.nnz = a.nnz;
    to.columns = a.n;
    to.longest = rows.longest;
    to.empty = rows.empty;
    to.col_ptr = std::move(rows.row_ptr);
    to.row_idx = std::move(rows.cols);
  }
  kept.from = Buffer<int32_t>(context, a.nnz);
  PlacesKernel<<<Blocks(context, kLanes * a.columns), kThreads, 0, context.stream>>>(
      a.pattern(), kept.pattern.pattern(), kept.from.get());
  CheckLaunch("PlacesKernel");
  return TransposeOn(context, a, kept);
}

RowMatrix TransposeOn(Context& context, const RowMatrix& a, const Transposition& kept) {
  RowMatrix to = OnPattern(context, kept.pattern);
  GatherKernel<<<Blocks(context, to.nnz), kThreads, 0, context.stream>>>(
      to.nnz, kept.from.get(), a.values.get(), to.values.get());
  CheckLaunch("GatherKernel");
  return to;
}

int64_t HeldBytes(const RowMatrix& of) {
  return HeldBytes(of.col_ptr) + HeldBytes(of.row_idx) + HeldBytes(of.values);
}
int64_t HeldBytes(const Transposition& of) { return HeldBytes(of.pattern) + HeldBytes(of.from); }

}  // namespace spaid::cuda
