// The numeric phase on the CPU.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/residual_quantiles.h"
#include "kernels/static_spai/static_spai.h"
#include "kernels/static_spai/static_spai_plan.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

// Progress in columns although batches hold different numbers of them.
class ColumnProgress {
 public:
  ColumnProgress(ProgressSink* sink, int64_t total) : sink_(sink), total_(total) {}
  void Add(int64_t columns) {
    if (sink_ == nullptr) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ += columns;
    sink_->OnProgress(Stage::kBuild, done_, total_);
  }

 private:
  ProgressSink* const sink_;
  const int64_t total_;
  std::mutex mutex_;
  int64_t done_ = 0;
};

void Note(int64_t k, int64_t& count, int64_t& first) {
  if (count++ == 0) first = k;
}

void Summarise(const Array<uint8_t>& flags, int64_t nnz_a, StaticSpaiResult& result) {
  StaticSpaiQuality& q = result.quality;
  double squares = 0, worst = -1;
  for (size_t i = 0; i < flags.size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    const uint8_t f = flags[i];
    const double norm = result.residual_norms[i];
    squares += norm * norm;
    if (norm > worst) {
      worst = norm;
      q.worst_column = k;
    }
    q.min_scaled_pivot = std::min(q.min_scaled_pivot, result.min_scaled_pivots[i]);
    if (f & kColumnGram) ++q.gram_columns;
    if (f & kColumnQr) ++q.qr_columns;
    if (f & kColumnIterative) Note(k, q.iterative_columns, q.first_iterative);
    if (f & kColumnRescued) Note(k, q.rescued_columns, q.first_rescued);
    if (f & kColumnRankDeficient) Note(k, q.rank_deficient_columns, q.first_rank_deficient);
    if (f & kColumnZero) Note(k, q.zero_columns, q.first_zero_column);
    if (f & kColumnNonFinite) Note(k, q.non_finite_columns, q.first_non_finite);
    if (f & kColumnNotConverged) Note(k, q.not_converged_columns, q.first_not_converged);
  }
  q.residual_frobenius = std::sqrt(squares);
  q.residual_quantiles = ResidualQuantiles(result.residual_norms);
  q.density = static_cast<double>(result.m.nnz()) / static_cast<double>(nnz_a);
}

Result<StaticSpaiResult> BuildM(const StaticSpaiPlan& plan, const CscView& a,
                                const StaticSpaiOptions& options, const Context& context) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (a.n_cols != plan.counts.n || a.nnz() != plan.counts.nnz_a ||
      HashPattern(a) != plan.pattern_hash) {
    return Status(StatusCode::kInvalidArgument, "PLAN_MISMATCH",
                  "the matrix does not have the pattern that the plan was made for; make a plan "
                  "for this matrix");
  }
  const int64_t n = a.n_cols;
  const PatternView pattern = plan.pattern;
  const ColumnScales scales = ScaleColumns(a, plan.long_pairs, context.threads);
  StaticSpaiResult result;
  result.m.n_rows = result.m.n_cols = n;
  result.m.col_ptr = plan.pattern.col_ptr;
  result.m.row_idx = plan.pattern.row_idx;
  result.m.values.resize(plan.pattern.row_idx.size());
  result.residual_norms.resize(static_cast<size_t>(n));
  result.min_scaled_pivots.resize(static_cast<size_t>(n));
  Array<uint8_t> flags(static_cast<size_t>(n));

  std::vector<std::unique_ptr<GroupSolver>> solvers(
      static_cast<size_t>(ResolveThreads(context.threads)));
  ColumnProgress progress(context.progress, n);
  Context quiet = context;  // ParallelFor would count batches
  quiet.progress = nullptr;
  std::atomic<bool> cut_short = false;
  const auto run = [&](int64_t begin, int64_t end, int worker) {
    std::unique_ptr<GroupSolver>& solver = solvers[static_cast<size_t>(worker)];
    if (!solver) solver = std::make_unique<GroupSolver>(n, plan.largest, plan.counts.n2_max);
    double* values[static_spai_tuning::kMaxGroup];
    ColumnOutcome outcomes[static_spai_tuning::kMaxGroup];
    for (int64_t i = begin; i < end; ++i) {
      const auto batch = static_cast<size_t>(plan.batch_order[static_cast<size_t>(i)]);
      int64_t columns = 0;
      for (int64_t g = plan.batch_ptr[batch]; g < plan.batch_ptr[batch + 1]; ++g) {
        const std::span<const int32_t> members = plan.group(g);
        for (size_t t = 0; t < members.size(); ++t) {
          values[t] = result.m.values.data() + pattern.col_ptr[static_cast<size_t>(members[t])];
          outcomes[t] = {};
        }
        const bool solved = solver->Solve(a, scales, plan.equal_columns, pattern.column(members[0]),
                                          members, options, context.stop, {values, members.size()},
                                          {outcomes, members.size()});
        if (!solved) {
          cut_short.store(true, std::memory_order_relaxed);
          return;
        }
        for (size_t t = 0; t < members.size(); ++t) {
          const auto k = static_cast<size_t>(members[t]);
          result.residual_norms[k] = outcomes[t].residual_norm;
          result.min_scaled_pivots[k] = outcomes[t].min_scaled_pivot;
          flags[k] = outcomes[t].flags;
        }
        columns += static_cast<int64_t>(members.size());
      }
      progress.Add(columns);
    }
  };
  const StopReason stopped = ParallelFor(plan.n_batches(), 1, quiet, Stage::kBuild, run);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "build of static SPAI");
  // A stop that comes when all columns are solved is too late to throw them away.
  if (cut_short) return StopStatus(context.stop.Poll(), "build of static SPAI");
  if (options.post_filter > 0) {
    Result<CscMatrix> filtered =
        PostFilter(result.m, options.post_filter,
                   Context{.stop = {}, .progress = nullptr, .threads = context.threads});
    if (!filtered.ok()) return filtered.status();
    result.m = std::move(filtered).value();
  }
  Summarise(flags, a.nnz(), result);
  return result;
}

}  // namespace

Result<StaticSpaiResult> BuildStaticSpai(const StaticSpaiPlan& plan, const CscView& a,
                                         const StaticSpaiOptions& options, const Context& context) {
  return GuardMemory("build of static SPAI", [&] { return BuildM(plan, a, options, context); });
}

}  // namespace spaid::kernels
