#include "kernels/static_spai/group_solver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dense/cholesky.h"
#include "kernels/dense/qr.h"
#include "kernels/static_spai/local_kernels.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {

namespace tuning = static_spai_tuning;

struct GroupSolver::Job {
  const ColumnScales& scales;
  const LocalProblem& problem;
  std::span<const int32_t> columns;
  std::span<const int32_t> targets;
  const StaticSpaiOptions& options;
  const StopToken& stop;
  std::span<double* const> values;
  std::span<ColumnOutcome> outcomes;
};

namespace {

// A column of R is dependent where its remaining norm is under this times its whole norm.
double RankTolerance(int64_t rows, int64_t columns) {
  return 4 * std::numeric_limits<double>::epsilon() * static_cast<double>(std::max(rows, columns));
}

bool TooLargeForQr(int64_t rows, int64_t columns, int64_t targets) {
  return columns > tuning::kMaxDenseColumns ||
         PadToLanes(std::max(rows, columns)) * (columns + targets) > tuning::kMaxDenseEntries;
}

// Zero has residual 1, so a minimum over it is rounding of an ill-conditioned problem. A filtered
// column may be worse than zero; that is what was asked for.
constexpr double kWorthlessResidual = 1 + 1e-10;

bool AllFinite(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * 0.0;  // NaN as soon as one is not finite
  return sum == 0;
}

// Zeroes |m_q| < δ max|m| except at the diagonal, as PostFilter drops them.
void FilterColumn(std::span<const int32_t> columns, int32_t diagonal, double delta, double* m) {
  double largest = 0;
  for (size_t q = 0; q < columns.size(); ++q) largest = std::max(largest, std::abs(m[q]));
  for (size_t q = 0; q < columns.size(); ++q) {
    if (std::abs(m[q]) < delta * largest && columns[q] != diagonal) m[q] = 0;
  }
}

}  // namespace

double PredictGramNs(const LocalCounts& counts, int64_t n2, int64_t columns) {
  const auto padded = static_cast<double>(PadToLanes(n2)), rhs = static_cast<double>(columns);
  const auto entries = static_cast<double>(counts.entries);
  if (n2 > tuning::kMaxDenseColumns) return 100 * rhs * tuning::kProductNs * entries;
  return tuning::kGroupNs + tuning::kEntryNs * entries +
         tuning::kGramPairNs * static_cast<double>(counts.gram_pairs) +
         tuning::kGramPanelNs * padded / 8 + tuning::kGramFlopNs * padded * padded * padded / 3 +
         rhs * (tuning::kGramColumnNs + tuning::kGramSolveNs * padded * padded / 2 +
                tuning::kProductNs * entries);
}

double PredictQrNs(const LocalCounts& counts, int64_t n2, int64_t columns) {
  const auto n = static_cast<double>(n2), rhs = static_cast<double>(columns);
  const auto m = static_cast<double>(PadToLanes(std::max(counts.rows, n2)));
  const auto entries = static_cast<double>(counts.entries);
  if (TooLargeForQr(counts.rows, n2, columns)) return 100 * rhs * tuning::kProductNs * entries;
  return tuning::kGroupNs + tuning::kEntryNs * entries + tuning::kQrReflectorNs * n +
         tuning::kQrUpdateNs * n * (n / 2 + rhs) +
         tuning::kQrFlopNs * (2 * m * n * n - 2 * n * n * n / 3 + 4 * m * n * rhs) +
         rhs * tuning::kProductNs * entries / 3;
}

int64_t GroupSolver::Bytes(int64_t n, const LocalCounts& largest, int64_t n2) {
  const int64_t targets = tuning::kMaxGroup;
  const int64_t rows = PadToLanes(std::max(largest.rows + targets + 1, n2));
  const int64_t dense_cols = std::min(n2, tuning::kMaxDenseColumns);
  const int64_t gram = PaddedLeadingDimension(dense_cols) * PadToLanes(dense_cols);
  const int64_t qr =
      std::min((rows + kLanes) * (dense_cols + targets), 2 * tuning::kMaxDenseEntries);
  const int64_t doubles = std::max(gram, qr)                  // matrix_
                          + gram                              // upper_
                          + PadToLanes(n2) * (1 + 5 + 8 + 8)  // inverse_, scratch_, x, g
                          + rows * 8 * 2                      // residual_, CGLS
                          + tuning::kSmallEntries + 8 * 16;
  return LocalAssembler::Bytes(n, largest.entries, n2, targets) + doubles * 8 + n2 * 16;
}

