#include "kernels/dense/lu_inverse.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/dense/simd.h"
#include "kernels/dense/symmetric.h"

namespace spaid::kernels {
namespace {

// Columns that are eliminated before the rest is updated; a multiple of kNarrow.
constexpr int64_t kPanel = 64;
// Columns that are eliminated one by one.
constexpr int64_t kNarrow = 8;
// Columns of one piece of parallel work.
constexpr int64_t kStrip = kPanel;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// C −= A B for `Segments` vectors of rows and `Columns` columns; A packed, B and C by columns.
template <int Segments, int Columns>
SPAID_INLINE void SubtractTile(int64_t depth, const double* packed, const double* b, int64_t ldb,
                               double* c, int64_t ldc) {
  Vec8 sum[Columns][Segments] = {};
  const auto* rows = reinterpret_cast<const Vec8*>(packed);
  for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) {
#pragma GCC unroll 2
      for (int s = 0; s < Segments; ++s) sum[j][s] += rows[k * Segments + s] * b[k + j * ldb];
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < Columns; ++j) {
#pragma GCC unroll 2
    for (int s = 0; s < Segments; ++s) reinterpret_cast<Vec8*>(c + j * ldc)[s] -= sum[j][s];
  }
}

template <int Segments, int Columns>
SPAID_INLINE void SubtractRows(int64_t depth, int64_t columns, const double* packed,
                               const double* b, int64_t ldb, double* c, int64_t ldc) {
  for (int64_t j = 0; j < columns; j += Columns) {
    SubtractTile<Segments, Columns>(depth, packed, b + j * ldb, ldb, c + j * ldc, ldc);
  }
}

template <int Segments, int Columns>
SPAID_INLINE void SubtractAll(int64_t rows, int64_t columns, int64_t depth, const double* a,
                              int64_t lda, const double* b, int64_t ldb, double* c, int64_t ldc) {
  // Rows of A stand together while all columns of B go over them.
  alignas(64) double packed[Segments * kLanes * kPanel];
  int64_t i = 0;
  for (; i + Segments * kLanes <= rows; i += Segments * kLanes) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int s = 0; s < Segments; ++s) {
        reinterpret_cast<Vec8*>(packed)[k * Segments + s] =
            *reinterpret_cast<const Vec8*>(a + k * lda + i + s * kLanes);
      }
    }
    SubtractRows<Segments, Columns>(depth, columns, packed, b, ldb, c + i, ldc);
  }
  for (; i < rows; i += kLanes) {
    for (int64_t k = 0; k < depth; ++k) {
      reinterpret_cast<Vec8*>(packed)[k] = *reinterpret_cast<const Vec8*>(a + k * lda + i);
    }
    SubtractRows<1, Columns>(depth, columns, packed, b, ldb, c + i, ldc);
  }
}

// Sums stay in registers: 32 of 64 bytes with AVX-512, else 16 of 32 or less.
bool WideRegisters() {
#if defined(__x86_64__) && !defined(SPAID_NO_MULTIVERSIONING)
  static const bool wide = __builtin_cpu_supports("avx512f");
  return wide;
#else
  return false;
#endif
}

// C −= A B; rows and columns are multiples of 8, depth at most kPanel, columns of A and C aligned.
SPAID_HOT_KERNEL
void SubtractProduct(int64_t rows, int64_t columns, int64_t depth, const double* a, int64_t lda,
                     const double* b, int64_t ldb, double* c, int64_t ldc) {
  if (WideRegisters()) {
    SubtractAll<2, 8>(rows, columns, depth, a, lda, b, ldb, c, ldc);
  } else {
    SubtractAll<1, 4>(rows, columns, depth, a, lda, b, ldb, c, ldc);
  }
}

