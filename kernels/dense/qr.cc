#include "kernels/dense/qr.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/dense/simd.h"

namespace spaid::kernels {
namespace {

SPAID_INLINE double Sum(const Vec8& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

SPAID_INLINE double SquaredNorm(const double* x, int64_t begin, int64_t end) {
  const auto* v = reinterpret_cast<const Vec8*>(x);
  Vec8 sum0 = {}, sum1 = {};
  int64_t s = begin / kLanes;
  const int64_t stop = (end + kLanes - 1) / kLanes;
  for (; s + 1 < stop; s += 2) {
    sum0 += v[s] * v[s];
    sum1 += v[s + 1] * v[s + 1];
  }
  if (s < stop) sum0 += v[s] * v[s];
  return Sum(sum0 + sum1);
}

// Applies I − tau v vᵀ to `Columns` columns at once; v is zero outside the segments.
template <int Columns>
SPAID_INLINE void Reflect(int64_t first, int64_t stop, int64_t ld, const double* v, double tau,
                          double* c) {
  const auto* reflector = reinterpret_cast<const Vec8*>(v);
  Vec8 dot[Columns] = {};
  for (int64_t s = first; s < stop; ++s) {
    const Vec8 x = reflector[s];
    for (int k = 0; k < Columns; ++k) {
      dot[k] += x * reinterpret_cast<const Vec8*>(c + k * ld)[s];
    }
  }
  double factor[Columns];
  for (int k = 0; k < Columns; ++k) factor[k] = tau * Sum(dot[k]);
  for (int64_t s = first; s < stop; ++s) {
    const Vec8 x = reflector[s];
    for (int k = 0; k < Columns; ++k) {
      reinterpret_cast<Vec8*>(c + k * ld)[s] -= x * factor[k];
    }
  }
}

// Makes column j a reflector over rows [j, end): moves R(0:j, j) to `r`, leaves v with zeros above
// row j, applies it to the columns right of j. False where the rest of the column is not over
// `smallest` or not finite.
SPAID_INLINE bool Eliminate(const QrShape& shape, int64_t j, int64_t end, double smallest,
                            double* a, double* r) {
  double* v = a + j * shape.ld;
  for (int64_t i = 0; i < j; ++i) {
    r[j * shape.ldr + i] = v[i];
    v[i] = 0;
  }
  const double norm = std::sqrt(SquaredNorm(v, j, end));
  if (!(norm > smallest) || !std::isfinite(norm)) return false;
  const double alpha = v[j] > 0 ? -norm : norm;
  r[j * shape.ldr + j] = alpha;
  v[j] -= alpha;
  const double tau = 1 / (norm * std::abs(v[j]));  // 2 / vᵀv, and vᵀv = 2 norm |v_j|
  const int64_t first = j / kLanes, stop = (end + kLanes - 1) / kLanes;
  int64_t c = j + 1;
  for (; c + 4 <= shape.n_total; c += 4)
    Reflect<4>(first, stop, shape.ld, v, tau, a + c * shape.ld);
  for (; c < shape.n_total; ++c) Reflect<1>(first, stop, shape.ld, v, tau, a + c * shape.ld);
  return true;
}

}  // namespace

SPAID_HOT_KERNEL
int64_t HouseholderQr(const QrShape& shape, double* a, const int64_t* row_end, double* r,
                      double tolerance) {
  for (int64_t j = 0; j < shape.n_factor; ++j) {
    // Reflections keep norms, so the original norm is that of the whole column now.
    const double original = std::sqrt(SquaredNorm(a + j * shape.ld, 0, shape.rows));
    const int64_t end = row_end ? row_end[j] : shape.rows;
    if (j >= end || !Eliminate(shape, j, end, tolerance * original, a, r)) return j;
  }
  return -1;
}

SPAID_HOT_KERNEL
int64_t PivotedQr(const QrShape& shape, double* a, double* r, int64_t* permutation,
                  double tolerance) {
  for (int64_t j = 0; j < shape.n_factor; ++j) permutation[j] = j;
  double largest = -1;
  const int64_t steps = std::min(shape.rows, shape.n_factor);
  for (int64_t j = 0; j < steps; ++j) {
    int64_t pivot = j;
    double best = -1;
    for (int64_t c = j; c < shape.n_factor; ++c) {
      // Rows above j belong to R already: leave them out of the norm.
      const double* column = a + c * shape.ld;
      const int64_t aligned = std::min(PadToLanes(j), shape.rows);
      double squared = aligned < shape.rows ? SquaredNorm(column, aligned, shape.rows) : 0;
      for (int64_t i = j; i < aligned; ++i) squared += column[i] * column[i];
      if (!std::isfinite(squared)) return -1;
      if (squared > best) {
        best = squared;
        pivot = c;
      }
    }
    if (j == 0) largest = std::sqrt(best);
    if (!(std::sqrt(best) > tolerance * largest)) return j;
    if (pivot != j) {
      std::swap_ranges(a + j * shape.ld, a + j * shape.ld + shape.rows, a + pivot * shape.ld);
      std::swap(permutation[j], permutation[pivot]);
    }
    if (!Eliminate(shape, j, shape.rows, 0, a, r)) return j;
  }
  return steps;
}

SPAID_HOT_KERNEL
void UpperSolve(int64_t n, int64_t ldr, const double* r, double* x) {
  for (int64_t j = n - 1; j >= 0; --j) {
    const double* column = r + j * ldr;
    const double t = x[j] /= column[j];
    for (int64_t i = 0; i < j; ++i) x[i] -= column[i] * t;
  }
}

}  // namespace spaid::kernels