GroupSolver::GroupSolver(int64_t n, const LocalCounts& largest, int64_t n2_max) : assembler_(n) {
  assembler_.Reserve(largest.entries, n2_max, tuning::kMaxGroup);
  const int64_t np = PadToLanes(n2_max);
  if (n2_max <= tuning::kMaxDenseColumns) {
    matrix_.Ensure(np * PaddedLeadingDimension(n2_max));
    scratch_.Ensure(GramScratch(n2_max));
  }
  dense_rows_.Ensure(tuning::kSmallEntries);
  inverse_.Ensure(np);
  solution_.Ensure(np * 8);
  gradient_.Ensure(np * 8);
  residual_.Ensure(PadToLanes((largest.rows + tuning::kMaxGroup + 1) * 8));
}

void GroupSolver::Solve(const CscView& a, const ColumnScales& scales,
                        std::span<const uint8_t> equal_columns, std::span<const int32_t> columns,
                        std::span<const int32_t> targets, const StaticSpaiOptions& options,
                        const StopToken& stop, std::span<double* const> values,
                        std::span<ColumnOutcome> outcomes) {
  const LocalProblem& problem = assembler_.Assemble(a, scales, equal_columns, columns, targets);
  const Job job{scales, problem, columns, targets, options, stop, values, outcomes};
  const int64_t n2 = problem.n_cols;
  const auto count = static_cast<int64_t>(targets.size());
  bool gram = options.local_solver != LocalSolver::kQr;
  if (options.local_solver == LocalSolver::kAuto) {
    const LocalCounts counts{0, problem.n_rows, problem.n_entries, problem.gram_pairs};
    gram = PredictGramNs(counts, n2, count) <= PredictQrNs(counts, n2, count);
  }
  if (n2 > tuning::kMaxDenseColumns) {
    SolveIterative(job, 0);
  } else if (!gram) {
    SolveQr(job, 0);
  } else if (!SolveGram(job)) {
    SolveQr(job, kColumnRescued);
  }
}

double* GroupSolver::NegativeUnits(const Job& job, size_t first, int count, int width) {
  const int64_t size = job.problem.n_rows * width;
  double* r = residual_.Ensure(PadToLanes(size));
  std::fill(r, r + size, 0.0);
  for (int w = 0; w < count; ++w) {
    r[int64_t{assembler_.target_row(first + static_cast<size_t>(w))} * width + w] = -1;
  }
  return r;
}

// m from B m = Âᵀ e, B = ÂᵀÂ, then one corrected step: m += B⁻¹ Âᵀ (e − Â m). Chu et al. 2023 solve
// the same problems by QR; the corrected step is that of the semi-normal equations (Björck 1987).
bool GroupSolver::SolveGram(const Job& job) {
  const LocalProblem& problem = job.problem;
  const int64_t n2 = problem.n_cols, np = PadToLanes(n2), ld = PaddedLeadingDimension(n2);
  small_ = job.targets.size() == 1 && np <= tuning::kSmallColumns &&
           np * problem.n_rows <= tuning::kSmallEntries;
  double* b = matrix_.Ensure(np * ld);
  double* inverse = inverse_.Ensure(np);
  if (small_) {
    SmallGram(problem, ld, b, dense_rows_.Ensure(tuning::kSmallEntries));
  } else {
    assembler_.BuildRows();
    std::fill(b, b + np * ld, 0.0);
    AccumulateGram(problem, ld, b, scratch_.Ensure(GramScratch(n2)));
  }
  for (int64_t q = n2; q < np; ++q) b[q * ld + q] = 1;
  const double limit = job.options.gram_pivot_limit;
  const double pivot = CholeskyFactor(np, ld, b, inverse, limit);
  for (ColumnOutcome& outcome : job.outcomes) outcome.min_scaled_pivot = pivot;
  if (!(pivot > limit)) return false;

  const auto count = static_cast<int>(job.targets.size());
  for (int first = 0; first < count;) {
    const int width = count - first == 1 ? 1 : count - first <= 4 ? 4 : 8;
    const int here = std::min(width, count - first);
    const auto solve = [&](double* x) {
      if (width == 8) return CholeskySolve8(n2, ld, b, inverse, x);
      if (width == 4) return CholeskySolve4(n2, ld, b, inverse, x);
      CholeskySolve(np, ld, b, inverse, x);
    };
    double* x = solution_.Ensure(np * width);
    double* g = gradient_.Ensure(np * width);
    std::fill(x, x + np * width, 0.0);
    std::fill(g + n2 * width, g + np * width, 0.0);
    for (int w = 0; w < here; ++w) {
      GatherTargetRow(job, static_cast<size_t>(first + w), width, w, x);
    }
    solve(x);
    if (pivot >= tuning::kStrongPivot && job.options.post_filter == 0 && AllFinite(x, n2 * width)) {
      Finish(job, static_cast<size_t>(first), here, width, x, kColumnGram);
      if (AtMinimum(job, static_cast<size_t>(first), here, width, x)) {
        first += here;
        continue;
      }
    }
    const int steps = pivot < tuning::kWeakPivot ? tuning::kWeakPivotSteps : 1;
    for (int step = 0; step < steps; ++step) {
      double* r = NegativeUnits(job, static_cast<size_t>(first), here, width);
      MultiplyAdd(problem, width, x, r);
      NegativeTransposeMultiply(problem, width, r, g);
      solve(g);
      for (int64_t i = 0; i < n2 * width; ++i) x[i] += g[i];
    }
    if (!AllFinite(x, n2 * width)) return false;
    Finish(job, static_cast<size_t>(first), here, width, x, kColumnGram);
    for (int w = 0; w < here; ++w) {
      if (job.outcomes[static_cast<size_t>(first + w)].residual_norm > kWorthlessResidual &&
          job.options.post_filter == 0) {
        return false;
      }
    }
    first += here;
  }
  return true;
}

