#include "kernels/static_spai/static_spai_part.h"

#include <utility>

#include "kernels/base/parallel.h"

namespace spaid::kernels {

PartPlanner::PartPlanner(const CscView& a, Pattern pattern, Array<int32_t> members,
                         Array<int32_t> group_ptr, const StaticSpaiOptions& options, int threads)
    : a_(a),
      options_(options),
      threads_(ResolveThreads(threads)),
      plan_(std::make_shared<StaticSpaiPlan>()) {
  plan_->pattern = std::move(pattern);
  plan_->members = std::move(members);
  plan_->group_ptr = std::move(group_ptr);
  plan_->pattern_hash = HashPattern(a_, threads_);
  plan_->equal_columns = FindEqualColumns(a_, threads_);
  survey_.emplace(a_, options_, threads_, *plan_);
}

std::vector<LaneOffer> PartPlanner::Survey(ShiftClasses classes) {
  return survey_->Survey(std::move(classes));
}

Result<std::shared_ptr<const StaticSpaiPlan>> PartPlanner::Finish(
    const std::vector<LaneOffer>& offers, int64_t nnz_m, const Context& context) {
  const StopReason stopped = survey_->Finish(offers, nnz_m, context);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "plan of static SPAI");
  CompletePlan(a_, *survey_, options_, threads_, *plan_);
  survey_.reset();
  return std::shared_ptr<const StaticSpaiPlan>(std::move(plan_));
}

}  // namespace spaid::kernels
