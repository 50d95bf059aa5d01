#include "kernels/sparse/log_scaling.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spaid::kernels {
namespace {

constexpr int kMaxPasses = 50;
constexpr double kMisfit = 1.0 / 16;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

bool Counts(double v) { return v != 0 && std::isfinite(v); }

}  // namespace

Result<LogScaling> ScaleLogarithms(const CscView& a, const Context& context) {
  // Unknowns: rows, then columns.
  const size_t rows = Z(a.n_rows), size = rows + Z(a.n_cols);
  std::vector<double> x(size, 0.0), r(size, 0.0), degree(size, 0.0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const double v = a.values[Z(p)];
      if (!Counts(v)) continue;
      const double log2 = std::log2(std::abs(v));
      for (const size_t k : {Z(a.row_idx[Z(p)]), rows + Z(j)}) {
        r[k] -= log2;
        degree[k] += 1;
      }
    }
  }
  // Conjugate gradients of the normal equations, whose matrix is the graph's: degrees on the
  // diagonal, a one for each entry. They are singular and consistent.
  std::vector<double> p(size, 0.0), q(size);
  double before = 0;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    if (const StopReason stop = context.stop.Poll(); stop != StopReason::kNone) {
      return StopStatus(stop, "the scaling of the matrix");
    }
    double product = 0;  // rᵀ D⁻¹ r
    for (size_t k = 0; k < size; ++k) {
      if (degree[k] > 0) product += r[k] * r[k] / degree[k];
    }
    if (product <= kMisfit * kMisfit * static_cast<double>(size)) break;
    const double beta = pass == 0 ? 0 : product / before;
    before = product;
    for (size_t k = 0; k < size; ++k) {
      p[k] = (degree[k] > 0 ? r[k] / degree[k] : 0) + beta * p[k];
      q[k] = degree[k] * p[k];
    }
    for (int64_t j = 0; j < a.n_cols; ++j) {
      const double p_j = p[rows + Z(j)];
      double sum = 0;
      for (int64_t e = a.col_ptr[j]; e < a.col_ptr[j + 1]; ++e) {
        if (!Counts(a.values[Z(e)])) continue;
        const size_t i = Z(a.row_idx[Z(e)]);
        sum += p[i];
        q[i] += p_j;
      }
      q[rows + Z(j)] += sum;
    }
    double curvature = 0;
    for (size_t k = 0; k < size; ++k) curvature += p[k] * q[k];
    if (curvature <= 0) break;
    const double alpha = product / curvature;
    for (size_t k = 0; k < size; ++k) {
      x[k] += alpha * p[k];
      r[k] -= alpha * q[k];
    }
  }
  LogScaling out;
  out.row_log2.assign(x.begin(), x.begin() + a.n_rows);
  out.column_log2.assign(x.begin() + a.n_rows, x.end());
  return out;
}

}  // namespace spaid::kernels
