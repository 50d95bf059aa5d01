// Counts the sizes and work of a plan's local problems, group by group. Internal to this room.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/parallel.h"
#include "kernels/static_spai/static_spai_plan.h"
#include "kernels/static_spai/structure.h"

namespace spaid::kernels {

// Figures of a group, or sums over several.
struct GroupFigures {
  int64_t sum_n1 = 0, n2_max = 0;
  double qr_flops = 0, gram_flops = 0;
  double build_ns = 0, plan_ns = 0;

  void Add(const GroupFigures& other);
};

// Groups of one class whose local problems a structure would serve: what it saves, and costs.
struct LaneOffer {
  double saving_ns = 0;
  int64_t entries = 0;
  int64_t lanes = 0;  // 1: it is worth one
};

// Counts all groups, once where they are shifted copies of one another, and makes structures of
// those. Reads the pattern, groups and equal_columns of the plan; fills structures, structure_of,
// largest and long_pairs.
class GroupSurvey {
 public:
  GroupSurvey(const CscView& a, const StaticSpaiOptions& options, int threads,
              StaticSpaiPlan& plan);
  StopReason Run(const Context& context);

  // Run in two steps, where other processes have groups, too. `classes`: of these groups; uses are
  // those of all processes, first[c] is -1 where there is none of class c here. The offers of the
  // classes; those of classes that are not here are empty.
  std::vector<LaneOffer> Survey(ShiftClasses classes);
  // `offers`: of all processes; `nnz_m`: of the whole M.
  StopReason Finish(const std::vector<LaneOffer>& offers, int64_t nnz_m, const Context& context);

  // Predicted nanoseconds of the build of each group.
  const Array<float>& build_ns() const { return build_ns_; }
  // Over all groups; the same for any number of threads.
  const GroupFigures& totals() const { return totals_; }

 private:
  struct alignas(kApart) Worker {
    std::optional<LocalCounter> counter;
    LocalCounts largest;
    LongPairs long_pairs;
  };
  struct OfClass {
    bool shared = false;  // its groups are counted once
    LocalCounts counts;
    GroupFigures figures;
    bool lanes = false;  // worth a structure
    double lane_ns = 0;
    int32_t structure = -1;
  };

  int64_t n2(int64_t g) const { return static_cast<int64_t>(groups_.columns(g).size()); }
  int64_t width(int64_t g) const { return static_cast<int64_t>(groups_.group(g).size()); }

  LocalCounts Count(int64_t g, int worker);
  GroupFigures Figures(int64_t g, const LocalCounts& counts) const;
  void SurveyClass(size_t c, int worker);
  bool ReachesTargets(int64_t g) const;  // k in I, for each column of the group
  void MakeStructures(const std::vector<LaneOffer>& offers, int64_t nnz_m);

  const CscView& a_;
  const StaticSpaiOptions& options_;
  const int threads_;
  StaticSpaiPlan& plan_;
  const GroupsView groups_;
  std::vector<Worker> workers_;
  Array<float> build_ns_;
  GroupFigures totals_;
  ShiftClasses classes_;
  std::vector<OfClass> of_class_;
};

}  // namespace spaid::kernels
