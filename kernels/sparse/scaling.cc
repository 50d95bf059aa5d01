#include "kernels/sparse/scaling.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/log_scaling.h"
#include "kernels/sparse/product_matching.h"

namespace spaid::kernels {
namespace {

// Norms that differ by more (in powers of two) are worth an equilibration.
constexpr double kSpreadWorthScaling = 4;
// Spread that may come on top before a kept scaling is given up.
constexpr double kSpreadAllowed = 10;
// One weak column in so many is left alone.
constexpr int64_t kColumnsPerWeak = 100;

constexpr int64_t kEntriesPerBatch = int64_t{1} << 15;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

int64_t ColumnsPerBatch(const PatternView& a) {
  return std::max<int64_t>(1, a.n_cols * kEntriesPerBatch / std::max<int64_t>(1, a.nnz()));
}

double PowerOfTwo(double log2) {
  constexpr double kLimit = std::numeric_limits<double>::max_exponent - 2;  // the reciprocal, too
  return std::ldexp(1.0, static_cast<int>(std::clamp(std::round(log2), -kLimit, kLimit)));
}

// A factor, a power of two, by another one, in the range of both.
double Product(double factor, double log2) { return PowerOfTwo(std::log2(factor) + log2); }

// v r c, r and c powers of two: exact wherever the result is a normal number.
double Scaled(double v, double r, double c) {
  const double factor = r * c;
  if (factor >= std::numeric_limits<double>::min() &&
      factor <= std::numeric_limits<double>::max()) {
    return v * factor;
  }
  return v * r * c;  // both are large, or both small
}

int64_t ColumnAt(const Scaling& s, int64_t k) {
  return s.column_of_row.empty() ? k : s.column_of_row[Z(k)];
}
double RowFactor(const Scaling& s, int64_t i) { return s.row.empty() ? 1 : s.row[Z(i)]; }
double ColumnFactor(const Scaling& s, int64_t k) { return s.column.empty() ? 1 : s.column[Z(k)]; }

bool IsIdentity(const Array<int32_t>& order) {
  for (int64_t k = 0; k < std::ssize(order); ++k) {
    if (order[Z(k)] != k) return false;
  }
  return true;
}

bool AllOnes(const Array<double>& factors) {
  return std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1; });
}

Context Quiet(const Context& context) {
  Context quiet = context;
  quiet.progress = nullptr;  // a step of something else
  return quiet;
}

Status Measure(const CscView& a, const Context& context, Scaling& s) {
  const auto norms = MeasureNorms(a, s.row, s.column, s.column_of_row, context);
  if (!norms.ok()) return norms.status();
  s.norms = *norms;
  return {};
}

// Leaves nothing of a scaling that does nothing.
Status Finish(const CscView& a, const Context& context, Scaling& s) {
  if (IsIdentity(s.column_of_row)) s.column_of_row = {};
  if (s.column_of_row.empty() && AllOnes(s.row) && AllOnes(s.column)) {
    s.row = {};
    s.column = {};
    s.kind = ScalingMode::kNone;
  }
  return Measure(a, context, s);
}

// Factors that bring all magnitudes near 1, which do not depend on how A is scaled; further ones
// are chosen from there, for of these there are many.
Result<Scaling> Even(const CscView& a, bool symmetric, const Context& context) {
  auto logarithms = ScaleLogarithms(a, context);
  if (!logarithms.ok()) return logarithms.status();
  Scaling s;
  for (const double log2 : logarithms->row_log2) s.row.push_back(PowerOfTwo(log2));
  for (const double log2 : logarithms->column_log2) s.column.push_back(PowerOfTwo(log2));
  if (symmetric) s.column = s.row;
  return s;
}

Result<Scaling> ByEquilibration(const CscView& a, bool symmetric, const Context& context) {
  auto s = Even(a, symmetric, context);
  if (!s.ok()) return s;
  auto evened = ScaledMatrix(a, *s, context);
  if (!evened.ok()) return evened.status();
  auto equilibration = Equilibrate(*evened, {.symmetric = symmetric}, context);
  if (!equilibration.ok()) return equilibration.status();
  s->kind = ScalingMode::kEquilibrate;
  for (int64_t k = 0; k < a.n_cols; ++k) {
    s->row[Z(k)] = Product(s->row[Z(k)], std::log2(equilibration->row[Z(k)]));
    s->column[Z(k)] = Product(s->column[Z(k)], std::log2(equilibration->column[Z(k)]));
  }
  Status status = Finish(a, context, *s);
  if (!status.ok()) return status;
  return s;
}

