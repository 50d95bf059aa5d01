#include "kernels/dense/inverse.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/dense/cholesky.h"
#include "kernels/dense/simd.h"
#include "kernels/dense/symmetric.h"

namespace spaid::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Norm1(int64_t n, const double* a) {
  double norm = 0;
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::abs(a[i + j * n]);
    norm = std::max(norm, sum);
    if (std::isnan(sum)) return sum;
  }
  return norm;
}

// a_ij 2^(row_i + column_j).
void Scale(int64_t n, const int* row, const int* column, double* a) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) a[i + j * n] = std::ldexp(a[i + j * n], row[i] + column[j]);
  }
}

// The condition number, where `a` (scaled, symmetric, with a positive diagonal) is positive
// definite; else 0, and `a` is as it was.
double InvertByCholesky(int64_t n, double* a) {
  const int64_t np = PadToLanes(n), ld = PaddedLeadingDimension(n);
  alignas(64) double l[kMaxInverse * kMaxInverse];
  alignas(64) double inverse_diagonal[kMaxInverse], x[kMaxInverse * kLanes];
  for (int64_t j = 0; j < np; ++j) {
    for (int64_t i = 0; i < np; ++i) {
      l[i + j * ld] = i < n && j < n ? a[i + j * n] : i == j ? 1.0 : 0.0;
    }
  }
  const double limit = static_cast<double>(n) * std::numeric_limits<double>::epsilon();
  if (!(CholeskyFactor(np, ld, l, inverse_diagonal, limit) > limit)) return 0;
  const double norm = Norm1(n, a);
  for (int64_t first = 0; first < n; first += kLanes) {
    std::fill_n(x, np * kLanes, 0.0);
    for (int64_t w = 0; w < kLanes; ++w) {
      if (first + w < n) x[(first + w) * kLanes + w] = 1;
    }
    CholeskySolve8(n, ld, l, inverse_diagonal, x);
    for (int64_t j = first; j < std::min(first + kLanes, n); ++j) {
      for (int64_t i = j; i < n; ++i) a[i + j * n] = a[j + i * n] = x[i * kLanes + j - first];
    }
  }
  return norm * Norm1(n, a);
}

double InvertByLu(int64_t n, double* a) {
  const double norm = Norm1(n, a);
  double lu[kMaxInverse * kMaxInverse];
  std::copy_n(a, n * n, lu);
  int64_t from[kMaxInverse];  // of the row that stands at i
  for (int64_t i = 0; i < n; ++i) from[i] = i;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (std::abs(lu[i + k * n]) > std::abs(lu[pivot + k * n])) pivot = i;
    }
    if (lu[pivot + k * n] == 0) return kInfinity;
    if (pivot != k) {
      for (int64_t j = 0; j < n; ++j) std::swap(lu[k + j * n], lu[pivot + j * n]);
      std::swap(from[k], from[pivot]);
    }
    for (int64_t i = k + 1; i < n; ++i) lu[i + k * n] /= lu[k + k * n];
    for (int64_t j = k + 1; j < n; ++j) {
      const double u = lu[k + j * n];
      for (int64_t i = k + 1; i < n; ++i) lu[i + j * n] -= lu[i + k * n] * u;
    }
  }
  for (int64_t c = 0; c < n; ++c) {
    double* const x = a + from[c] * n;  // L U x = e_c, of the rows as they stand
    std::fill_n(x, n, 0.0);
    x[c] = 1;
    for (int64_t k = c; k < n; ++k) {
      for (int64_t i = k + 1; i < n; ++i) x[i] -= lu[i + k * n] * x[k];
    }
    for (int64_t k = n - 1; k >= 0; --k) {
      x[k] /= lu[k + k * n];
      for (int64_t i = 0; i < k; ++i) x[i] -= lu[i + k * n] * x[k];
    }
  }
  return norm * Norm1(n, a);
}

}  // namespace

double InvertInPlace(int64_t n, double* a) {
  int row[kMaxInverse], column[kMaxInverse];
  const bool symmetric = IsSymmetric(n, a);
  bool positive = symmetric && n > 1;  // a reciprocal needs no root
  for (int64_t j = 0; j < n; ++j) positive = positive && a[j + j * n] > 0;
  if (positive) {
    // To a diagonal within [1, 4).
    for (int64_t j = 0; j < n; ++j) row[j] = -(std::ilogb(a[j + j * n]) >> 1);
    Scale(n, row, row, a);
    if (const double kappa = InvertByCholesky(n, a); kappa > 0) {
      Scale(n, row, row, a);
      return kappa;
    }
    for (int64_t j = 0; j < n; ++j) column[j] = row[j];
  } else {
    // Largest elements of rows, then of columns, to within [1, 2).
    std::fill_n(column, n, 0);
    for (int64_t i = 0; i < n; ++i) {
      double largest = 0;
      for (int64_t j = 0; j < n; ++j) largest = std::max(largest, std::abs(a[i + j * n]));
      if (largest == 0) return kInfinity;
      row[i] = -std::ilogb(largest);
    }
    Scale(n, row, column, a);
    for (int64_t j = 0; j < n; ++j) {
      double largest = 0;
      for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(a[i + j * n]));
      if (largest == 0) return kInfinity;
      column[j] = -std::ilogb(largest);
      for (int64_t i = 0; i < n; ++i) a[i + j * n] = std::ldexp(a[i + j * n], column[j]);
    }
  }
  const double kappa = InvertByLu(n, a);
  // (R A C)⁻¹ = C⁻¹ A⁻¹ R⁻¹.
  Scale(n, column, row, a);
  if (symmetric) Symmetrize(n, 0, n, a);
  return kappa;
}

}  // namespace spaid::kernels
