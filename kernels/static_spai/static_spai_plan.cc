#include "kernels/static_spai/static_spai_plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/step_progress.h"
#include "kernels/sparse/hash.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/group_survey.h"
#include "kernels/static_spai/lane_solver.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

namespace tuning = static_spai_tuning;

constexpr double kPatternShare = 0.3, kHashShare = 0.35, kGroupShare = 0.5;

// group[k]: the lowest column with the same J as column k, as far as it shows: columns of a group
// are looked for inside J_k only (all of them, where patterns have full diagonals). `shared`:
// whether any group has several.
Array<int32_t> FindGroups(const PatternView& m, const Context& context, StepProgress& progress,
                          std::atomic<bool>& shared, StopReason& stopped) {
  const int64_t n = m.n_cols;
  Array<uint64_t> hash(static_cast<size_t>(n));
  Array<int32_t> group(static_cast<size_t>(n));
  stopped = ParallelFor(n, 4096, context, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      hash[static_cast<size_t>(k)] = HashArray(m.column(k), 0);
    }
  });
  if (stopped != StopReason::kNone) return group;
  progress.NextStep(kGroupShare);
  stopped = ParallelFor(n, 4096, context, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      const std::span<const int32_t> j = m.column(k);
      int32_t found = static_cast<int32_t>(k);
      for (const int32_t l : j) {
        if (l >= k) break;
        if (hash[static_cast<size_t>(l)] != hash[static_cast<size_t>(k)]) continue;
        if (std::ranges::equal(m.column(l), j)) {
          found = l;
          shared.store(true, std::memory_order_relaxed);
          break;
        }
      }
      group[static_cast<size_t>(k)] = found;
    }
  });
  return group;
}

// Fills members and group_ptr; groups by their lowest column, at most kMaxGroup columns each.
void SortIntoGroups(const Array<int32_t>& group, bool shared, int threads, StaticSpaiPlan& plan) {
  const size_t n = group.size();
  plan.members.resize(n);
  if (!shared) {
    plan.group_ptr.resize(n + 1);
    plan.group_ptr[n] = static_cast<int32_t>(n);
    ParallelFor(static_cast<int64_t>(n), 1 << 16, threads, [&](int64_t begin, int64_t end, int) {
      std::iota(plan.members.begin() + begin, plan.members.begin() + end,
                static_cast<int32_t>(begin));
      std::iota(plan.group_ptr.begin() + begin, plan.group_ptr.begin() + end,
                static_cast<int32_t>(begin));
    });
    return;
  }
  Array<int32_t> next;
  next.assign(n + 1, 0);
  for (const int32_t g : group) ++next[static_cast<size_t>(g) + 1];
  for (size_t k = 0; k < n; ++k) next[k + 1] += next[k];
  plan.group_ptr.reserve(n + 1);
  for (size_t k = 0; k < n; ++k) {
    for (int32_t p = next[k]; p < next[k + 1]; p += tuning::kMaxGroup) plan.group_ptr.push_back(p);
  }
  plan.group_ptr.push_back(static_cast<int32_t>(n));
  for (size_t k = 0; k < n; ++k) {
    plan.members[static_cast<size_t>(next[static_cast<size_t>(group[k])]++)] =
        static_cast<int32_t>(k);
  }
}

