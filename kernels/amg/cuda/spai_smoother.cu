#include <cstdint>
#include <utility>

#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/spai_smoother.h"
#include "kernels/amg/smoothers.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "kernels/sparse/cuda/pattern.h"
#include "kernels/static_spai/cuda/build.h"
#include "kernels/static_spai/cuda/plan.h"
#include "kernels/static_spai/cuda/post_filter.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads;

// Entries of the shortest and the longest column.
struct Lengths {
  int32_t shortest = INT32_MAX, longest = 0;
};

__global__ void __launch_bounds__(kThreads) LengthsKernel(PatternRef a, Lengths* lengths) {
  Lengths own;
  for (int64_t j = layout::ThreadOfGrid(); j < a.n; j += layout::ThreadsOfGrid()) {
    const auto length = static_cast<int32_t>(a.col_ptr[j + 1] - a.col_ptr[j]);
    own = {min(own.shortest, length), max(own.longest, length)};
  }
  own = {__reduce_min_sync(~0u, own.shortest), __reduce_max_sync(~0u, own.longest)};
  if (threadIdx.x % 32 != 0) return;
  atomicMin(&lengths->shortest, own.shortest);
  atomicMax(&lengths->longest, own.longest);
}

Lengths LengthsOf(Context& context, const RowMatrix& columns) {
  const Buffer<Lengths> lengths(context, 1);
  const Lengths none;
  lengths.CopyIn(&none, 1);
  LengthsKernel<<<Blocks(context, columns.n, kThreads), kThreads, 0, context.stream>>>(
      columns.pattern(), lengths.get());
  CheckLaunch("LengthsKernel");
  return Read(context, lengths, 0);
}

// Returns M by columns. `pattern`: of M.
std::optional<RowMatrix> MakeM(Context& context, const RowMatrix& columns, DevicePattern pattern,
                               const Caller& caller) {
  const bool of_a = pattern.is_of_a();
  StaticSpaiPlan plan = MakePlan(context, columns, std::move(pattern), /*by_qr=*/false,
                                 {0, columns.n}, kernels::SpaiTableBytes(columns.nnz));
  if (plan.large_groups > 0) return std::nullopt;  // they take what memory there is
  kernels::StaticSpaiCudaTimings timings;
  StaticSpaiResult made =
      Build(context, plan, columns, kernels::StaticSpaiOptions(), caller, timings);
  if (CountHostColumns(context, made) > 0) return std::nullopt;
  RowMatrix m;
  if (of_a) {
    m = CopyPattern(context, columns);
  } else {
    m.n = m.columns = columns.n;
    m.nnz = plan.m.nnz;
    m.col_ptr = std::move(plan.m.col_ptr);
    m.row_idx = std::move(plan.m.row_idx);
  }
  m.values = std::move(made.values);
  m.longest = LengthsOf(context, m).longest;
  return m;
}

RowMatrix ByColumns(Context& context, const RowMatrix& a, bool symmetric) {
  return symmetric ? RowMatrix() : Transpose(context, a);
}

}  // namespace

std::optional<SmootherFactor> MakeSpai(Context& context, const RowMatrix& a, bool symmetric,
                                       bool finest, bool keeps, const Caller& caller) {
  RowMatrix turned = ByColumns(context, a, symmetric);
  const RowMatrix& columns = symmetric ? a : turned;
  if (LengthsOf(context, columns).shortest == 0) return std::nullopt;
  kernels::PatternOptions options;
  if (!finest) options.keep_tau = kernels::kCoarseTau;
  DevicePattern pattern =
      MakePattern(context, columns, nullptr, nullptr, options, {}, /*max_nnz=*/0, caller);
  const bool of_a = pattern.is_of_a();
  auto m = MakeM(context, columns, std::move(pattern), caller);
  if (!m) return std::nullopt;
  turned = {};
  SmootherFactor factor;
  if (keeps) {
    if (!of_a) factor.kept.pattern = CopyPattern(context, *m);
    factor.g = Transpose(context, *m, factor.kept.transposed);
  } else {
    factor.g = Transpose(context, *m);
  }
  if (symmetric) factor.gt = *std::move(m);
  return factor;
}

std::optional<SmootherFactor> MakeSpaiOn(Context& context, const RowMatrix& a, bool symmetric,
                                         const KeptFactor& known, const Caller& caller) {
  RowMatrix turned = ByColumns(context, a, symmetric);
  const RowMatrix& columns = symmetric ? a : turned;
  DevicePattern pattern;
  pattern.n = columns.n;
  if (known.pattern.n == 0) {
    pattern.nnz = columns.nnz;
    pattern.a = columns.pattern();
  } else {
    RowMatrix copy = CopyPattern(context, known.pattern);
    pattern.nnz = copy.nnz;
    pattern.col_ptr = std::move(copy.col_ptr);
    pattern.row_idx = std::move(copy.row_idx);
  }
  auto m = MakeM(context, columns, std::move(pattern), caller);
  if (!m) return std::nullopt;
  SmootherFactor factor;
  factor.g = TransposeOn(context, *m, known.transposed);
  if (symmetric) factor.gt = *std::move(m);
  return factor;
}

}  // namespace spaid::cuda
