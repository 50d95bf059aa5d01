#include "kernels/static_spai/group_solver.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/dense/cholesky.h"
#include "kernels/dense/qr.h"
#include "kernels/static_spai/gram_checks.h"
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

bool AllFinite(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * 0.0;  // NaN as soon as one is not finite
  return sum == 0;
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

double PredictNs(LocalSolver solver, const LocalCounts& counts, int64_t n2, int64_t columns) {
  if (solver == LocalSolver::kQr) return PredictQrNs(counts, n2, columns);
  const double gram = PredictGramNs(counts, n2, columns);
  return solver == LocalSolver::kGram ? gram : std::min(gram, PredictQrNs(counts, n2, columns));
}

double PredictPlanNs(const LocalCounts& counts, int64_t n2, int64_t columns) {
  return PredictSharedPlanNs(n2, columns) +
         tuning::kPlanEntryNs * static_cast<double>(counts.entries);
}

double PredictSharedPlanNs(int64_t n2, int64_t columns) {
  return static_cast<double>(columns) *
         (tuning::kPlanColumnNs + tuning::kPlanIndexNs * static_cast<double>(n2));
}

int64_t GroupSolver::Bytes(int64_t n, const LocalCounts& largest, int64_t n2) {
  const int64_t targets = tuning::kMaxGroup;
  const int64_t rows = PadToLanes(std::max(largest.rows + targets + 1, n2));
  const int64_t dense_cols = std::min(n2, tuning::kMaxDenseColumns);
  const int64_t gram = PaddedLeadingDimension(dense_cols) * PadToLanes(dense_cols);
  const int64_t qr =
      std::min((rows + kLanes) * (dense_cols + targets), 2 * tuning::kMaxDenseEntries);
  const int64_t doubles = std::max(gram, qr)                   // matrix_
                          + gram                               // upper_
                          + PadToLanes(n2) * (1 + 5 + 8 + 16)  // inverse_, scratch_, x, g
                          + rows * 8 * 2                       // residual_, CGLS
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
  gradient_.Ensure(2 * np * 8);
  residual_.Ensure(PadToLanes((largest.rows + tuning::kMaxGroup + 1) * 8));
}

bool GroupSolver::Solve(const CscView& a, const ColumnScales& scales,
                        std::span<const uint8_t> equal_columns, std::span<const int32_t> columns,
                        std::span<const int32_t> targets, const StaticSpaiOptions& options,
                        const StopToken& stop, std::span<double* const> values,
                        std::span<ColumnOutcome> outcomes) {
  const LocalProblem& problem = assembler_.Assemble(a, scales, equal_columns, columns, targets);
  const Job job{scales, problem, columns, targets, options, stop, values, outcomes};
  const int64_t n2 = problem.n_cols;
  const auto count = static_cast<int64_t>(targets.size());
  stopped_ = false;
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
  return !stopped_;
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

// m from B m = Âᵀ e, B = ÂᵀÂ, then corrected steps: m += B⁻¹ Âᵀ (e − Â m). Chu et al. 2023 solve
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
  double determinant = 0;
  const double pivot = CholeskyFactor(np, ld, b, inverse, limit, &determinant);
  for (ColumnOutcome& outcome : job.outcomes) outcome.min_scaled_pivot = pivot;
  if (!(pivot > limit)) return false;
  const double eigenvalue = SmallestEigenvalue(n2, determinant);
  if (!(eigenvalue >=
        std::max(tuning::kLeastEigenvalue, tuning::kLeastRoundings * static_cast<double>(n2) *
                                               std::numeric_limits<double>::epsilon()))) {
    return false;
  }
  const bool weak = eigenvalue < tuning::kGoodEigenvalue;

  const auto count = static_cast<int>(job.targets.size());
  for (int first = 0; first < count;) {
    const int width = count - first == 1 ? 1 : count - first <= 4 ? 4 : 8;
    const int here = std::min(width, count - first);
    const auto at = static_cast<size_t>(first);
    const auto solve = [&](double* x) {
      if (width == 8) return CholeskySolve8(n2, ld, b, inverse, x);
      if (width == 4) return CholeskySolve4(n2, ld, b, inverse, x);
      CholeskySolve(np, ld, b, inverse, x);
    };
    double* x = solution_.Ensure(np * width);
    double* g = gradient_.Ensure(2 * np * width);  // the second half: Correct
    std::fill(x, x + np * width, 0.0);
    std::fill(g + n2 * width, g + np * width, 0.0);
    for (int w = 0; w < here; ++w) {
      GatherTargetRow(job, at + static_cast<size_t>(w), width, w, x);
    }
    solve(x);
    bool done = false;
    if (pivot >= tuning::kStrongPivot && !weak && AllFinite(x, n2 * width)) {
      Store(job, at, here, width, x, kColumnGram);
      done = AtMinimum(job, at, here, width, x);
    }
    if (!done) {
      if (!Correct(job, at, here, width, weak, solve, x, g)) return false;
      Store(job, at, here, width, x, kColumnGram);
      if (!Worthy(job, at, here)) return false;
    }
    Filter(job, at, here, width, x);
    first += here;
  }
  return true;
}

double GroupSolver::SmallestEigenvalue(int64_t n2, double scaled_determinant) {
  // A bound that costs nothing and serves small and well-conditioned problems (cholesky.h).
  const double bound = scaled_determinant / 3;
  if (bound >= tuning::kGoodEigenvalue) return bound;
  const int64_t np = PadToLanes(n2), ld = PaddedLeadingDimension(n2);
  double* z = gradient_.Ensure(np);
  StartSigns signs;
  for (int64_t q = 0; q < np; ++q) z[q] = q < n2 ? signs.Next() : 0.0;
  const auto step = [&] {  // one of inverse iteration; returns how much z grew
    double before = 0, after = 0;
    SquaredNorms(np, 1, z, &before);
    CholeskySolve(np, ld, matrix_.data(), inverse_.data(), z);
    SquaredNorms(np, 1, z, &after);
    const double norm = std::sqrt(after);
    for (int64_t q = 0; q < np; ++q) z[q] /= norm;
    return std::make_pair(norm, norm / std::sqrt(before));
  };
  const double first = tuning::kStartShare * step().first;
  if (first * tuning::kGoodEigenvalue <= 1) return 1 / first;
  step();
  return 1 / step().second;  // NaN and infinity end as no eigenvalue at all
}

// With a `weak` problem the steps go on until one changes ‖r‖ by less than the accuracy rule allows
// (Â δ is orthogonal to what remains, so that ‖r‖² falls by ‖Âδ‖² = gᵀδ; the step was taken then,
// and the next one would be smaller still).
template <class Substitute>
bool GroupSolver::Correct(const Job& job, size_t first, int here, int width, bool weak,
                          const Substitute& solve, double* x, double* g) {
  const int64_t n2 = job.problem.n_cols, size = n2 * width;
  const int steps = weak ? tuning::kWeakSteps : 1;
  for (int step = 0; step < steps; ++step) {
    double* r = NegativeUnits(job, first, here, width);
    MultiplyAdd(job.problem, width, x, r);
    NegativeTransposeMultiply(job.problem, width, r, g);
    double squared[8], change[8] = {};
    if (weak) {
      SquaredNorms(job.problem.n_rows, width, r, squared);
      double* before = gradient_.data() + PadToLanes(n2) * width;
      std::copy(g, g + size, before);
    }
    solve(g);
    for (int64_t i = 0; i < size; ++i) x[i] += g[i];
    if (!weak) break;
    const double* before = gradient_.data() + PadToLanes(n2) * width;
    for (int64_t i = 0; i < size; ++i) change[i % width] += g[i] * before[i];
    bool small = true;
    for (int w = 0; w < here; ++w) {
      const double norm = std::sqrt(std::max(0.0, squared[w] - change[w]));
      small &= change[w] <= tuning::kStepShare * norm * norm + tuning::kStepNorm * norm;
    }
    if (small) break;
    if (step + 1 == steps) return false;
  }
  return AllFinite(x, size);
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
      Store(job, static_cast<size_t>(t), 1, 1, x, flags);
      if (!last && !Worthy(job, static_cast<size_t>(t), 1)) return false;
      Filter(job, static_cast<size_t>(t), 1, 1, x);
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
      if (job.stop.stop_requested()) {
        stopped_ = true;
        return;
      }
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
    Store(job, t, 1, 1, x, converged ? flags : flags | kColumnNotConverged);
    Filter(job, t, 1, 1, x);
  }
}

