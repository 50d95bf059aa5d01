#include <utility>
#include <vector>

#include "kernels/amg/cuda/factors.h"
#include "kernels/amg/cuda/prolongation.h"
#include "kernels/amg/smoothers.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::Lane, layout::WarpOfGrid, layout::WarpsOfGrid;

// Entries of row i up to its diagonal, where columns ascend.
__global__ void __launch_bounds__(kThreads)
    LowerLengthsKernel(PatternRef a, int64_t* __restrict__ lengths) {
  for (int64_t i = layout::ThreadOfGrid(); i < a.n; i += layout::ThreadsOfGrid()) {
    int64_t low = a.col_ptr[i], high = a.col_ptr[i + 1];
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (a.row_idx[middle] <= i) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    lengths[i] = low - a.col_ptr[i];
  }
}
__global__ void __launch_bounds__(kThreads)
    LowerKernel(PatternRef a, const int64_t* __restrict__ ptr, int32_t* __restrict__ columns) {
  for (int64_t i = WarpOfGrid(); i < a.n; i += WarpsOfGrid()) {
    for (int64_t e = Lane(); e < ptr[i + 1] - ptr[i]; e += 32) {
      columns[ptr[i] + e] = a.row_idx[a.col_ptr[i] + e];
    }
  }
}

FsaiPattern LowerTriangle(Context& context, const RowMatrix& a) {
  FsaiPattern lower{Buffer<int64_t>(context, a.n + 1), {}};
  LowerLengthsKernel<<<Blocks(context, a.n, kThreads), kThreads, 0, context.stream>>>(
      a.pattern(), lower.row_ptr.get());
  CheckLaunch("LowerLengthsKernel");
  Scan(context, lower.row_ptr, a.n + 1);
  lower.col_idx = Buffer<int32_t>(context, Read(context, lower.row_ptr, a.n));
  LowerKernel<<<Blocks(context, a.n, layout::kWarps), kThreads, 0, context.stream>>>(
      a.pattern(), lower.row_ptr.get(), lower.col_idx.get());
  CheckLaunch("LowerKernel");
  return lower;
}

}  // namespace

void SmootherFactor::GoTo(Context& other) {
  for (RowMatrix* const of : {&g, &gt, &kept.pattern, &kept.transposed.pattern}) {
    of->col_ptr.GoTo(other);
    of->row_idx.GoTo(other);
    of->values.GoTo(other);
  }
  kept.transposed.from.GoTo(other);
}

namespace {

// Returns G, by rows. `lower`: its pattern; null: it grows.
std::optional<RowMatrix> MakeG(Context& context, const RowMatrix& a, const FsaiPattern* lower,
                               const kernels::AmgOptions& options, const Caller& caller) {
  const kernels::FsaiOptions fsai = {.adaptive = lower == nullptr,
                                     .k_max = options.k_max,
                                     .s = options.per_step,
                                     .epsilon = options.epsilon};
  std::vector<int64_t> row_ptr;
  kernels::PatternView pattern;
  if (lower != nullptr) {
    row_ptr.resize(static_cast<size_t>(a.n) + 1);
    context.Download({lower->row_ptr.To(row_ptr.data(), a.n + 1)});
    pattern = {.n_rows = a.n, .n_cols = a.n, .col_ptr = row_ptr, .row_idx = {}};
  }
  FsaiFigures figures;
  FsaiG made = BuildFsai(context, a, lower != nullptr ? &pattern : nullptr, lower, fsai,
                         Once({0, a.n}), caller, figures);
  if (figures.fault >= 0 || figures.left_rows > 0) return std::nullopt;
  made.psi_ratio = {};
  FsaiChunk rows = Join(context, made.chunks);
  RowMatrix g;
  g.n = g.columns = a.n;
  g.nnz = rows.nnz;
  g.longest = figures.quality.nnz_row_max;
  g.col_ptr = std::move(rows.row_ptr);
  g.row_idx = std::move(rows.col_idx);
  g.values = std::move(rows.values);
  return g;
}

void SetStep(Context& context, const RowMatrix& a, const NodeMatrix* by_nodes,
             SmootherFactor& factor) {
  factor.rho = FactoredRho(context, a, by_nodes, factor.g, factor.gt);
  factor.omega = factor.rho > 0 ? kernels::kSmootherStep / factor.rho : 1;
}

}  // namespace

std::optional<SmootherFactor> MakeFactor(Context& context, const RowMatrix& a,
                                         const NodeMatrix* by_nodes, kernels::SmootherKind kind,
                                         const kernels::AmgOptions& options, bool keeps,
                                         const Caller& caller) {
  const bool grows = kind == kernels::SmootherKind::kAfsai;
  FsaiPattern lower;
  if (!grows) lower = LowerTriangle(context, a);
  std::optional<RowMatrix> g = MakeG(context, a, grows ? nullptr : &lower, options, caller);
  if (!g) return std::nullopt;
  SmootherFactor factor;
  factor.g = *std::move(g);
  if (keeps) {
    factor.kept.pattern = CopyPattern(context, factor.g);
    factor.gt = Transpose(context, factor.g, factor.kept.transposed);
  } else {
    factor.gt = Transpose(context, factor.g);
  }
  SetStep(context, a, by_nodes, factor);
  return factor;
}

std::optional<SmootherFactor> MakeFactorOn(Context& context, const RowMatrix& a,
                                           const NodeMatrix* by_nodes, const KeptFactor& known,
                                           const kernels::AmgOptions& options,
                                           const Caller& caller) {
  RowMatrix pattern = CopyPattern(context, known.pattern);
  const FsaiPattern lower{std::move(pattern.col_ptr), std::move(pattern.row_idx)};
  std::optional<RowMatrix> g = MakeG(context, a, &lower, options, caller);
  if (!g || g->nnz != known.pattern.nnz) return std::nullopt;
  SmootherFactor factor;
  factor.g = *std::move(g);
  factor.gt = TransposeOn(context, factor.g, known.transposed);
  SetStep(context, a, by_nodes, factor);
  return factor;
}

}  // namespace spaid::cuda
