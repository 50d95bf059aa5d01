// Dynamic SPAI behind the engine's face: plans, builds, warnings. Its options are checked and its
// sizes estimated by kernels/dynamic_spai.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/static_spai_engine.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct DynamicSpaiPlan {
  Pattern initial;   // from which it grows; no columns at all: the diagonal
  SpaiPlan numbers;  // of a grown pattern; none: a build grows one

  int64_t bytes() const;
};

// `user_pattern`: where growth begins; may be null. Errors: those of GrowDynamicSpai's arguments.
Result<std::shared_ptr<const DynamicSpaiPlan>> PlanDynamicSpai(const DynamicSpaiOptions& options,
                                                               const CscView& a,
                                                               const PatternView* user_pattern,
                                                               const Context& context);

struct DynamicSpaiBuild {
  SpaiBuild numbers;
  std::shared_ptr<const DynamicSpaiPlan> grown;  // BuildResult::grown
};
// Errors: those of GrowDynamicSpai, PlanSpai and BuildOnSpaiPlan.
Result<DynamicSpaiBuild> BuildOnDynamicSpaiPlan(const DynamicSpaiPlan& plan,
                                                const DynamicSpaiOptions& options,
                                                std::span<const std::shared_ptr<CudaDevice>> gpus,
                                                const CscView& a, const Context& context,
                                                DeviceTimings* timings);

}  // namespace spaid::kernels
