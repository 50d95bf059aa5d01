#include "kernels/engine/dynamic_spai_engine.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/dynamic_spai/dynamic_spai_cuda.h"
#include "kernels/engine/engine_parts.h"

namespace spaid::kernels {
namespace {

std::vector<std::string> Warnings(const DynamicSpaiQuality& q, const DynamicSpaiOptions& options,
                                  int64_t n) {
  std::vector<std::string> out;
  if (q.dependent_columns > 0) {
    out.push_back(
        Columns(q.dependent_columns, n, q.first_dependent) +
        " of M met columns of A that depend on those they have, and grew no further: A is singular "
        "there, or nearly" +
        (options.fp32_growth ? ", or so in fp32; fp32_growth = false tells which" : ""));
  }
  return out;
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
                                                const CscView& a, const Context& context,
                                                DeviceTimings* timings) {
  DynamicSpaiBuild out;
  SpaiPlan numbers = plan.numbers;
  DynamicSpaiQuality quality;
  if (!numbers) {
    const PatternView initial = plan.initial;
    const PatternView* const start = plan.initial.col_ptr.empty() ? nullptr : &initial;
    DynamicSpaiCudaTimings own;
    std::unique_ptr<SpaiOnDevice> there;
    auto pattern = gpus.empty()
                       ? GrowDynamicSpai(a, start, options, context)
                       : GrowDynamicSpaiCuda(gpus, a, start, options, context, &own, &there);
    if (!pattern.ok()) return pattern.status();
    Add(own, timings);
    const PatternView of_m = pattern->m;
    auto made = PlanSpai(NumbersOf(options), a, &of_m, gpus, context, timings, std::move(there));
    if (!made.ok()) return made.status();
    numbers = *std::move(made);
    quality = std::move(pattern->quality);
    auto grown = std::make_shared<DynamicSpaiPlan>();
    grown->numbers = numbers;
    out.grown = std::move(grown);
  }
  auto built = BuildOnSpaiPlan(numbers, NumbersOf(options), a, context, timings);
  if (!built.ok()) return built.status();
  out.numbers = *std::move(built);
  Quality& all = out.numbers.quality;
  all.pattern_reused = static_cast<bool>(plan.numbers);
  if (!all.pattern_reused) {
    for (std::string& warning : Warnings(quality, options, a.n_cols)) {
      all.warnings.push_back(std::move(warning));
    }
    all.dynamic_spai = std::move(quality);
  }
  return Result<DynamicSpaiBuild>(std::move(out));
}

}  // namespace spaid::kernels
