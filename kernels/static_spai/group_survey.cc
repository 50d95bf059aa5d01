#include "kernels/static_spai/group_survey.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/lane_solver.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

namespace tuning = static_spai_tuning;

}  // namespace

void GroupFigures::Add(const GroupFigures& other) {
  sum_n1 += other.sum_n1;
  n2_max = std::max(n2_max, other.n2_max);
  qr_flops += other.qr_flops;
  gram_flops += other.gram_flops;
  build_ns += other.build_ns;
  plan_ns += other.plan_ns;
}

GroupSurvey::GroupSurvey(const CscView& a, const StaticSpaiOptions& options, int threads,
                         StaticSpaiPlan& plan)
    : a_(a),
      options_(options),
      threads_(threads),
      plan_(plan),
      groups_(plan.groups()),
      workers_(static_cast<size_t>(threads)),
      build_ns_(static_cast<size_t>(groups_.size())) {}

StopReason GroupSurvey::Run(const Context& context) {
  ShiftClasses columns;
  if (const StopReason reason = ClassifyColumns(a_, context, columns);
      reason != StopReason::kNone) {
    return reason;
  }
  ShiftClasses classes;
  if (const StopReason reason = ClassifyGroups(groups_, columns, context, classes);
      reason != StopReason::kNone) {
    return reason;
  }
  return Finish(Survey(std::move(classes)), groups_.m.nnz(), context);
}

std::vector<LaneOffer> GroupSurvey::Survey(ShiftClasses classes) {
  classes_ = std::move(classes);
  of_class_.resize(static_cast<size_t>(classes_.size()));
  ParallelFor(classes_.size(), 1, threads_, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t c = begin; c < end; ++c) SurveyClass(static_cast<size_t>(c), worker);
  });
  std::vector<LaneOffer> offers;
  for (size_t c = 0; c < of_class_.size(); ++c) {
    const OfClass& own = of_class_[c];
    if (own.lanes) {
      offers.push_back(
          {classes_.uses[c] * (own.figures.build_ns - own.lane_ns), own.counts.entries, 1});
    } else {
      offers.emplace_back();
    }
  }
  return offers;
}

StopReason GroupSurvey::Finish(const std::vector<LaneOffer>& offers, int64_t nnz_m,
                               const Context& context) {
  MakeStructures(offers, nnz_m);
  plan_.structure_of.resize(static_cast<size_t>(groups_.size()));
  constexpr int64_t kBatch = 512;
  std::vector<GroupFigures> sums(static_cast<size_t>((groups_.size() + kBatch - 1) / kBatch));
  const StopReason stopped = ParallelFor(
      groups_.size(), kBatch, context, Stage::kPlan, [&](int64_t begin, int64_t end, int worker) {
        GroupFigures sum;
        for (int64_t i = begin; i < end; ++i) {
          const auto g = static_cast<size_t>(i);
          const int32_t c = classes_.of[g];
          const bool shared = c >= 0 && of_class_[static_cast<size_t>(c)].shared;
          const OfClass* const own = shared ? &of_class_[static_cast<size_t>(c)] : nullptr;
          const GroupFigures figures = shared ? own->figures : Figures(i, Count(i, worker));
          plan_.structure_of[g] = shared ? own->structure : -1;
          build_ns_[g] = static_cast<float>(figures.build_ns);
          sum.Add(figures);
        }
        sums[static_cast<size_t>(begin / kBatch)] = sum;
      });
  for (const GroupFigures& sum : sums) totals_.Add(sum);
  std::vector<LongPairs> long_pairs;
  for (Worker& own : workers_) {
    plan_.largest.TakeLargest(own.largest);
    long_pairs.push_back(std::move(own.long_pairs));
  }
  plan_.long_pairs = LongPairs::Merge(long_pairs);
  return stopped;
}

LocalCounts GroupSurvey::Count(int64_t g, int worker) {
  Worker& own = workers_[static_cast<size_t>(worker)];
  if (!own.counter) own.counter.emplace(a_.n_cols);
  const std::span<const int32_t> j = groups_.columns(g);
  const LocalCounts counts = own.counter->Count(a_, plan_.equal_columns, j);
  own.long_pairs.Add(own.counter->longs(), j);
  own.largest.TakeLargest(counts);
  return counts;
}

GroupFigures GroupSurvey::Figures(int64_t g, const LocalCounts& counts) const {
  GroupFigures figures;
  figures.sum_n1 = counts.n1 * width(g);
  figures.n2_max = n2(g);
  figures.qr_flops = QrFlops(counts, n2(g), width(g));
  figures.gram_flops = GramFlops(counts, n2(g), width(g));
  figures.build_ns = PredictNs(options_.local_solver, counts, n2(g), width(g));
  figures.plan_ns = PredictPlanNs(counts, n2(g), width(g));
  return figures;
}

void GroupSurvey::SurveyClass(size_t c, int worker) {
  if (classes_.uses[c] < tuning::kMinShared || classes_.first[c] < 0) return;
  const int64_t g = classes_.first[c];
  OfClass& own = of_class_[c];
  own.counts = Count(g, worker);
  // A compressed column depends on values outside the local problem, so that groups are not equal.
  own.shared = workers_[static_cast<size_t>(worker)].counter->longs().count == 0;
  if (!own.shared) return;
  own.figures = Figures(g, own.counts);
  own.figures.plan_ns = PredictSharedPlanNs(n2(g), width(g));
  own.lane_ns = PredictLaneNs(own.counts, n2(g), width(g));
  own.lanes = PrefersLanes(options_.local_solver, own.counts, n2(g), width(g)) && ReachesTargets(g);
}

bool GroupSurvey::ReachesTargets(int64_t g) const {
  return std::ranges::all_of(groups_.group(g), [&](int32_t k) {
    return std::ranges::any_of(
        groups_.columns(g), [&](int32_t j) { return std::ranges::binary_search(a_.column(j), k); });
  });
}

// Makes the structures of the classes that save most, as many as fit their share of the plan.
void GroupSurvey::MakeStructures(const std::vector<LaneOffer>& offers, int64_t nnz_m) {
  std::vector<size_t> chosen;
  for (size_t c = 0; c < offers.size(); ++c) {
    if (offers[c].lanes != 0) chosen.push_back(c);
  }
  std::ranges::stable_sort(chosen, std::ranges::greater(),
                           [&](size_t c) { return offers[c].saving_ns; });
  int64_t entries = 0;
  std::erase_if(chosen, [&](size_t c) {
    const int64_t more = entries + offers[c].entries;
    if (more > MaxStructureEntries(nnz_m)) return true;
    entries = more;
    return false;
  });
  std::erase_if(chosen, [&](size_t c) { return !of_class_[c].lanes; });  // others'
  plan_.structures.resize(chosen.size());
  const auto make = [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const int64_t g = classes_.first[chosen[i]];
      plan_.structures[i] = MakeStructure(a_, groups_.columns(g), groups_.group(g));
      OfClass& own = of_class_[chosen[i]];
      own.structure = static_cast<int32_t>(i);
      own.figures.build_ns = own.lane_ns;
    }
  };
  ParallelFor(static_cast<int64_t>(chosen.size()), 1, threads_, make);
}

}  // namespace spaid::kernels