Result<Scaling> ByMatching(const CscView& a, const Context& context) {
  auto even = Even(a, /*symmetric=*/false, context);
  if (!even.ok()) return even;
  auto evened = ScaledMatrix(a, *even, context);
  if (!evened.ok()) return evened.status();
  auto matching = MaximumProductMatching(*evened, {}, context);
  if (!matching.ok()) return matching.status();
  const int64_t n = a.n_cols;
  Scaling s;
  s.kind = ScalingMode::kMatching;
  s.row.resize(Z(n));
  s.column.resize(Z(n));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t j = matching->column_of_row[Z(k)];
    s.row[Z(k)] = Product(even->row[Z(k)], matching->row_log2[Z(k)]);
    s.column[Z(k)] = Product(even->column[Z(j)], matching->column_log2[Z(j)]);
    if (matching->row_of_column[Z(j)] < 0 && s.unmatched_rows.count++ == 0) {
      s.unmatched_rows.first = k;
    }
    if (matching->row_of_column[Z(k)] < 0 && s.unmatched_columns.count++ == 0) {
      s.unmatched_columns.first = k;
    }
  }
  s.column_of_row = std::move(matching->column_of_row);
  Status status = Finish(a, context, s);
  if (!status.ok()) return status;
  return s;
}

Result<Scaling> Choose(const CscView& a, const Diagnosis& d, const Context& context) {
  Scaling none;
  Status status = Measure(a, context, none);
  if (!status.ok()) return status;
  const bool symmetric = d.numerically_symmetric;
  const bool spread =
      std::max(none.norms.row_spread(), none.norms.column_spread()) > kSpreadWorthScaling;
  const bool no_diagonal = !symmetric && d.zero_diagonal.count > 0;
  Scaling chosen = std::move(none);
  if (spread && !no_diagonal) {
    auto equilibrated = ByEquilibration(a, symmetric, context);
    if (!equilibrated.ok()) return equilibrated.status();
    chosen = *std::move(equilibrated);
  }
  const bool weak = !symmetric && chosen.norms.weak_diagonals > a.n_cols / kColumnsPerWeak;
  if (!no_diagonal && !weak) return chosen;
  auto matched = ByMatching(a, context);
  if (matched.ok()) return matched;
  if (matched.status().code() != StatusCode::kResourceExhausted) return matched.status();
  if (spread && no_diagonal) {
    auto equilibrated = ByEquilibration(a, symmetric, context);
    if (!equilibrated.ok()) return equilibrated.status();
    chosen = *std::move(equilibrated);
  }
  chosen.matching_too_long = true;
  return chosen;
}

}  // namespace

Result<Scaling> ChooseScaling(const CscView& a, const Diagnosis& d, ScalingMode mode,
                              const Context& context) {
  switch (mode) {
    case ScalingMode::kEquilibrate:
      return ByEquilibration(a, d.numerically_symmetric, context);
    case ScalingMode::kMatching:
      return ByMatching(a, context);
    case ScalingMode::kAuto:
      return Choose(a, d, context);
    case ScalingMode::kNone:
      break;
  }
  Scaling none;
  Status status = Measure(a, context, none);
  if (!status.ok()) return status;
  return none;
}

Result<bool> StillScales(const CscView& a, const Scaling& s, const Context& context) {
  const auto norms = MeasureNorms(a, s.row, s.column, s.column_of_row, context);
  if (!norms.ok()) return norms.status();
  return norms->row_spread() <= s.norms.row_spread() + kSpreadAllowed &&
         norms->column_spread() <= s.norms.column_spread() + kSpreadAllowed &&
         norms->weak_diagonals <= s.norms.weak_diagonals + a.n_cols / kColumnsPerWeak;
}

Result<CscMatrix> ScaledMatrix(const CscView& a, const Scaling& s, const Context& context) {
  CscMatrix b;
  b.n_rows = a.n_rows;
  b.n_cols = a.n_cols;
  b.col_ptr.resize(a.col_ptr.size());
  b.col_ptr[0] = 0;
  for (int64_t k = 0; k < a.n_cols; ++k) {
    const int64_t j = ColumnAt(s, k);
    b.col_ptr[Z(k) + 1] = b.col_ptr[Z(k)] + a.col_ptr[Z(j) + 1] - a.col_ptr[Z(j)];
  }
  b.row_idx.resize(a.row_idx.size());
  b.values.resize(a.values.size());
  const StopReason stopped =
      ParallelFor(a.n_cols, ColumnsPerBatch(a), Quiet(context), Stage::kPlan,
                  [&](int64_t begin, int64_t end, int) {
                    for (int64_t k = begin; k < end; ++k) {
                      const auto rows = a.column(ColumnAt(s, k));
                      std::copy(rows.begin(), rows.end(), b.row_idx.begin() + b.col_ptr[Z(k)]);
                    }
                  });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the scaling of the matrix");
  Status status = ScaledValues(a, s, b.values, context);
  if (!status.ok()) return status;
  return b;
}