void GroupSolver::Residuals(const Job& job, size_t first, int count, int width, const double* x,
                            double* squared) {
  double* r = NegativeUnits(job, first, count, width);
  MultiplyAdd(job.problem, width, x, r);
  SquaredNorms(job.problem.n_rows, width, r, squared);
}

void GroupSolver::Store(const Job& job, size_t first, int count, int width, const double* x,
                        uint8_t flags) {
  const auto n2 = static_cast<size_t>(job.problem.n_cols);
  for (int w = 0; w < count; ++w) {
    double* m = job.values[first + static_cast<size_t>(w)];
    for (size_t q = 0; q < n2; ++q) {
      m[q] = x[q * static_cast<size_t>(width) + static_cast<size_t>(w)] *
             job.scales.scale[static_cast<size_t>(job.columns[q])];
    }
  }
  double squared[8];
  Residuals(job, first, count, width, x, squared);
  for (int w = 0; w < count; ++w) {
    const size_t t = first + static_cast<size_t>(w);
    ColumnOutcome& outcome = job.outcomes[t];
    outcome.flags = flags;
    outcome.residual_norm = std::sqrt(squared[w]);
    if (!assembler_.target_reachable(t)) outcome.flags |= kColumnZero;
    if (!std::isfinite(outcome.residual_norm) || !AllFinite(job.values[t], job.problem.n_cols)) {
      std::fill(job.values[t], job.values[t] + n2, 0.0);
      outcome.residual_norm = 1;
      outcome.flags |= kColumnNonFinite;
    }
  }
}

bool GroupSolver::Worthy(const Job& job, size_t first, int count) const {
  for (int w = 0; w < count; ++w) {
    if (job.outcomes[first + static_cast<size_t>(w)].residual_norm > tuning::kWorthlessResidual) {
      return false;
    }
  }
  return true;
}

void GroupSolver::Filter(const Job& job, size_t first, int count, int width, double* x) {
  if (!(job.options.post_filter > 0)) return;
  const auto n2 = static_cast<size_t>(job.problem.n_cols);
  for (int w = 0; w < count; ++w) {
    const size_t t = first + static_cast<size_t>(w);
    FilterColumn(job.columns, job.targets[t], job.options.post_filter, job.values[t]);
    for (size_t q = 0; q < n2; ++q) {
      if (job.values[t][q] == 0) x[q * static_cast<size_t>(width) + static_cast<size_t>(w)] = 0;
    }
  }
  double squared[8];
  Residuals(job, first, count, width, x, squared);
  for (int w = 0; w < count; ++w) {
    ColumnOutcome& outcome = job.outcomes[first + static_cast<size_t>(w)];
    // A column that was set to zero has residual 1 already.
    if ((outcome.flags & kColumnNonFinite) == 0) outcome.residual_norm = std::sqrt(squared[w]);
  }
}

}  // namespace spaid::kernels
