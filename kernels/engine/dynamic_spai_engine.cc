#include "kernels/engine/dynamic_spai_engine.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/step_progress.h"
#include "kernels/dynamic_spai/dynamic_spai_cuda.h"
#include "kernels/engine/engine_parts.h"

namespace spaid::kernels {
namespace {

// Of the progress of a build that grows its pattern: where growth ends, and the plan on it.
constexpr double kGrowthShare = 0.7, kPlanShare = 0.8;

void AddWarnings(const DynamicSpaiQuality& q, const DynamicSpaiOptions& options, int64_t n,
                 std::vector<std::string>* warnings) {
  if (q.dependent_columns > 0) {
    warnings->push_back(
        Columns(q.dependent_columns, n, q.first_dependent) +
        " of M asked for columns of A that depend on those they had, and grew no further: A is "
        "singular there, or nearly" +
        (options.growth_precision == Precision::kFp32
             ? ", or so in fp32; growth in fp64 tells which"
             : ""));
  }
  if (options.tol > 0 && q.converged_columns < n) {
    warnings->push_back(std::to_string(n - q.converged_columns) + " of " + std::to_string(n) +
                        " columns of M did not come to a residual of tol = " + Figure(options.tol) +
                        "; more steps, or more entries a step, bring them further");
  }
}

// Adds what growth measured.
void Add(const DynamicSpaiCudaTimings& from, DeviceTimings* to) {
  to->host_to_device_ms += from.host_to_device_ms;
  to->device_to_host_ms += from.device_to_host_ms;
  to->device_bytes = std::max(to->device_bytes, from.device_bytes);
  to->waves = std::max(to->waves, from.waves);
  to->host_columns += from.host_columns;
}

}  // namespace

int64_t DynamicSpaiPlan::bytes() const {
  return static_cast<int64_t>(sizeof(DynamicSpaiPlan) + initial.col_ptr.size() * sizeof(int64_t) +
                              initial.row_idx.size() * sizeof(int32_t)) +
         numbers.host_bytes();
}

Result<std::shared_ptr<const DynamicSpaiPlan>> PlanDynamicSpai(const DynamicSpaiOptions& options,
                                                               const CscView& a,
                                                               const PatternView* user_pattern,
                                                               const Context& context) {
  if (Status status = CheckDynamicSpai(a, user_pattern, options); !status.ok()) return status;
  return GuardMemory("plan of dynamic SPAI",
                     [&]() -> Result<std::shared_ptr<const DynamicSpaiPlan>> {
                       auto plan = std::make_shared<DynamicSpaiPlan>();
                       if (user_pattern != nullptr) {
                         Pattern& initial = plan->initial;
                         initial.n_rows = user_pattern->n_rows;
                         initial.n_cols = user_pattern->n_cols;
                         initial.col_ptr.resize(user_pattern->col_ptr.size());
                         initial.row_idx.resize(user_pattern->row_idx.size());
                         ParallelCopy(user_pattern->col_ptr, initial.col_ptr, context.threads);
                         ParallelCopy(user_pattern->row_idx, initial.row_idx, context.threads);
                       }
                       return std::shared_ptr<const DynamicSpaiPlan>(std::move(plan));
                     });
}

Result<DynamicSpaiBuild> BuildOnDynamicSpaiPlan(const DynamicSpaiPlan& plan,
                                                const DynamicSpaiOptions& options,
                                                std::span<const std::shared_ptr<CudaDevice>> gpus,
                                                const CscView& a, const Context& with_progress,
                                                DeviceTimings* timings) {
  Context context = with_progress;
  StepProgress progress(with_progress.progress, Stage::kBuild, a.n_cols);
  if (with_progress.progress != nullptr) context.progress = &progress;
  const StaticSpaiOptions numbers = NumbersOf(options);
  DynamicSpaiBuild out;
  SpaiPlan on = plan.numbers;
  DynamicSpaiQuality growth;
  if (!on) {
    progress.NextStep(kGrowthShare);
    const PatternView initial = plan.initial;
    const PatternView* const start = initial.n_cols == 0 ? nullptr : &initial;
    DynamicSpaiCudaTimings own;
    std::unique_ptr<SpaiOnDevice> there;
    auto pattern = gpus.empty()
                       ? GrowDynamicSpai(a, start, options, context)
                       : GrowDynamicSpaiCuda(gpus, a, start, options, context, &own, &there);
    if (!pattern.ok()) return pattern.status();
    Add(own, timings);
    growth = std::move(pattern->quality);
    progress.NextStep(kPlanShare);
    const PatternView of_m = pattern->m;
    auto made = PlanSpai(numbers, a, &of_m, gpus, context, timings, std::move(there));
    if (!made.ok()) return made.status();
    on = *std::move(made);
    auto grown = std::make_shared<DynamicSpaiPlan>();
    grown->numbers = on;
    out.grown = std::move(grown);
  }
  progress.NextStep(1);
  auto built = BuildOnSpaiPlan(on, numbers, /*grown=*/true, a, context, timings);
  if (!built.ok()) return built.status();
  out.numbers = *std::move(built);
  Quality& quality = out.numbers.quality;
  quality.pattern_reused = out.grown == nullptr;
  if (out.grown != nullptr) AddWarnings(growth, options, a.n_cols, &quality.warnings);
  quality.dynamic_spai = std::move(growth);
  return Result<DynamicSpaiBuild>(std::move(out));
}

}  // namespace spaid::kernels
