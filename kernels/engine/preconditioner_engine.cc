#include "kernels/engine/preconditioner_engine.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/reasons.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/options.h"

namespace spaid::kernels {
namespace {

Status PlanMismatch(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                what + "; make a plan for this matrix and spec")
      .At("plan");
}

// "1, 2"
std::string Names(const std::vector<int>& devices) {
  std::string names;
  for (const int device : devices) names += (names.empty() ? "" : ", ") + std::to_string(device);
  return names;
}

}  // namespace

Result<BuildResult> EnginePlan::Build(const PreconditionerSpec& spec, const CscView& a,
                                      const Context& context) const {
  const auto start = Clock::now();
  if (Status s = CheckResolved(spec); !s.ok()) return s;
  if (for_.kind != spec.engine) return PlanMismatch("the plan is for another kind of engine");
  if (const std::vector<int> asked = DevicesFor(TraitsOf(spec.engine), context);
      for_.devices != asked) {
    return PlanMismatch("the plan is for device " + Names(for_.devices) + ", not " + Names(asked));
  }
  for (const auto& gpu : for_.gpus) {
    if (Status s = CheckNotLost(*gpu); !s.ok()) return s;
  }
  if (for_.n != a.n_cols || for_.nnz != a.nnz()) {
    return PlanMismatch("the plan is for n = " + std::to_string(for_.n) + " with " +
                        std::to_string(for_.nnz) + " entries, the matrix has n = " +
                        std::to_string(a.n_cols) + " with " + std::to_string(a.nnz()));
  }
  if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
    return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                  "the matrix holds a pattern only; a build needs its values")
        .At("values");
  }
  if (for_.scaling != spec.scaling) {
    return PlanMismatch("the plan is for scaling = " + WireName(for_.scaling) + ", not " +
                        WireName(spec.scaling));
  }
  if (const std::string differ = Differences(spec); !differ.empty()) {
    return PlanMismatch("the plan is for " + differ);
  }
  BuildResult result;
  auto made = MakeM(spec, a, context, &result.timings);
  if (!made.ok()) return made.status();
  if (made->hierarchy != nullptr) {
    result.preconditioner = HostPreconditioner::Of(spec.engine, std::move(made->hierarchy));
    result.quality = std::move(made->quality);
    result.grown = std::move(made->grown);
    result.build_ms = MsSince(start);
    return result;
  }
  if (IsStandIn(a) || TraitsOf(spec.engine).ranks_alone) {
    result.preconditioner =
        HostPreconditioner::Over(spec.engine, a.n_cols, ForCg(spec), made->over_ranks);
    result.quality = std::move(made->quality);
    result.build_ms = MsSince(start);
    return result;
  }
  const auto assembling = Clock::now();
  const bool on_host = (for_.gpus.empty() && for_.ranks == nullptr) || !made->row_scaling.empty();
  auto kept = HostPreconditioner::Make(spec.engine, std::move(made->m), context, on_host,
                                       std::move(made->g_columns), std::move(made->shown),
                                       std::move(made->row_scaling));
  if (!kept.ok()) return kept.status();
  result.timings.assemble_ms = MsSince(assembling);
  (*kept)->Keep(std::move(made->on_device));
  (*kept)->Keep(std::move(made->over_ranks));
  result.preconditioner = *std::move(kept);
  result.quality = std::move(made->quality);
  result.grown = std::move(made->grown);
  result.build_ms = MsSince(start);
  return result;
}

PreconditionerSpec PreconditionerEngine::OwnOptions(const PreconditionerSpec& spec) const {
  PreconditionerSpec own;
  own.engine = traits_.kind;
  own.scaling = spec.scaling;
  return own;
}

Result<ResolvedSpec> PreconditionerEngine::Resolve(const PreconditionerSpec& spec, const CscView&,
                                                   const Diagnosis&, const PatternView*,
                                                   const Context&) const {
  return ResolvedSpec{OwnOptions(spec), ""};
}

RanksDevice::Made SpreadTimed(RanksDevice& ranks, const CscView& a, const Context& context,
                              DeviceTimings* timings) {
  const auto start = Clock::now();
  auto spread = ranks.SpreadMatrix(a, context);
  timings->host_to_device_ms += MsSince(start);
  return spread;
}

int64_t CscBytes(int64_t n, int64_t nnz) {
  return (n + 1) * static_cast<int64_t>(sizeof(int64_t)) +
         nnz * static_cast<int64_t>(sizeof(int32_t) + sizeof(double));
}

int64_t RowScratchBytes(int64_t n, int64_t nnz) {
  const auto counter = static_cast<int64_t>(nnz <= INT32_MAX ? sizeof(int32_t) : sizeof(int64_t));
  return counter * std::max(n, nnz);
}

void PredictBuild(const BuildRates& rates, const BuildWork& work, int threads, BuildEstimate* e) {
  e->flops = work.flops;
  e->predicted_ms = BuildMs(rates, work, threads);
  e->predicted_device_ms = DeviceBuildMs(rates, work);
}

}  // namespace spaid::kernels
