#include "kernels/static_spai/host_columns.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

// Neighbours with equal J among the columns that are left.
std::vector<std::vector<int32_t>> GroupLeft(const PatternView& m, const Array<uint8_t>& flags) {
  std::vector<std::vector<int32_t>> groups;
  for (int64_t k = 0; k < m.n_cols; ++k) {
    if (flags[static_cast<size_t>(k)] != 0) continue;
    const bool joins = !groups.empty() &&
                       static_cast<int64_t>(groups.back().size()) < static_spai_tuning::kMaxGroup &&
                       std::ranges::equal(m.column(groups.back()[0]), m.column(k));
    if (!joins) groups.emplace_back();
    groups.back().push_back(static_cast<int32_t>(k));
  }
  return groups;
}

}  // namespace

StopReason SolveLeftColumns(const CscView& a, const StaticSpaiOptions& options,
                            const Context& context, StaticSpaiResult& result,
                            Array<uint8_t>& flags) {
  const PatternView m = result.m.pattern();
  const std::vector<std::vector<int32_t>> groups = GroupLeft(m, flags);
  const auto count = static_cast<int64_t>(groups.size());
  const Array<uint8_t> equal_columns = FindEqualColumns(a, context.threads);
  struct alignas(kApart) Worker {
    std::optional<LocalCounter> counter;
    LocalCounts largest;
    int64_t n2_max = 0;
    LongPairs long_pairs;
    std::optional<GroupSolver> solver;
  };
  std::vector<Worker> workers(static_cast<size_t>(ResolveThreads(context.threads)));
  Context quiet = context;
  quiet.progress = nullptr;
  StopReason stopped =
      ParallelFor(count, 1, quiet, Stage::kBuild, [&](int64_t begin, int64_t end, int w) {
        Worker& own = workers[static_cast<size_t>(w)];
        if (!own.counter) own.counter.emplace(a.n_cols);
        for (int64_t g = begin; g < end; ++g) {
          const auto j = m.column(groups[static_cast<size_t>(g)][0]);
          own.largest.TakeLargest(own.counter->Count(a, equal_columns, j));
          own.n2_max = std::max(own.n2_max, static_cast<int64_t>(j.size()));
          own.long_pairs.Add(own.counter->longs(), j);
        }
      });
  if (stopped != StopReason::kNone) return stopped;
  LocalCounts largest;
  int64_t n2_max = 0;
  std::vector<LongPairs> parts;
  for (Worker& own : workers) {
    largest.TakeLargest(own.largest);
    n2_max = std::max(n2_max, own.n2_max);
    parts.push_back(std::move(own.long_pairs));
  }
  const Array<LongPair> long_pairs = LongPairs::Merge(parts);
  const ColumnScales scales = ScaleColumns(a, long_pairs, context.threads);

  std::atomic<bool> cut_short = false;
  stopped = ParallelFor(count, 1, quiet, Stage::kBuild, [&](int64_t begin, int64_t end, int w) {
    Worker& own = workers[static_cast<size_t>(w)];
    if (!own.solver) own.solver.emplace(a.n_cols, largest, n2_max);
    for (int64_t g = begin; g < end; ++g) {
      const std::vector<int32_t>& targets = groups[static_cast<size_t>(g)];
      std::array<double*, static_spai_tuning::kMaxGroup> values{};
      std::array<ColumnOutcome, static_spai_tuning::kMaxGroup> outcomes{};
      for (size_t t = 0; t < targets.size(); ++t) {
        values[t] = result.m.values.data() + m.col_ptr[static_cast<size_t>(targets[t])];
      }
      if (!own.solver->Solve(a, scales, equal_columns, m.column(targets[0]), targets, options,
                             context.stop, {values.data(), targets.size()},
                             {outcomes.data(), targets.size()})) {
        cut_short = true;
        return;
      }
      for (size_t t = 0; t < targets.size(); ++t) {
        const auto k = static_cast<size_t>(targets[t]);
        result.residual_norms[k] = outcomes[t].residual_norm;
        result.min_scaled_pivots[k] = outcomes[t].min_scaled_pivot;
        flags[k] = outcomes[t].flags;
      }
    }
  });
  return cut_short ? context.stop.Poll() : stopped;
}

}  // namespace spaid::kernels