Status ScaledValues(const CscView& a, const Scaling& s, std::span<double> values,
                    const Context& context) {
  // Columns of B begin elsewhere if they move.
  Array<int64_t> begin_at;
  if (!s.column_of_row.empty()) {
    begin_at.resize(Z(a.n_cols));
    int64_t sum = 0;
    for (int64_t k = 0; k < a.n_cols; ++k) {
      const int64_t j = ColumnAt(s, k);
      begin_at[Z(k)] = sum;
      sum += a.col_ptr[Z(j) + 1] - a.col_ptr[Z(j)];
    }
  }
  const StopReason stopped = ParallelFor(
      a.n_cols, ColumnsPerBatch(a), Quiet(context), Stage::kPlan,
      [&](int64_t begin, int64_t end, int) {
        for (int64_t k = begin; k < end; ++k) {
          const int64_t j = ColumnAt(s, k);
          const auto rows = a.column(j);
          const auto from = a.column_values(j);
          double* const to = values.data() + (begin_at.empty() ? a.col_ptr[Z(j)] : begin_at[Z(k)]);
          const double c = ColumnFactor(s, k);
          for (size_t p = 0; p < rows.size(); ++p) {
            to[p] = Scaled(from[p], RowFactor(s, rows[p]), c);
          }
        }
      });
  return stopped == StopReason::kNone ? Status() : StopStatus(stopped, "the scaling of the matrix");
}

void ScaleRhs(const Scaling& s, std::span<const double> b, std::span<double> out) {
  for (size_t i = 0; i < b.size(); ++i) out[i] = b[i] * RowFactor(s, static_cast<int64_t>(i));
}

void UnscaleSolution(const Scaling& s, std::span<const double> x, std::span<double> out) {
  for (int64_t k = 0; k < std::ssize(x); ++k) {
    out[Z(ColumnAt(s, k))] = x[Z(k)] * ColumnFactor(s, k);
  }
}

void ScaleGuess(const Scaling& s, std::span<const double> x, std::span<double> out) {
  for (int64_t k = 0; k < std::ssize(x); ++k) {
    out[Z(k)] = x[Z(ColumnAt(s, k))] / ColumnFactor(s, k);
  }
}

Result<CscMatrix> UnscaledInverse(const CscView& m, const Scaling& s, const Context& context) {
  CscMatrix out;
  out.n_rows = m.n_rows;
  out.n_cols = m.n_cols;
  out.col_ptr.resize(m.col_ptr.size());
  out.row_idx.resize(m.row_idx.size());
  out.values.resize(m.values.size());
  ParallelCopy(m.col_ptr, out.col_ptr, context.threads);
  std::atomic<int64_t> first_bad{m.n_cols};
  const StopReason stopped = ParallelFor(
      m.n_cols, ColumnsPerBatch(m), Quiet(context), Stage::kAssemble,
      [&](int64_t begin, int64_t end, int) {
        std::vector<std::pair<int32_t, int32_t>> order;  // rows of M, and where they were
        for (int64_t j = begin; j < end; ++j) {
          const auto rows = m.column(j);
          const auto values = m.column_values(j);
          order.resize(rows.size());
          for (size_t p = 0; p < rows.size(); ++p) {
            order[p] = {static_cast<int32_t>(ColumnAt(s, rows[p])), static_cast<int32_t>(p)};
          }
          if (!s.column_of_row.empty()) std::sort(order.begin(), order.end());
          auto to = Z(m.col_ptr[Z(j)]);
          for (const auto& [row, p] : order) {
            const double v = Scaled(values[Z(p)], ColumnFactor(s, rows[Z(p)]), RowFactor(s, j));
            if (!std::isfinite(v) && std::isfinite(values[Z(p)])) Lower(first_bad, j);
            out.row_idx[to] = row;
            out.values[to++] = v;
          }
        }
      });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the scaling of the inverse");
  if (const int64_t bad = first_bad.load(); bad < m.n_cols) {
    return Status(StatusCode::kFailedPrecondition, "INVERSE_OUT_OF_RANGE",
                  "column " + std::to_string(bad) +
                      " of the approximate inverse has an entry beyond the range of fp64 once its "
                      "scaling is undone; choose other units for the matrix")
        .At("values", bad);
  }
  return out;
}

}  // namespace spaid::kernels