void GroupSolver::GatherTargetRow(const Job& job, size_t t, int width, int w, double* x) const {
  const LocalProblem& problem = job.problem;
  const int32_t row = assembler_.target_row(t);
  if (small_) {
    const double* values = dense_rows_.data() + row * PadToLanes(problem.n_cols);
    std::copy(values, values + problem.n_cols, x);
    return;
  }
  for (int64_t p = problem.row_ptr[row]; p < problem.row_ptr[row + 1]; ++p) {
    x[int64_t{problem.row_col[p]} * width + w] = problem.row_value[p];
  }
}

// At the minimum ‖r‖² = 1 − (Âm)_k; off it by δ the two differ by bᵀδ + ‖Âδ‖², b = Âᵀe: by the
// error itself, where ‖r‖ would show its square only.
bool GroupSolver::AtMinimum(const Job& job, size_t first, int count, int width,
                            const double* x) const {
  const LocalProblem& problem = job.problem;
  for (int w = 0; w < count; ++w) {
    const size_t t = first + static_cast<size_t>(w);
    const int32_t row = assembler_.target_row(t);
    double fit = 0;
    if (small_) {
      const double* values = dense_rows_.data() + row * PadToLanes(problem.n_cols);
      for (int64_t q = 0; q < problem.n_cols; ++q) fit += values[q] * x[q];
    } else {
      for (int64_t p = problem.row_ptr[row]; p < problem.row_ptr[row + 1]; ++p) {
        fit += problem.row_value[p] * x[int64_t{problem.row_col[p]} * width + w];
      }
    }
    const double norm = job.outcomes[t].residual_norm;
    if (!(std::abs(norm * norm - (1 - fit)) <= tuning::kMinimumTolerance)) return false;
  }
  return true;
}

void GroupSolver::SolveQr(const Job& job, uint8_t flags) {
  const LocalProblem& problem = job.problem;
  const int64_t n2 = problem.n_cols;
  const auto count = static_cast<int64_t>(job.targets.size());
  if (TooLargeForQr(problem.n_rows, n2, count)) return SolveIterative(job, flags);
  flags |= kColumnQr;
  QrShape shape;
  shape.rows = PadToLanes(std::max(problem.n_rows, n2));
  shape.ld = PaddedLeadingDimension(shape.rows);
  shape.n_factor = n2;
  shape.n_total = n2 + count;
  shape.ldr = n2;
  double* dense = matrix_.Ensure(shape.ld * shape.n_total);
  double* r = upper_.Ensure(n2 * n2);
  row_end_.resize(static_cast<size_t>(n2));
  permutation_.resize(static_cast<size_t>(n2));
  const auto fill = [&] {
    std::fill(dense, dense + shape.ld * shape.n_total, 0.0);
    int64_t end = 0;
    for (int64_t q = 0; q < n2; ++q) {
      for (int64_t p = problem.col_begin[q]; p < problem.col_end[q]; ++p) {
        dense[q * shape.ld + problem.col_row[p]] = problem.col_value[p];
        end = std::max<int64_t>(end, problem.col_row[p] + 1);
      }
      row_end_[static_cast<size_t>(q)] = end;
    }
    for (int64_t t = 0; t < count; ++t) {
      dense[(n2 + t) * shape.ld + assembler_.target_row(static_cast<size_t>(t))] = 1;
    }
  };
  // False where a residual shows that the problem is too close to rank deficiency.
  const auto finish = [&](int64_t rank, bool last) {
    for (int64_t t = 0; t < count; ++t) {
      double* y = dense + (n2 + t) * shape.ld;
      UpperSolve(rank, shape.ldr, r, y);
      double* x = solution_.Ensure(PadToLanes(n2));
      std::fill(x, x + n2, 0.0);
      for (int64_t q = 0; q < rank; ++q) x[permutation_[static_cast<size_t>(q)]] = y[q];
      Finish(job, static_cast<size_t>(t), 1, 1, x, flags);
      if (!last && job.outcomes[static_cast<size_t>(t)].residual_norm > kWorthlessResidual &&
          job.options.post_filter == 0) {
        return false;
      }
    }
    return true;
  };
  fill();
  double tolerance = RankTolerance(problem.n_rows, n2);
  if (HouseholderQr(shape, dense, row_end_.data(), r, tolerance) < 0) {
    for (int64_t q = 0; q < n2; ++q) permutation_[static_cast<size_t>(q)] = q;
    if (finish(n2, false)) return;
    tolerance = tuning::kWeakRankTolerance;
  }
  fill();
  const int64_t rank =
      std::max<int64_t>(0, PivotedQr(shape, dense, r, permutation_.data(), tolerance));
  if (rank < n2) flags |= kColumnRankDeficient;
  finish(rank, true);
}

