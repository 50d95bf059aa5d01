// The numeric phase on the CPU.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/lane_solver.h"
#include "kernels/static_spai/quality.h"
#include "kernels/static_spai/static_spai.h"
#include "kernels/static_spai/static_spai_part.h"
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

// The pattern of M, its values to come.
CscMatrix EmptyM(const Pattern& pattern, int threads) {
  CscMatrix m;
  m.n_rows = m.n_cols = pattern.n_cols;
  m.col_ptr.resize(pattern.col_ptr.size());
  m.row_idx.resize(pattern.row_idx.size());
  m.values.resize(pattern.row_idx.size());
  ParallelCopy(pattern.col_ptr, m.col_ptr, threads);
  ParallelCopy(pattern.row_idx, m.row_idx, threads);
  return m;
}

// Shared by the workers of one build.
struct Task {
  const StaticSpaiPlan& plan;
  const CscView& a;
  const ColumnScales& scales;
  const StaticSpaiOptions& options;
  const StopToken& stop;
  StaticSpaiResult& result;
  Array<uint8_t>& flags;
};

// Solves batches; one per thread. The groups of a batch that share a structure are collected and
// solved eight at a time, in an order that depends on the plan alone.
class Worker {
 public:
  explicit Worker(const Task& task)
      : task_(task),
        pattern_(task.plan.pattern),
        groups_(task.plan.groups()),
        group_solver_(task.a.n_cols, task.plan.largest, task.plan.counts.n2_max),
        waiting_(task.plan.structures.size()) {}

  // The number of columns; -1: cut short by the stop token.
  int64_t SolveBatch(int32_t batch) {
    const int64_t columns = Solve(batch);
    if (columns > 0 && task_.result.shown.showing()) Show(batch);
    return columns;
  }

 private:
  static constexpr size_t kMaxGroup = static_spai_tuning::kMaxGroup;

  int64_t Solve(int32_t batch) {
    const StaticSpaiPlan& plan = task_.plan;
    int64_t columns = 0;
    const auto b = static_cast<size_t>(batch);
    for (int64_t g = plan.batch_ptr[b]; g < plan.batch_ptr[b + 1]; ++g) {
      columns += static_cast<int64_t>(groups_.group(g).size());
      const int32_t structure = plan.structure_of[static_cast<size_t>(g)];
      if (structure < 0) {
        if (!SolveAlone(g)) return -1;
        continue;
      }
      Waiting& waiting = waiting_[static_cast<size_t>(structure)];
      if (waiting.count == 0) touched_.push_back(structure);
      waiting.groups[waiting.count++] = static_cast<int32_t>(g);
      if (waiting.count == kLaneGroups && !SolveWaiting(structure)) return -1;
    }
    for (const int32_t structure : touched_) {
      if (waiting_[static_cast<size_t>(structure)].count > 0 && !SolveWaiting(structure)) return -1;
    }
    touched_.clear();
    return columns;
  }

  // Its columns are finished: run by run, as groups follow each other by their lowest.
  void Show(int32_t batch) const {
    const StaticSpaiPlan& plan = task_.plan;
    const auto b = static_cast<size_t>(batch);
    const int32_t* member = plan.members.data() + plan.group_ptr[plan.batch_ptr[b]];
    const int32_t* const end = plan.members.data() + plan.group_ptr[plan.batch_ptr[b + 1]];
    while (member != end) {
      const int64_t first = *member;
      int64_t next = first + 1;
      while (++member != end && *member == next) ++next;
      task_.result.shown.Finished(first, next);
    }
  }

  struct Waiting {  // groups of one structure
    std::array<int32_t, kLaneGroups> groups;
    size_t count = 0;
  };
  struct Columns {  // the columns of one group: values and outcomes
    std::array<double*, kMaxGroup> values;
    std::array<ColumnOutcome, kMaxGroup> outcomes;
  };

  void Prepare(std::span<const int32_t> members, Columns& columns) const {
    for (size_t t = 0; t < members.size(); ++t) {
      columns.values[t] =
          task_.result.m.values.data() + pattern_.col_ptr[static_cast<size_t>(members[t])];
      columns.outcomes[t] = {};
    }
  }

  void Keep(std::span<const int32_t> members, const Columns& columns) const {
    for (size_t t = 0; t < members.size(); ++t) {
      const auto k = static_cast<size_t>(members[t]);
      task_.result.residual_norms[k] = columns.outcomes[t].residual_norm;
      task_.result.min_scaled_pivots[k] = columns.outcomes[t].min_scaled_pivot;
      task_.flags[k] = columns.outcomes[t].flags;
    }
  }

  bool SolveAlone(int64_t g) {
    const std::span<const int32_t> members = groups_.group(g);
    Columns& columns = columns_[0];
    Prepare(members, columns);
    if (!group_solver_.Solve(task_.a, task_.scales, task_.plan.equal_columns, groups_.columns(g),
                             members, task_.options, task_.stop,
                             {columns.values.data(), members.size()},
                             {columns.outcomes.data(), members.size()})) {
      return false;
    }
    Keep(members, columns);
    return true;
  }

