#include "kernels/engine/jacobi.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/residual_quantiles.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kColumnsPerBatch = 4096;

double DiagonalOf(const CscView& a, int64_t k) {
  const auto rows = a.column(k);
  const auto at = std::lower_bound(rows.begin(), rows.end(), static_cast<int32_t>(k));
  if (at == rows.end() || *at != k) return 0;
  return a.column_values(k)[static_cast<size_t>(at - rows.begin())];
}

// ‖A(:, k) m − e_k‖₂; entries can be huge against the diagonal, so the squares are scaled.
double ResidualNorm(const CscView& a, int64_t k, double m) {
  const auto rows = a.column(k);
  const auto values = a.column_values(k);
  double largest = 0;
  for (size_t p = 0; p < rows.size(); ++p) {
    const double r = values[p] * m - (rows[p] == k ? 1.0 : 0.0);
    largest = std::max(largest, std::abs(r));
  }
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double sum = 0;
  for (size_t p = 0; p < rows.size(); ++p) {
    const double r = (values[p] * m - (rows[p] == k ? 1.0 : 0.0)) / largest;
    sum += r * r;
  }
  return largest * std::sqrt(sum);
}

}  // namespace

Occurrence UninvertibleDiagonal(const CscView& a) {
  Occurrence found;
  for (int64_t k = 0; k < a.n_cols; ++k) {
    if (!std::isfinite(1 / DiagonalOf(a, k)) && found.count++ == 0) found.first = k;
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
  m.col_ptr[0] = 0;
  const StopReason stop = ParallelFor(n, kColumnsPerBatch, context, Stage::kBuild,
                                      [&](int64_t begin, int64_t end, int) {
                                        for (int64_t k = begin; k < end; ++k) {
                                          m.col_ptr[k + 1] = k + 1;
                                          m.row_idx[k] = static_cast<int32_t>(k);
                                          m.values[k] = 1 / DiagonalOf(a, k);
                                          norms[k] = ResidualNorm(a, k, m.values[k]);
                                        }
                                      });
  if (stop != StopReason::kNone) return StopStatus(stop, "the Jacobi build");

  Occurrence zero;
  for (int64_t k = 0; k < n; ++k) {
    if (!std::isfinite(m.values[k]) && zero.count++ == 0) zero.first = k;
  }
  if (zero.count > 0) {
    return Status(
               StatusCode::kFailedPrecondition, "ZERO_DIAGONAL",
               std::to_string(zero.count) + " of " + std::to_string(n) +
                   " diagonal entries are zero, not stored, or too small to invert, the first in "
                   "column " +
                   std::to_string(zero.first) +
                   ": Jacobi cannot divide by them; use static SPAI with row_match or ensure_row")
        .At("values", zero.first);
  }
  result.quality = JacobiQuality(a, norms, n, context);
  return result;
}

Quality JacobiQuality(const CscView& a, const Array<double>& norms, int64_t nnz_m,
                      const Context& context) {
  Quality quality;
  double worst = -1, sum = 0;
  for (int64_t k = 0; k < a.n_cols; ++k) {
    if (norms[k] > worst) {
      worst = norms[k];
      quality.worst_column = k;
    }
    sum += norms[k] * norms[k];
  }
  quality.residual_frobenius = std::sqrt(sum);
  quality.residual_quantiles = ResidualQuantiles(norms, context.threads);
  quality.density = a.nnz() > 0 ? static_cast<double>(nnz_m) / static_cast<double>(a.nnz()) : 0;
  return quality;
}

}  // namespace spaid::kernels
