#include "kernels/fsai/fsai_checks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/sparse/symmetry.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kColumns = 2048;  // a batch
constexpr double kNoise = 1e-12;    // relative to a pair, in a diagnosis

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// use(i, a_ij, a_ji) for the entries of column j of A and of Aᵀ, until one is false.
template <class Use>
bool ForPairs(const CscView& a, const CscView& t, int64_t j, const Use& use) {
  const auto rows = a.column(j), mirrors = t.column(j);
  const auto values = a.column_values(j), mirrored = t.column_values(j);
  size_t p = 0, q = 0;
  while (p < rows.size() || q < mirrors.size()) {
    const bool left = q == mirrors.size() || (p < rows.size() && rows[p] <= mirrors[q]);
    const bool right = p == rows.size() || (q < mirrors.size() && mirrors[q] <= rows[p]);
    const int64_t i = left ? rows[p] : mirrors[q];
    if (!use(i, left ? values[p] : 0.0, right ? mirrored[q] : 0.0)) return false;
    p += left ? 1 : 0;
    q += right ? 1 : 0;
  }
  return true;
}

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

Status NotSymmetric(const CscView& a, const CscView& t, const Array<double>& diagonal,
                    double tolerance, int threads) {
  const int64_t none = a.n_cols;
  std::atomic<int64_t> first{none};
  const auto fits = [&](int64_t j, int64_t i, double v, double w) {
    // Square roots apart: the product of two diagonal entries may leave the range.
    return std::abs(v - w) <= tolerance * std::sqrt(diagonal[Z(i)]) * std::sqrt(diagonal[Z(j)]);
  };
  ParallelFor(a.n_cols, kColumns, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end && j < first.load(std::memory_order_relaxed); ++j) {
      if (!ForPairs(a, t, j, [&](int64_t i, double v, double w) { return fits(j, i, v, w); })) {
        Lower(first, j);
        return;
      }
    }
  });
  const int64_t j = first.load();
  if (j == none) return {};
  std::string text;
  ForPairs(a, t, j, [&](int64_t i, double v, double w) {
    if (fits(j, i, v, w)) return true;
    text = "A is not symmetric: (" + std::to_string(i) + ", " + std::to_string(j) + ") is " +
           Number(v) + ", (" + std::to_string(j) + ", " + std::to_string(i) + ") is " + Number(w) +
           "; FSAI needs a symmetric positive definite matrix: use static SPAI, or symmetrise";
    return false;
  });
  return Status(StatusCode::kFailedPrecondition, "NOT_SYMMETRIC", text).At("values", j);
}

}  // namespace

Status CheckFsai(const PatternView& a, const FsaiOptions& options) {
  if (a.n_rows != a.n_cols) {
    return Status(StatusCode::kInvalidArgument, "NOT_SQUARE",
                  "the matrix has " + std::to_string(a.n_rows) + " rows and " +
                      std::to_string(a.n_cols) + " columns; FSAI needs a square one")
        .At("n_rows");
  }
  return CheckFsaiOptions(options);
}

Status CheckFsaiOptions(const FsaiOptions& options) {
  return CheckRanges(options, "BAD_FSAI_OPTION");
}

Result<Diagonal> PositiveDiagonal(const CscView& a, int threads) {
  Diagonal diagonal{Array<double>(Z(a.n_cols)), Array<int64_t>(Z(a.n_cols))};
  std::atomic<int64_t> first{a.n_cols};
  ParallelFor(a.n_cols, kColumns, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const auto rows = a.column(j);
      const auto at = std::lower_bound(rows.begin(), rows.end(), j);
      const double v = at == rows.end() || *at != j
                           ? 0
                           : a.column_values(j)[static_cast<size_t>(at - rows.begin())];
      diagonal.values[Z(j)] = v;
      diagonal.at[Z(j)] = a.col_ptr[Z(j)] + (at - rows.begin());
      if (!(v > 0 && v <= std::numeric_limits<double>::max())) {
        Lower(first, j);
        return;
      }
    }
  });
  const int64_t j = first.load();
  if (j == a.n_cols) return Result<Diagonal>(std::move(diagonal));
  return Status(StatusCode::kFailedPrecondition, "NOT_POSITIVE_DEFINITE",
                "diagonal entry " + std::to_string(j) +
                    " is not positive, or not stored: A is not positive definite; use static SPAI "
                    "with BiCGSTAB or GMRES, or -A if all are negative")
      .At("values", j);
}

Result<SymmetricMatrix> CheckSymmetric(const CscView& a, const FsaiOptions& options,
                                       const Context& with_progress) {
  Context context = with_progress;
  context.progress = nullptr;  // a step of something else
  auto diagonal = PositiveDiagonal(a, context.threads);
  if (!diagonal.ok()) return diagonal.status();
  if (const StopReason stopped = context.stop.Poll(); stopped != StopReason::kNone) {
    return StopStatus(stopped, "the test for symmetry");
  }
  const Mirrors mirrors = CompareMirrors(a, context.threads);
  SymmetricMatrix symmetric{a, *std::move(diagonal), mirrors.structurally_symmetric};
  // That is what an assembly leaves: no reason to look twice.
  const bool noise = mirrors.numerically_symmetric && options.symmetry_tolerance >= kNoise;
  if (mirrors.largest_relative > 0 && !noise) {
    const Result<CscMatrix> t = Transpose(a, context);
    if (!t.ok()) return t.status();
    Status status =
        NotSymmetric(a, *t, symmetric.diagonal.values, options.symmetry_tolerance, context.threads);
    if (!status.ok()) return status;
  }
  return Result<SymmetricMatrix>(std::move(symmetric));
}

bool IsSymmetricPattern(const PatternView& a, int threads) {
  std::atomic<bool> symmetric{true};
  std::atomic<int64_t> below{0}, above{0};
  ParallelFor(a.n_cols, kColumns, threads, [&](int64_t begin, int64_t end, int) {
    int64_t own_below = 0, own_above = 0;
    for (int64_t j = begin; j < end && symmetric.load(std::memory_order_relaxed); ++j) {
      for (const int32_t i : a.column(j)) {
        if (i < j) ++own_above;
        if (i <= j) continue;
        ++own_below;
        const auto row = a.column(i);
        if (!std::binary_search(row.begin(), row.end(), static_cast<int32_t>(j))) {
          symmetric.store(false, std::memory_order_relaxed);
          return;
        }
      }
    }
    below.fetch_add(own_below);
    above.fetch_add(own_above);
  });
  return symmetric && below == above;
}

Status CheckLowerPattern(const PatternView& pattern, int64_t n) {
  if (pattern.n_rows != n || pattern.n_cols != n) {
    return Status(StatusCode::kInvalidArgument, "PATTERN_SIZE_MISMATCH",
                  "the pattern is " + std::to_string(pattern.n_rows) + " x " +
                      std::to_string(pattern.n_cols) + ", the matrix " + std::to_string(n) + " x " +
                      std::to_string(n))
        .At("pattern");
  }
  for (int64_t i = 0; i < n; ++i) {
    const auto row = pattern.column(i);
    if (!row.empty() && row.back() == i) continue;
    return Status(StatusCode::kInvalidArgument, "PATTERN_NOT_LOWER",
                  "row " + std::to_string(i) +
                      " of the pattern does not end with its diagonal entry; G is lower "
                      "triangular: give its rows with indices up to the diagonal, which is in")
        .At("pattern", i);
  }
  return {};
}

}  // namespace spaid::kernels