  bool SolveWaiting(int32_t structure) {
    Waiting& waiting = waiting_[static_cast<size_t>(structure)];
    const size_t count = std::exchange(waiting.count, 0);
    std::array<LaneSolver::Group, kLaneGroups> lanes;
    for (size_t w = 0; w < count; ++w) {
      const int64_t g = waiting.groups[w];
      const std::span<const int32_t> members = groups_.group(g);
      Prepare(members, columns_[w]);
      lanes[w] = {groups_.columns(g),
                  members,
                  {columns_[w].values.data(), members.size()},
                  {columns_[w].outcomes.data(), members.size()}};
    }
    const std::array<bool, kLaneGroups> solved = lane_solver_.Solve(
        task_.a, task_.scales, task_.plan.structures[static_cast<size_t>(structure)], task_.options,
        {lanes.data(), count});
    for (size_t w = 0; w < count; ++w) {
      if (solved[w]) Keep(lanes[w].targets, columns_[w]);
    }
    for (size_t w = 0; w < count; ++w) {
      if (!solved[w] && !SolveAlone(waiting.groups[w])) return false;
    }
    return true;
  }

  const Task& task_;
  const PatternView pattern_;
  const GroupsView groups_;
  GroupSolver group_solver_;
  LaneSolver lane_solver_;
  std::vector<Waiting> waiting_;  // by structure
  std::vector<int32_t> touched_;  // structures of the batch
  std::array<Columns, kLaneGroups> columns_;
};

// M without its quality. `flags`: of its columns; those that are not the plan's have none, nor have
// they residual norms and pivots.
Result<StaticSpaiResult> BuildColumns(const StaticSpaiPlan& plan, const CscView& a,
                                      const StaticSpaiOptions& options, const Context& context,
                                      Array<uint8_t>& flags) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status =
          CheckPlanPattern(a, plan.counts.n, plan.counts.nnz_a, plan.pattern_hash, context.threads);
      !status.ok()) {
    return status;
  }
  const int64_t n = a.n_cols;
  const ColumnScales scales = ScaleColumns(a, plan.long_pairs, context.threads);
  StaticSpaiResult result;
  result.m = EmptyM(plan.pattern, context.threads);
  result.residual_norms.resize(static_cast<size_t>(n));
  result.min_scaled_pivots.resize(static_cast<size_t>(n));
  flags.resize(static_cast<size_t>(n));
  if (options.post_filter == 0) ShowM(context, result);

  std::vector<std::unique_ptr<Worker>> workers(
      static_cast<size_t>(ResolveThreads(context.threads)));
  ColumnProgress progress(context.progress, std::ssize(plan.members));
  Context quiet = context;  // ParallelFor would count batches
  quiet.progress = nullptr;
  std::atomic<bool> cut_short = false;
  const Task task{plan, a, scales, options, context.stop, result, flags};
  const auto run = [&](int64_t begin, int64_t end, int w) {
    std::unique_ptr<Worker>& worker = workers[static_cast<size_t>(w)];
    if (!worker) worker = std::make_unique<Worker>(task);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t columns = worker->SolveBatch(plan.batch_order[static_cast<size_t>(i)]);
      if (columns < 0) {
        cut_short.store(true, std::memory_order_relaxed);
        return;
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
    ShowM(context, result);
  }
  result.shown.FinishedAll();
  return result;
}

Result<StaticSpaiResult> BuildM(const StaticSpaiPlan& plan, const CscView& a,
                                const StaticSpaiOptions& options, const Context& context) {
  Array<uint8_t> flags;
  Result<StaticSpaiResult> result = BuildColumns(plan, a, options, context, flags);
  if (result.ok()) Summarise(flags, a.nnz(), context.threads, *result);
  return result;
}

Result<StaticSpaiPart> BuildPart(const StaticSpaiPlan& plan, const CscView& a,
                                 const StaticSpaiOptions& options, Context context) {
  Array<uint8_t> flags;
  context.result = nullptr;
  Result<StaticSpaiResult> result = BuildColumns(plan, a, options, context, flags);
  if (!result.ok()) return result.status();
  StaticSpaiPart part;
  part.m = std::move(result->m);
  for (const int32_t k : plan.members) {
    const auto at = static_cast<size_t>(k);
    part.outcomes.push_back(
        {k, flags[at], result->residual_norms[at], result->min_scaled_pivots[at]});
  }
  return part;
}

}  // namespace

Result<StaticSpaiResult> BuildStaticSpai(const StaticSpaiPlan& plan, const CscView& a,
                                         const StaticSpaiOptions& options, const Context& context) {
  return GuardMemory("build of static SPAI", [&] { return BuildM(plan, a, options, context); });
}

Result<StaticSpaiPart> BuildStaticSpaiPart(const StaticSpaiPlan& plan, const CscView& a,
                                           const StaticSpaiOptions& options,
                                           const Context& context) {
  return GuardMemory("build of static SPAI", [&] { return BuildPart(plan, a, options, context); });
}

StaticSpaiQuality Summarise(std::span<const ColumnResult> outcomes, int64_t nnz_a, int64_t nnz_m,
                            int threads) {
  StaticSpaiResult result;
  Array<uint8_t> flags(outcomes.size());
  result.residual_norms.resize(outcomes.size());
  result.min_scaled_pivots.resize(outcomes.size());
  for (const ColumnResult& outcome : outcomes) {
    const auto k = static_cast<size_t>(outcome.column);
    flags[k] = outcome.flags;
    result.residual_norms[k] = outcome.residual_norm;
    result.min_scaled_pivots[k] = outcome.min_scaled_pivot;
  }
  Summarise(flags, nnz_a, threads, result);
  result.quality.density = static_cast<double>(nnz_m) / static_cast<double>(nnz_a);
  return std::move(result.quality);
}

}  // namespace spaid::kernels
