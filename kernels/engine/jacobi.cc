#include "kernels/engine/jacobi.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/jacobi_column.h"
#include "kernels/static_spai/residual_quantiles.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kColumnsPerBatch = 4096;

}  // namespace

Occurrence UninvertibleDiagonal(const CscView& a) {
  Occurrence found;
  for (int64_t k = 0; k < a.n_cols; ++k) {
    if (!std::isfinite(1 / EntryOf(a, k, k)) && found.count++ == 0) found.first = k;
  }
  return found;
}

Result<JacobiResult> BuildJacobi(const CscView& a, const Context& context) {
  const int64_t n = a.n_cols;
  JacobiResult result;
  CscMatrix& m = result.m;
  m.n_rows = m.n_cols = n;
  m.col_ptr.resize(static_cast<size_t>(n) + 1);
  m.row_idx.resize(static_cast<size_t>(n));
  m.values.resize(static_cast<size_t>(n));
  Array<double> norms(static_cast<size_t>(n));
  std::atomic<bool> all_finite = true;
  m.col_ptr[0] = 0;
  const StopReason stop = ParallelFor(n, kColumnsPerBatch, context, Stage::kBuild,
                                      [&](int64_t begin, int64_t end, int) {
                                        for (int64_t k = begin; k < end; ++k) {
                                          m.col_ptr[k + 1] = k + 1;
                                          m.row_idx[k] = static_cast<int32_t>(k);
                                          m.values[k] = 1 / EntryOf(a, k, k);
                                          norms[k] = JacobiResidual(a, k, k, m.values[k]);
                                          if (!std::isfinite(m.values[k])) all_finite = false;
                                        }
                                      });
  if (stop != StopReason::kNone) return StopStatus(stop, "the Jacobi build");

  if (!all_finite) {
    const Occurrence zero = UninvertibleDiagonal(a);
    return ZeroDiagonal(zero.count, n, zero.first);
  }
  result.quality = JacobiQuality(a, norms, n, context);
  return result;
}

BuildWork WorkOfJacobi(const PatternView& a) {
  const auto n = static_cast<double>(a.n_cols), nnz = static_cast<double>(a.nnz());
  return {.rows = n, .nnz_a = nnz, .entries = n, .flops = 4 * nnz};
}

Quality JacobiQuality(const CscView& a, const Array<double>& norms, int64_t nnz_m,
                      const Context& context) {
  Quality quality;
  struct Part {
    double worst = -1, sum = 0;
    int64_t at = -1;
  };
  std::vector<Part> parts(
      static_cast<size_t>((a.n_cols + kColumnsPerBatch - 1) / kColumnsPerBatch));
  ParallelFor(a.n_cols, kColumnsPerBatch, context.threads, [&](int64_t begin, int64_t end, int) {
    Part& part = parts[static_cast<size_t>(begin / kColumnsPerBatch)];
    for (int64_t k = begin; k < end; ++k) {
      if (norms[k] > part.worst) {
        part.worst = norms[k];
        part.at = k;
      }
      part.sum += norms[k] * norms[k];
    }
  });
  double worst = -1, sum = 0;
  for (const Part& part : parts) {
    if (part.worst > worst) {
      worst = part.worst;
      quality.worst_column = part.at;
    }
    sum += part.sum;
  }
  quality.residual_frobenius = std::sqrt(sum);
  quality.residual_quantiles = ResidualQuantiles(norms, context.threads);
  quality.density = a.nnz() > 0 ? static_cast<double>(nnz_m) / static_cast<double>(a.nnz()) : 0;
  return quality;
}

}  // namespace spaid::kernels
