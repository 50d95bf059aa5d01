#include "kernels/dense/lu.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/dense/simd.h"

namespace spaid::kernels {
namespace {

// Columns that are eliminated before the rest is updated; a multiple of kNarrow.
constexpr int64_t kPanel = 64;
// Columns that are eliminated one by one.
constexpr int64_t kNarrow = 8;
// Columns of one piece of parallel work.
constexpr int64_t kStrip = kPanel;
constexpr int64_t kRows = 1024;  // of one piece of a product with a panel

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

// x := U⁻¹ x, U upper triangular.
SPAID_HOT_KERNEL
void SolveUpper(int64_t order, const double* u, int64_t ldu, double* x) {
  for (int64_t p = order - 1; p >= 0; --p) {
    const double t = x[p] / u[p + p * ldu];
    x[p] = t;
    for (int64_t i = 0; i < p; ++i) x[i] -= u[i + p * ldu] * t;
  }
}

// y −= A x, with y of at most kRows numbers in the cache.
SPAID_HOT_KERNEL
void SubtractColumns(int64_t rows, int64_t columns, const double* a, int64_t lda, const double* x,
                     double* y) {
  for (int64_t begin = 0; begin < rows; begin += kRows) {
    const int64_t end = std::min(begin + kRows, rows);
    for (int64_t p = 0; p < columns; ++p) {
      const double t = x[p];
      for (int64_t i = begin; i < end; ++i) y[i] -= a[i + p * lda] * t;
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
      : n_(n),
        np_(PadToLanes(n)),
        ld_(PaddedLeadingDimension(n)),
        context_(context),
        progress_(std::exchange(context_.progress, nullptr)) {
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
      if (progress_ != nullptr) progress_->OnProgress(Stage::kBuild, std::min(end, n_), n_);
    }
    return -1;
  }

  int64_t bytes() const { return 8 * ld_ * np_; }

  // x := U⁻¹ L⁻¹ P x of np() numbers.
  void Solve(double* x, int threads) const {
    for (int64_t k = 0; k < n_; ++k) std::swap(x[k], x[pivots_[Z(k)]]);
    for (int64_t k = 0; k < np_; k += kPanel) {
      const int64_t end = std::min(k + kPanel, np_);
      SolveUnitLower(end - k, 1, lu + k + k * ld_, ld_, x + k, ld_);
      SubtractPanel(k, end, end, np_, threads, x);
    }
    for (int64_t k = (np_ - 1) / kPanel * kPanel; k >= 0; k -= kPanel) {
      const int64_t end = std::min(k + kPanel, np_);
      SolveUpper(end - k, lu + k + k * ld_, ld_, x + k);
      SubtractPanel(k, end, 0, k, threads, x);
    }
  }

  double* lu;

 private:
  // x_i −= Σ a_ip x_p over the panel's columns p, for rows from `begin` to `end`.
  void SubtractPanel(int64_t first, int64_t last, int64_t begin, int64_t end, int threads,
                     double* x) const {
    ParallelFor((end - begin + kRows - 1) / kRows, 1, threads, [&](int64_t from, int64_t to, int) {
      const int64_t top = begin + from * kRows;
      SubtractColumns(std::min(begin + to * kRows, end) - top, last - first, lu + top + first * ld_,
                      ld_, x + first, x + top);
    });
  }

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
  ProgressSink* const progress_;
  AlignedBuffer buffer_;
  std::vector<int64_t> pivots_;
};

int ExponentToOne(double largest) { return largest > 0 ? -std::ilogb(largest) : 0; }

// Powers of two that bring the largest elements of rows, then of columns, to [1, 2).
void PowersToOne(int64_t n, const double* a, int64_t ld, std::vector<int>& row,
                 std::vector<int>& column) {
  std::vector<double> largest(Z(n), 0.0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      largest[Z(i)] = std::max(largest[Z(i)], std::abs(a[i + j * ld]));
    }
  }
  row.resize(Z(n));
  column.resize(Z(n));
  for (int64_t i = 0; i < n; ++i) row[Z(i)] = ExponentToOne(largest[Z(i)]);
  for (int64_t j = 0; j < n; ++j) {
    int exponent = INT32_MIN;
    for (int64_t i = 0; i < n; ++i) {
      if (const double v = a[i + j * ld]; v != 0) {
        exponent = std::max(exponent, std::ilogb(v) + row[Z(i)]);
      }
    }
    column[Z(j)] = exponent == INT32_MIN ? 0 : -exponent;
  }
}

// The largest |x_i| of each column j up to the row `rows(j)`.
template <class Rows>
double LargestOf(int64_t n, const double* a, int64_t ld, const Rows& rows) {
  double largest = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < rows(j); ++i) largest = std::max(largest, std::abs(a[i + j * ld]));
  }
  return largest;
}

}  // namespace