// CGLS (Hestenes, Stiefel 1952; Björck 1996, algorithm 7.4.1) on the scaled columns.
void GroupSolver::SolveIterative(const Job& job, uint8_t flags) {
  flags |= kColumnIterative;
  const LocalProblem& problem = job.problem;
  const int64_t n2 = problem.n_cols, rows = problem.n_rows, stride = PadToLanes(rows);
  for (size_t t = 0; t < job.targets.size(); ++t) {
    double* x = solution_.Ensure(PadToLanes(n2));
    double* s = gradient_.Ensure(2 * PadToLanes(n2));
    double* p = s + PadToLanes(n2);
    double* r = residual_.Ensure(2 * stride);  // Â x − e
    double* q = r + stride;
    std::fill(x, x + n2, 0.0);
    std::fill(r, r + rows, 0.0);
    r[assembler_.target_row(t)] = -1;
    NegativeTransposeMultiply(problem, 1, r, s);
    std::copy(s, s + n2, p);
    double gamma = 0;
    SquaredNorms(n2, 1, s, &gamma);
    const double target = gamma * tuning::kIterativeTolerance * tuning::kIterativeTolerance;
    bool converged = gamma <= target;
    for (int64_t it = 0; it < tuning::kIterativeLimit && !converged; ++it) {
      if (job.stop.stop_requested()) break;
      std::fill(q, q + rows, 0.0);
      MultiplyAdd(problem, 1, p, q);
      double curvature = 0;
      SquaredNorms(rows, 1, q, &curvature);
      if (!(curvature > 0)) break;
      const double alpha = gamma / curvature;
      for (int64_t i = 0; i < n2; ++i) x[i] += alpha * p[i];
      for (int64_t i = 0; i < rows; ++i) r[i] += alpha * q[i];
      NegativeTransposeMultiply(problem, 1, r, s);
      double next = 0;
      SquaredNorms(n2, 1, s, &next);
      const double beta = next / gamma;
      for (int64_t i = 0; i < n2; ++i) p[i] = s[i] + beta * p[i];
      gamma = next;
      converged = gamma <= target;
    }
    Finish(job, t, 1, 1, x, converged ? flags : flags | kColumnNotConverged);
  }
}

void GroupSolver::Finish(const Job& job, size_t first, int count, int width, double* x,
                         uint8_t flags) {
  const LocalProblem& problem = job.problem;
  const auto n2 = static_cast<size_t>(problem.n_cols);
  for (int w = 0; w < count; ++w) {
    const size_t t = first + static_cast<size_t>(w);
    double* m = job.values[t];
    for (size_t q = 0; q < n2; ++q) {
      m[q] = x[q * static_cast<size_t>(width) + static_cast<size_t>(w)] *
             job.scales.scale[static_cast<size_t>(job.columns[q])];
    }
    if (job.options.post_filter > 0) {
      FilterColumn(job.columns, job.targets[t], job.options.post_filter, m);
      for (size_t q = 0; q < n2; ++q) {
        if (m[q] == 0) x[q * static_cast<size_t>(width) + static_cast<size_t>(w)] = 0;
      }
    }
  }
  double* r = NegativeUnits(job, first, count, width);
  MultiplyAdd(problem, width, x, r);
  double squared[8];
  SquaredNorms(problem.n_rows, width, r, squared);
  for (int w = 0; w < count; ++w) {
    const size_t t = first + static_cast<size_t>(w);
    ColumnOutcome& outcome = job.outcomes[t];
    outcome.flags = flags;
    outcome.residual_norm = std::sqrt(squared[w]);
    if (!assembler_.target_reachable(t)) outcome.flags |= kColumnZero;
    if (!std::isfinite(outcome.residual_norm) || !AllFinite(job.values[t], problem.n_cols)) {
      std::fill(job.values[t], job.values[t] + n2, 0.0);
      outcome.residual_norm = 1;
      outcome.flags |= kColumnNonFinite;
    }
  }
}

}  // namespace spaid::kernels
