#include "kernels/dynamic_spai/dynamic_spai.h"

namespace spaid::kernels {

StaticSpaiOptions NumbersOf(const DynamicSpaiOptions& options) {
  StaticSpaiOptions numbers;
  numbers.local_solver = options.local_solver;
  numbers.post_filter = options.post_filter;
  return numbers;
}

Result<DynamicSpaiPattern> GrowDynamicSpai(const CscView& a, const PatternView* initial,
                                           const DynamicSpaiOptions& options,
                                           const Context& /*context*/) {
  if (Status status = CheckDynamicSpai(a, initial, options); !status.ok()) return status;
  return Status(StatusCode::kInternal, "NOT_YET", "growth comes with the next commit");
}

Result<DynamicSpaiCounts> EstimateDynamicSpai(const PatternView& a, const PatternView* initial,
                                              const DynamicSpaiOptions& options,
                                              const Context& /*context*/) {
  if (Status status = CheckDynamicSpai(a, initial, options); !status.ok()) return status;
  return DynamicSpaiCounts{};
}

}  // namespace spaid::kernels