// X := L⁻¹ X, L unit lower triangular of `order`, a multiple of 8, at most kPanel.
SPAID_HOT_KERNEL
void SolveUnitLower(int64_t order, int64_t columns, const double* l, int64_t ldl, double* x,
                    int64_t ldx) {
  for (int64_t k = 0; k < order; k += kNarrow) {
    for (int64_t j = 0; j < columns; ++j) {
      double* const y = x + j * ldx;
      for (int64_t p = k; p < k + kNarrow; ++p) {
        const double t = y[p];
        for (int64_t i = p + 1; i < order; ++i) y[i] -= l[i + p * ldl] * t;
      }
    }
  }
}

// X := U⁻¹ X, U upper triangular.
SPAID_HOT_KERNEL
void SolveUpper(int64_t order, int64_t columns, const double* u, int64_t ldu, double* x,
                int64_t ldx) {
  for (int64_t j = 0; j < columns; ++j) {
    double* const y = x + j * ldx;
    for (int64_t p = order - 1; p >= 0; --p) {
      const double t = y[p] / u[p + p * ldu];
      y[p] = t;
      for (int64_t i = 0; i < p; ++i) y[i] -= u[i + p * ldu] * t;
    }
  }
}

// The largest of |x_begin|, ..., the first of equals; NaN counts as largest.
SPAID_HOT_KERNEL
int64_t PivotRow(int64_t begin, int64_t end, const double* x) {
  double largest = -1;
  for (int64_t i = begin; i < end; ++i) {
    const double size = std::abs(x[i]);
    if (!(size <= largest)) largest = size;
    if (std::isnan(size)) return i;
  }
  for (int64_t i = begin; i < end; ++i) {
    if (std::abs(x[i]) == largest) return i;
  }
  return begin;
}

// Below the pivot: column k over the pivot, and off the columns up to `end`.
SPAID_HOT_KERNEL
void EliminateColumn(int64_t k, int64_t end, int64_t np, double* a, int64_t ld) {
  double* const l = a + k * ld;
  for (int64_t i = k + 1; i < np; ++i) l[i] /= l[k];
  for (int64_t j = k + 1; j < end; ++j) {
    double* const c = a + j * ld;
    const double t = c[k];
    for (int64_t i = k + 1; i < np; ++i) c[i] -= l[i] * t;
  }
}

// Padded to whole vectors, with the identity. Which row stands where only `pivots` says: rows are
// moved as whole rows.
class Factorization {
 public:
  Factorization(int64_t n, const Context& context)
      : n_(n), np_(PadToLanes(n)), ld_(PaddedLeadingDimension(n)), context_(context) {
    context_.progress = nullptr;
    lu = buffer_.Ensure(ld_ * np_);
    pivots_.resize(Z(n));
  }

  int64_t np() const { return np_; }
  int64_t ld() const { return ld_; }

  // The first column without a pivot, or -1.
  int64_t Factor(StopReason& stopped) {
    for (int64_t first = 0; first < np_; first += kPanel) {
      const int64_t end = std::min(first + kPanel, np_);
      if (const int64_t bad = FactorPanel(first, end); bad >= 0) return bad;
      // The same rows of the columns before and behind; those behind are eliminated.
      const int64_t strips = (np_ - 1) / kStrip + 1;
      stopped = ParallelFor(strips, 1, context_, Stage::kPlan, [&](int64_t s, int64_t, int) {
        const int64_t begin = s * kStrip, stop = std::min(begin + kStrip, np_);
        if (begin == first) return;  // the panel itself: strips are as wide
        SwapRows(first, std::min(end, n_), begin, stop);
        if (begin < first) return;
        double* const u = lu + first + begin * ld_;
        SolveUnitLower(end - first, stop - begin, lu + first + first * ld_, ld_, u, ld_);
        SubtractProduct(np_ - end, stop - begin, end - first, lu + end + first * ld_, ld_, u, ld_,
                        lu + end + begin * ld_, ld_);
      });
      if (stopped != StopReason::kNone) return -1;
    }
    return -1;
  }

  // from[i]: the row of A that stands at i in the end.
  std::vector<int64_t> Rows() const {
    std::vector<int64_t> from(Z(n_));
    for (int64_t i = 0; i < n_; ++i) from[Z(i)] = i;
    for (int64_t k = 0; k < n_; ++k) std::swap(from[Z(k)], from[Z(pivots_[Z(k)])]);
    return from;
  }