// `ns`: predicted for each group.
void MakeBatches(const Array<float>& ns, StaticSpaiPlan& plan) {
  std::vector<int64_t> work;  // whole nanoseconds: sums of integers need not wait for each other
  plan.batch_ptr.push_back(0);
  int64_t sum = 0, in_lanes = 0;
  const auto add = [&](size_t g) {
    const auto own = static_cast<int64_t>(ns[g]);
    const int64_t limit =
        in_lanes > 0 && in_lanes < tuning::kLaneBatch ? tuning::kLaneBatchNs : tuning::kBatchNs;
    // A heavy group is a batch of its own: it shall not delay the stop of those before it.
    if (sum > 0 && sum + own > limit) {
      plan.batch_ptr.push_back(static_cast<int32_t>(g));
      work.push_back(sum);
      sum = 0;
      in_lanes = 0;
    }
    sum += own;
    in_lanes += plan.structure_of[g] >= 0;
  };
  // No thread helps here: groups that fit together whatever the limit are added together.
  constexpr size_t kTogether = 16;
  static_assert(tuning::kBatchNs <= tuning::kLaneBatchNs);
  for (size_t g = 0; g < ns.size();) {
    const size_t end = std::min(g + kTogether, ns.size());
    int64_t all = 0, all_in_lanes = 0;
    for (size_t i = g; i < end; ++i) {
      all += static_cast<int64_t>(ns[i]);
      all_in_lanes += plan.structure_of[i] >= 0;
    }
    if (sum + all <= tuning::kBatchNs) {
      sum += all;
      in_lanes += all_in_lanes;
      g = end;
    } else {
      while (g < end) add(g++);
    }
  }
  plan.batch_ptr.push_back(static_cast<int32_t>(ns.size()));
  work.push_back(sum);
  plan.batch_order.resize(work.size());
  std::iota(plan.batch_order.begin(), plan.batch_order.end(), 0);
  // Only what stands out moves to the front; the others stay in order, for the caches' sake.
  std::stable_partition(plan.batch_order.begin(), plan.batch_order.end(), [&](int32_t b) {
    return work[static_cast<size_t>(b)] > 2 * tuning::kLaneBatchNs;
  });
  const auto heavy = std::find_if(plan.batch_order.begin(), plan.batch_order.end(), [&](int32_t b) {
    return work[static_cast<size_t>(b)] <= 2 * tuning::kLaneBatchNs;
  });
  std::stable_sort(plan.batch_order.begin(), heavy, [&](int32_t x, int32_t y) {
    return work[static_cast<size_t>(x)] > work[static_cast<size_t>(y)];
  });
}

}  // namespace

Status CheckOptions(const PatternView& a, const StaticSpaiOptions& options) {
  if (a.n_rows != a.n_cols) {
    return Status(StatusCode::kInvalidArgument, "NOT_SQUARE",
                  "an approximate inverse needs a square matrix, this one has " +
                      std::to_string(a.n_rows) + " rows and " + std::to_string(a.n_cols) +
                      " columns");
  }
  return CheckRanges(options);
}

Status CheckColumns(const PatternView& a, int threads, int64_t first) {
  std::atomic<int64_t> empty = a.n_cols;  // the first empty column
  ParallelFor(a.n_cols, 1 << 16, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      if (a.col_ptr[static_cast<size_t>(j)] != a.col_ptr[static_cast<size_t>(j) + 1]) continue;
      Lower(empty, j);
      return;
    }
  });
  if (empty == a.n_cols) return {};
  return Status(StatusCode::kFailedPrecondition, "ZERO_COLUMN",
                "column " + std::to_string(first + empty) +
                    " of the matrix has no entry, so the matrix is singular and no approximate "
                    "inverse exists; remove the unknown or give it an equation")
      .At("column", first + empty);
}

double QrFlops(const LocalCounts& counts, int64_t n2, int64_t columns) {
  const auto m = static_cast<double>(std::max(counts.rows, n2)), n = static_cast<double>(n2);
  return 2 * m * n * n - 2 * n * n * n / 3 + 4 * m * n * static_cast<double>(columns);
}

double GramFlops(const LocalCounts& counts, int64_t n2, int64_t columns) {
  const auto n = static_cast<double>(n2), entries = static_cast<double>(counts.entries);
  return 2 * static_cast<double>(counts.gram_pairs) + n * n * n / 3 +
         static_cast<double>(columns) * (4 * n * n + 6 * entries);
}

namespace {

// x y for numbers >= 0; INT64_MAX on overflow.
int64_t Times(int64_t x, int64_t y) {
  int64_t product = 0;
  return __builtin_mul_overflow(x, y, &product) ? INT64_MAX : product;
}

int64_t Sum(std::initializer_list<int64_t> terms) {
  int64_t sum = 0;
  for (const int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return INT64_MAX;
  }
  return sum;
}

}  // namespace

