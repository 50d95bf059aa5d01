// Matrices of coarse levels, for products that are over before Csr's (kernels/krylov/cuda/csr.h)
// have filled the device: by rows as they are, some lanes a row, as many as it has entries. For .cu
// files.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/amg/cuda/lanes.h"
#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/product_parts.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

namespace tuning {
// One NVIDIA H200, us, these / Csr's: 500 rows 3.6 / 9.9, 6,400 of a 2-D grid 4.1 / 10.2, 26,000 of
// a circuit 10.1 / 21.2; 92,000 of that 13.7 / 14.7, 56,000 of a grid 13.3 / 8.5; 6,200 and 20,000
// of R of elasticity, 450 entries each, 9.3 / 30.8 and 23.3 / 40.3.
inline constexpr int64_t kFewRows = 1 << 15, kFewEntries = 16'000'000;
// A row is no more than a warp's work.
inline constexpr int64_t kLongestOfFew = 2048;
}  // namespace tuning

template <class Value>
struct FewRows {
  // `longest`: entries of a row at most; 0: not known.
  static bool Serves(const Matrix& rows, int64_t longest) {
    return rows.n <= tuning::kFewRows && rows.nnz <= tuning::kFewEntries && longest > 0 &&
           longest <= tuning::kLongestOfFew;
  }

  int64_t n = 0;
  int lanes = 32;
  Buffer<int64_t> ptr;
  Buffer<int32_t> columns;
  Buffer<Value> values;
};

namespace few_rows {

template <class Value>
__global__ void __launch_bounds__(layout::kThreads)
    NarrowKernel(int64_t count, const double* __restrict__ from, Value* __restrict__ to) {
  for (int64_t i = layout::ThreadOfGrid(); i < count; i += layout::ThreadsOfGrid()) {
    to[i] = static_cast<Value>(from[i]);
  }
}

// step.Row(at, (A x)_at) for the elements of all columns v that step.Runs(v).
template <int kColumns, int kLanes, class Value, class Step>
__global__ void __launch_bounds__(layout::kThreads)
    ProductKernel(int64_t n, const int64_t* __restrict__ ptr, const int32_t* __restrict__ columns,
                  const Value* __restrict__ values, const Value* __restrict__ x, Step step) {
  if (!AnyRuns<kColumns>(!step.Skip())) return;
  const auto entries = [&](int64_t i) { return ptr[i + 1] - ptr[i]; };
  ForRowsByLength<kLanes>(n, entries, [&](const auto& group, int64_t i) {
    double sums[kColumns] = {};
    const int64_t end = ptr[i + 1];
#pragma unroll 4
    for (int64_t p = ptr[i] + group.lane; p < end; p += group.lanes) {
      const auto entry = static_cast<double>(values[p]);
      double row[kColumns];
      product::LoadRow<kColumns>(x + int64_t{columns[p]} * kColumns, true, row);
      for (int v = 0; v < kColumns; ++v) sums[v] = fma(entry, row[v], sums[v]);
    }
#pragma unroll
    for (int v = 0; v < kColumns; ++v) {
      sums[v] = group.Best(sums[v], [](double one, double other) { return one + other; });
      const bool is_own = v % group.lanes == group.lane;
      if (is_own && (kColumns == 1 || step.Runs(v))) step.Row(i * kColumns + v, sums[v]);
    }
  });
}

}  // namespace few_rows

template <class Value>
FewRows<Value> MakeFewRows(Context& context, const PatternRef& rows, int64_t nnz,
                           const double* values) {
  FewRows<Value> to{rows.n, 2, Buffer<int64_t>(context, rows.n + 1), Buffer<int32_t>(context, nnz),
                    Buffer<Value>(context, nnz)};
  while (to.lanes < 32 && to.lanes * rows.n < nnz) to.lanes *= 2;
  const auto copy = [&](void* there, const void* from, int64_t bytes) {
    Check(cudaMemcpyAsync(there, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                          context.stream),
          "cudaMemcpyAsync");
  };
  copy(to.ptr.get(), rows.col_ptr, 8 * (rows.n + 1));
  copy(to.columns.get(), rows.row_idx, 4 * nnz);
  if (nnz == 0) return to;
  few_rows::NarrowKernel<<<layout::Blocks(context, nnz, layout::kThreads), layout::kThreads, 0,
                           context.stream>>>(nnz, values, to.values.get());
  CheckLaunch("few_rows::NarrowKernel");
  return to;
}

template <int kColumns, class Value, class Step>
void LaunchProduct(const Context& context, const FewRows<Value>& rows, const Value* x,
                   const Step& step) {
  const auto launch = [&](auto lanes) {
    few_rows::ProductKernel<kColumns, lanes>
        <<<layout::Blocks(context, rows.n, layout::kThreads / lanes), layout::kThreads, 0,
           context.stream>>>(rows.n, rows.ptr.get(), rows.columns.get(), rows.values.get(), x,
                             step);
  };
  switch (rows.lanes) {
    case 2:
      launch(std::integral_constant<int, 2>{});
      break;
    case 4:
      launch(std::integral_constant<int, 4>{});
      break;
    case 8:
      launch(std::integral_constant<int, 8>{});
      break;
    case 16:
      launch(std::integral_constant<int, 16>{});
      break;
    default:
      launch(std::integral_constant<int, 32>{});
  }
  CheckLaunch("few_rows::ProductKernel");
}

}  // namespace spaid::cuda