struct DenseLu::Parts {
  Parts(int64_t n, const Context& context) : factors(n, context) {}
  Factorization factors;
  std::vector<int> row, column;  // A is factored as 2^row A 2^column
};

DenseLu::DenseLu(int64_t n, std::unique_ptr<Parts> parts) : n_(n), parts_(std::move(parts)) {}
DenseLu::DenseLu(DenseLu&&) noexcept = default;
DenseLu& DenseLu::operator=(DenseLu&&) noexcept = default;
DenseLu::~DenseLu() = default;

int64_t DenseLu::bytes() const { return parts_->factors.bytes(); }

Result<DenseLu> DenseLu::Factor(int64_t n, const std::function<void(int64_t, double*)>& fill,
                                const Context& context) {
  return GuardMemory("dense LU", [&]() -> Result<DenseLu> {
    auto parts = std::make_unique<Parts>(n, context);
    Factorization& factors = parts->factors;
    const int64_t np = factors.np(), ld = factors.ld();
    ParallelFor(np, kNarrow, context.threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t j = begin; j < end; ++j) {
        std::fill_n(factors.lu + j * ld, ld, 0.0);
        if (j < n) {
          fill(j, factors.lu + j * ld);
        } else {
          factors.lu[j + j * ld] = 1;
        }
      }
    });
    PowersToOne(n, factors.lu, ld, parts->row, parts->column);
    ParallelFor(n, kNarrow, context.threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t j = begin; j < end; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          double& v = factors.lu[i + j * ld];
          if (v != 0) v = std::ldexp(v, parts->row[Z(i)] + parts->column[Z(j)]);
        }
      }
    });
    const double before = LargestOf(n, factors.lu, ld, [n](int64_t) { return n; });
    StopReason stopped = StopReason::kNone;
    const int64_t bad = factors.Factor(stopped);
    if (stopped != StopReason::kNone) return StopStatus(stopped, "LU of a dense matrix");
    if (bad >= 0) {
      return Status(StatusCode::kFailedPrecondition, "SINGULAR_MATRIX",
                    "the dense matrix is singular: column " + std::to_string(bad) +
                        " depends on those before it; change the matrix, or remove that unknown")
          .At("pivot", bad);
    }
    DenseLu out(n, std::move(parts));
    out.growth_ = LargestOf(n, factors.lu, ld, [](int64_t j) { return j + 1; }) / before;
    return out;
  });
}

void DenseLu::Solve(std::span<const double> b, std::span<double> x, int threads) const {
  const Factorization& factors = parts_->factors;
  AlignedBuffer buffer;
  double* const y = buffer.Ensure(factors.np());
  std::fill(y + n_, y + factors.np(), 0.0);
  for (int64_t i = 0; i < n_; ++i) y[i] = std::ldexp(b[Z(i)], parts_->row[Z(i)]);
  factors.Solve(y, threads);
  for (int64_t j = 0; j < n_; ++j) x[Z(j)] = std::ldexp(y[j], parts_->column[Z(j)]);
}

}  // namespace spaid::kernels