  // X := U⁻¹ L⁻¹ X, whose rows above `first`, a multiple of kPanel, are zero. Columns: a multiple
  // of 8; leading dimension ld().
  void Solve(int64_t first, int64_t columns, double* x) const {
    for (int64_t k = first; k < np_; k += kPanel) {
      const int64_t end = std::min(k + kPanel, np_);
      SolveUnitLower(end - k, columns, lu + k + k * ld_, ld_, x + k, ld_);
      SubtractProduct(np_ - end, columns, end - k, lu + end + k * ld_, ld_, x + k, ld_, x + end,
                      ld_);
    }
    for (int64_t k = (np_ - 1) / kPanel * kPanel; k >= 0; k -= kPanel) {
      const int64_t end = std::min(k + kPanel, np_);
      SolveUpper(end - k, columns, lu + k + k * ld_, ld_, x + k, ld_);
      SubtractProduct(k, columns, end - k, lu + k * ld_, ld_, x + k, ld_, x, ld_);
    }
  }

  double* lu;

 private:
  void SwapRows(int64_t first, int64_t end, int64_t column, int64_t column_end) {
    for (int64_t j = column; j < column_end; ++j) {
      double* const c = lu + j * ld_;
      for (int64_t k = first; k < end; ++k) std::swap(c[k], c[pivots_[Z(k)]]);
    }
  }

  int64_t FactorPanel(int64_t first, int64_t end) {
    for (int64_t k = first; k < end; k += kNarrow) {
      const int64_t narrow_end = std::min(k + kNarrow, end);
      for (int64_t c = k; c < std::min(narrow_end, n_); ++c) {
        const int64_t pivot = PivotRow(c, n_, lu + c * ld_);
        pivots_[Z(c)] = pivot;
        const double value = lu[pivot + c * ld_];
        if (value == 0 || !std::isfinite(value)) return c;
        for (int64_t j = first; pivot != c && j < end; ++j) {
          std::swap(lu[c + j * ld_], lu[pivot + j * ld_]);
        }
        EliminateColumn(c, narrow_end, np_, lu, ld_);
      }
      if (narrow_end == end) break;
      double* const u = lu + k + narrow_end * ld_;
      SolveUnitLower(kNarrow, end - narrow_end, lu + k + k * ld_, ld_, u, ld_);
      SubtractProduct(np_ - narrow_end, end - narrow_end, kNarrow, lu + narrow_end + k * ld_, ld_,
                      u, ld_, lu + narrow_end + narrow_end * ld_, ld_);
    }
    return -1;
  }

  const int64_t n_, np_, ld_;
  Context context_;
  AlignedBuffer buffer_;
  std::vector<int64_t> pivots_;
};

int ExponentToOne(double largest) { return largest > 0 ? -std::ilogb(largest) : 0; }

// a_ij 2^(row_i + column_j) to largest elements in [1, 2): rows first.
void PowersToOne(int64_t n, const double* a, std::vector<int>& row, std::vector<int>& column) {
  std::vector<double> largest(Z(n), 0.0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      largest[Z(i)] = std::max(largest[Z(i)], std::abs(a[i + j * n]));
    }
  }
  row.resize(Z(n));
  column.resize(Z(n));
  for (int64_t i = 0; i < n; ++i) row[Z(i)] = ExponentToOne(largest[Z(i)]);
  for (int64_t j = 0; j < n; ++j) {
    int exponent = INT32_MIN;
    for (int64_t i = 0; i < n; ++i) {
      if (const double v = a[i + j * n]; v != 0) {
        exponent = std::max(exponent, std::ilogb(v) + row[Z(i)]);
      }
    }
    column[Z(j)] = exponent == INT32_MIN ? 0 : -exponent;
  }
}

// Largest and sum of absolute values of each column up to `rows`, NaN if there is one.
struct ColumnSize {
  double largest = 0, sum = 0;
};