int64_t PlanBytes(int64_t n, int64_t nnz_m, int64_t long_pairs) {
  // Pattern; members, groups, their structures and batches, of which there are at most n each; the
  // structures: at most 48 bytes an entry, and no more of them than share groups.
  return Sum({(n + 1) * 8, Times(nnz_m, 4), 5 * (n + 1) * 4, n, Times(long_pairs, sizeof(LongPair)),
              Times(MaxStructureEntries(nnz_m), 48),
              n / tuning::kMinShared * int64_t{sizeof(Structure)}, sizeof(StaticSpaiPlan)});
}

int64_t BuildBytes(int64_t n, int64_t nnz_m, int64_t long_pairs, const LocalCounts& largest,
                   int64_t n2_max, int threads, bool post_filter) {
  const int64_t m = Sum({Times(nnz_m, 12), (n + 1) * 8});
  const int64_t columns = n * (8 + 8 + 8 + 1 + 8);  // residuals, pivots, scales, flags, quantiles
  return Sum(
      {m, post_filter ? m : 0, columns, Times(long_pairs, sizeof(LongDot)),
       Times(threads, GroupSolver::Bytes(n, largest, n2_max) + LaneSolver::Bytes(largest, n2_max)),
       4096});
}

const StaticSpaiCounts& Counts(const StaticSpaiPlan& plan) { return plan.counts; }

void CompletePlan(const PatternView& a, const GroupSurvey& survey, const StaticSpaiOptions& options,
                  int threads, StaticSpaiPlan& plan) {
  MakeBatches(survey.build_ns(), plan);
  StaticSpaiCounts& counts = plan.counts;
  counts.n = a.n_cols;
  counts.nnz_a = a.nnz();
  counts.nnz_m = plan.pattern.nnz();
  counts.n1_max = plan.largest.n1;
  counts.n2_max = survey.totals().n2_max;
  counts.sum_n1 = survey.totals().sum_n1;
  counts.qr_flops = survey.totals().qr_flops;
  counts.gram_flops = survey.totals().gram_flops;
  const auto pairs = static_cast<int64_t>(plan.long_pairs.size());
  counts.plan_bytes = PlanBytes(counts.n, counts.nnz_m, pairs);
  counts.build_bytes = BuildBytes(counts.n, counts.nnz_m, pairs, plan.largest, counts.n2_max,
                                  threads, options.post_filter > 0);
}

namespace {

Result<std::shared_ptr<const StaticSpaiPlan>> MakePlan(const CscView& a,
                                                       const PatternView* user_pattern,
                                                       const StaticSpaiOptions& options,
                                                       const Context& caller) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status = CheckColumns(a, caller.threads); !status.ok()) return status;
  StepProgress progress(caller.progress, Stage::kPlan, a.n_cols);
  Context context = caller;
  if (caller.progress != nullptr) context.progress = &progress;
  progress.NextStep(kPatternShare);
  Result<Pattern> pattern = BuildPattern(a, user_pattern, options.pattern, context);
  if (!pattern.ok()) return pattern.status();
  auto plan = std::make_shared<StaticSpaiPlan>();
  plan->pattern = *std::move(pattern);
  const PatternView m = plan->pattern;
  plan->pattern_hash = HashPattern(a, context.threads);
  plan->equal_columns = FindEqualColumns(a, context.threads);

  StopReason stopped = StopReason::kNone;
  progress.NextStep(kHashShare);
  std::atomic<bool> shared = false;
  const Array<int32_t> group = FindGroups(m, context, progress, shared, stopped);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "plan of static SPAI");
  SortIntoGroups(group, shared, context.threads, *plan);

  progress.NextStep(1);
  const int threads = ResolveThreads(context.threads);
  GroupSurvey survey(a, options, threads, *plan);
  stopped = survey.Run(context);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "plan of static SPAI");
  CompletePlan(a, survey, options, threads, *plan);
  return std::shared_ptr<const StaticSpaiPlan>(std::move(plan));
}

}  // namespace

Result<std::shared_ptr<const StaticSpaiPlan>> PlanStaticSpai(const CscView& a,
                                                             const PatternView* user_pattern,
                                                             const StaticSpaiOptions& options,
                                                             const Context& context) {
  return GuardMemory("plan of static SPAI",
                     [&] { return MakePlan(a, user_pattern, options, context); });
}

}  // namespace spaid::kernels
