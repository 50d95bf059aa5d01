// Some columns of an M whose others are other processes' business: bit for bit those that one
// process would make. For kernels/mpi.
//
// A bit depends on which columns are solved together: on the groups with equal J, and on the groups
// that have a structure because enough of their kind are there. Both are decided over the whole of
// M, by the numbers of the whole, and told to the planner; how much of M else is here makes no
// difference.
//
//   PartPlanner planner(a, pattern, members, group_ptr, options, context.threads);
//   std::vector<LaneOffer> offers = planner.Survey(classes);  // of the groups here
//   ... the offers of all processes, class by class ...
//   Result<std::shared_ptr<const StaticSpaiPlan>> plan = planner.Finish(offers, nnz_m, context);
//   Result<StaticSpaiPart> part = BuildStaticSpaiPart(**plan, a, options, context);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/static_spai/group_survey.h"
#include "kernels/static_spai/static_spai.h"
#include "kernels/static_spai/static_spai_plan.h"
#include "kernels/static_spai/structure.h"

namespace spaid::kernels {

// Plans columns of M. Not thread-safe.
class PartPlanner {
 public:
  // `a`: square; rows and columns are numbered in the order of the whole matrix, with those left
  // out that are not needed: each column of some J is there with all its rows, others are empty.
  // Borrowed until Finish. `pattern`: of M in these numbers, empty columns where they are not
  // planned here. `members`, `group_ptr`: as in StaticSpaiPlan, at least one group.
  PartPlanner(const CscView& a, Pattern pattern, Array<int32_t> members, Array<int32_t> group_ptr,
              const StaticSpaiOptions& options, int threads);

  // As GroupSurvey's.
  std::vector<LaneOffer> Survey(ShiftClasses classes);
  // Errors: stop statuses. Once.
  Result<std::shared_ptr<const StaticSpaiPlan>> Finish(const std::vector<LaneOffer>& offers,
                                                       int64_t nnz_m, const Context& context);

 private:
  const CscView a_;
  const StaticSpaiOptions options_;
  const int threads_;
  std::shared_ptr<StaticSpaiPlan> plan_;
  std::optional<GroupSurvey> survey_;
};

// How a column of M came out.
struct ColumnResult {
  int32_t column = 0;
  uint8_t flags = 0;  // ColumnFlag
  double residual_norm = 0;
  double min_scaled_pivot = 1;
};

struct StaticSpaiPart {
  CscMatrix m;  // in the numbers of the part
  std::vector<ColumnResult> outcomes;
};

// As BuildStaticSpai, without quality; context.result is not read.
Result<StaticSpaiPart> BuildStaticSpaiPart(const StaticSpaiPlan& plan, const CscView& a,
                                           const StaticSpaiOptions& options,
                                           const Context& context);

// The quality of a whole M, from the outcomes of all its columns in any order, each once.
StaticSpaiQuality Summarise(std::span<const ColumnResult> outcomes, int64_t nnz_a, int64_t nnz_m,
                            int threads);

}  // namespace spaid::kernels