ColumnSize SizeOf(int64_t rows, const double* x) {
  ColumnSize size;
  for (int64_t i = 0; i < rows; ++i) {
    size.largest = std::max(size.largest, std::abs(x[i]));
    size.sum += std::abs(x[i]);
  }
  return size;
}

double LargestSum(const std::vector<ColumnSize>& sizes) {
  double largest = 0;
  for (const ColumnSize& size : sizes) {
    if (!(size.sum <= largest)) largest = size.sum;
  }
  return largest;
}

double LargestOf(const std::vector<ColumnSize>& sizes) {
  double largest = 0;
  for (const ColumnSize& size : sizes) largest = std::max(largest, size.largest);
  return largest;
}

Result<LuInverse> Invert(int64_t n, double* a, const Context& context) {
  std::vector<int> row, column;
  PowersToOne(n, a, row, column);
  const bool symmetric = IsSymmetric(n, a);
  Factorization factors(n, context);
  const int64_t np = factors.np(), ld = factors.ld();
  std::vector<ColumnSize> sizes(Z(n));
  ParallelFor(np, kNarrow, context.threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      double* const c = factors.lu + j * ld;
      std::fill_n(c, ld, 0.0);
      if (j >= n) {
        c[j] = 1;
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        c[i] = std::ldexp(a[i + j * n], row[Z(i)] + column[Z(j)]);
      }
      sizes[Z(j)] = SizeOf(n, c);
    }
  });
  const double norm = LargestSum(sizes), largest = LargestOf(sizes);
  StopReason stopped = StopReason::kNone;
  const int64_t bad = factors.Factor(stopped);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the inverse of a dense matrix");
  if (bad >= 0) {
    return Status(StatusCode::kFailedPrecondition, "SINGULAR_MATRIX",
                  "the dense matrix is singular: column " + std::to_string(bad) +
                      " depends on those before it; change the matrix, or remove that unknown")
        .At("pivot", bad);
  }
  LuInverse out;
  for (int64_t j = 0; j < n; ++j) sizes[Z(j)] = SizeOf(j + 1, factors.lu + j * ld);
  out.growth = LargestOf(sizes) / largest;

  // Column c of L⁻¹ P begins at the row c: from the columns of the inverse, where it goes. (R A
  // C)⁻¹ = C⁻¹ A⁻¹ R⁻¹.
  const std::vector<int64_t> from = factors.Rows();
  std::vector<AlignedBuffer> strips(Z(ResolveThreads(context.threads)));
  Context quiet = context;
  quiet.progress = nullptr;
  stopped = ParallelFor((n - 1) / kStrip + 1, 1, quiet, Stage::kPlan,
                        [&](int64_t strip, int64_t, int worker) {
                          const int64_t first = strip * kStrip, end = std::min(first + kStrip, n);
                          double* const x = strips[Z(worker)].Ensure(ld * kStrip);
                          std::fill_n(x, ld * kStrip, 0.0);
                          for (int64_t c = first; c < end; ++c) x[c + (c - first) * ld] = 1;
                          factors.Solve(first, PadToLanes(end - first), x);
                          for (int64_t c = first; c < end; ++c) {
                            const double* const y = x + (c - first) * ld;
                            const int64_t j = from[Z(c)];
                            sizes[Z(j)] = SizeOf(n, y);
                            for (int64_t i = 0; i < n; ++i) {
                              a[i + j * n] = std::ldexp(y[i], column[Z(i)] + row[Z(j)]);
                            }
                          }
                        });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the inverse of a dense matrix");
  out.condition = norm * LargestSum(sizes);
  if (symmetric) {
    ParallelFor(n, kStrip, context.threads,
                [&](int64_t begin, int64_t end, int) { Symmetrize(n, begin, end, a); });
  }
  return out;
}

}  // namespace

Result<LuInverse> InvertByLu(int64_t n, double* a, const Context& context) {
  return GuardMemory("inverse of a dense matrix", [&] { return Invert(n, a, context); });
}

}  // namespace spaid::kernels
