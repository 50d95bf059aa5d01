// An engine as the rest of the house sees it. One object of each is in the table of engines.cc;
// nobody else names one to check, estimate, plan or build.
//
//   const PreconditionerEngine* engine = FindEngine(spec.engine);
//   Status ok = engine->Check(spec);
//   auto plan = engine->MakePlan(spec, a, nullptr, for_what, context);
//   auto built = (*plan)->Build(spec, a, context);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/status.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/engine/spec.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Common to every plan: whom it is for.
struct PlanFor {
  EngineKind kind = EngineKind::kNone;
  int64_t n = 0, nnz = 0;
  std::vector<int> devices;                       // Plan::devices()
  std::vector<std::shared_ptr<CudaDevice>> gpus;  // the same where they are GPUs
  std::shared_ptr<RanksDevice> ranks;             // the same where it is they; neither: the CPU
  ScalingMode scaling = ScalingMode::kNone;       // that its builds are asked for
};

// A plan of any engine: looks after what all have in common. What is particular to one derives from
// this.
class EnginePlan : public Plan {
 public:
  int device() const final { return for_.devices.front(); }
  std::vector<int> devices() const final { return for_.devices; }
  DeviceTimings timings() const final { return made_in_; }
  Result<BuildResult> Build(const PreconditionerSpec& spec, const CscView& a,
                            const Context& context) const final;

 protected:
  explicit EnginePlan(PlanFor of) : for_(std::move(of)) {}
  EnginePlan(const EnginePlan&) = default;

  // M, or G, and whatever else the engine knows of it.
  struct Made {
    CscMatrix m;                                    // where the engine is `factored` G by rows
    CscMatrix g_columns;                            // of G; of no columns: not made yet
    std::shared_ptr<const AmgHierarchy> hierarchy;  // where the engine is `by_parts`, in place of m
    ShownResult shown;
    std::shared_ptr<const BuiltOnDevice> on_device;    // null: nowhere
    std::shared_ptr<const OverRanks> over_ranks = {};  // the same over ranks
    Array<double> row_scaling = {};                    // that it carries (HostPreconditioner::Make)
    Quality quality;
    std::shared_ptr<const Plan> grown;  // BuildResult::grown
  };
  // Takes checked options and an `a` of the plan's size with values. Adds to `timings`.
  virtual Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a,
                             const Context& context, DeviceTimings* timings) const = 0;
  // The difference where the options ask for another plan; empty: this one serves.
  virtual std::string Differences(const PreconditionerSpec& /*spec*/) const { return ""; }

  std::span<const std::shared_ptr<CudaDevice>> gpus() const { return for_.gpus; }
  const PlanFor& made_for() const { return for_; }

  // The same of another plan, for one that stands before it (scaled_plan.h).
  static Result<Made> MakeBy(const EnginePlan& plan, const PreconditionerSpec& spec,
                             const CscView& a, const Context& context, DeviceTimings* timings) {
    return plan.MakeM(spec, a, context, timings);
  }
  static std::string DifferencesOf(const EnginePlan& plan, const PreconditionerSpec& spec) {
    return plan.Differences(spec);
  }

  DeviceTimings made_in_;

 private:
  PlanFor for_;
};

// Immutable; thread-safe.
class PreconditionerEngine {
 public:
  PreconditionerEngine(const PreconditionerEngine&) = delete;
  PreconditionerEngine& operator=(const PreconditionerEngine&) = delete;
  virtual ~PreconditionerEngine() = default;

  const EngineTraits& traits() const { return traits_; }

  // INVALID_ARGUMENT for options out of range, with the field as the wire names it.
  virtual Status Check(const PreconditionerSpec& /*spec*/) const { return {}; }
  // The options that it reads, all others as they are by default.
  virtual PreconditionerSpec OwnOptions(const PreconditionerSpec& spec) const;
  virtual bool TimeDecides(const PreconditionerSpec& /*spec*/) const { return false; }
  // As the function of spec.h.
  virtual bool ForCg(const PreconditionerSpec& /*spec*/) const { return traits().for_cg; }

  // All below: `spec` has been checked, and is for this engine; `user_pattern` may be null.

  // By default OwnOptions. Errors: those of Engine::Resolve.
  virtual Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView& a,
                                       const Diagnosis& diagnosis, const PatternView* user_pattern,
                                       const Context& context) const;
  // As Engine::Estimate; device_bytes are those of any CUDA device.
  virtual Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                         const PatternView* user_pattern,
                                         const Context& context) const = 0;
  // BuildEstimate::rank_bytes and halo_bytes, of an engine that ranks build, by RanksDevice::Bound
  // for A; `estimate`: of one process, upper bounds of M's sizes. Errors: those of `bound`.
  using BoundForA = std::function<Result<RanksDevice::RankBytes>(const RanksDevice::BuildToBound&)>;
  virtual Result<RanksDevice::RankBytes> BoundOverRanks(const BoundForA& /*bound*/,
                                                        const PreconditionerSpec& /*spec*/,
                                                        const PatternView* /*user_pattern*/,
                                                        const BuildEstimate& /*estimate*/) const {
    return RanksDevice::RankBytes{};
  }
  // As Engine::MakePlan.
  virtual Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec,
                                                       const CscView& a,
                                                       const PatternView* user_pattern, PlanFor of,
                                                       const Context& context) const = 0;

 protected:
  explicit PreconditionerEngine(const EngineTraits& traits) : traits_(traits) {}

 private:
  const EngineTraits traits_;
};

// Null: `kind` is none of the enum.
const PreconditionerEngine* FindEngine(EngineKind kind);
std::span<const PreconditionerEngine* const> Engines();

// A over the ranks, found there or brought, and the time of that.
RanksDevice::Made SpreadTimed(RanksDevice& ranks, const CscView& a, const Context& context,
                              DeviceTimings* timings);

// The cost of a build by hypre or PETSc, from sizes alone: a guess, no bound.
BuildEstimate GuessPetsc(const PreconditionerSpec& spec, int64_t n, int64_t nnz_a, int threads);

// Shared by estimates.

BuildEstimate Larger(const BuildEstimate& x, const BuildEstimate& y);  // the larger of each bound

int64_t CscBytes(int64_t n, int64_t nnz);
// The counters of the transpose that makes the rows of M, at the most (transpose.h).
int64_t RowScratchBytes(int64_t n, int64_t nnz);
// Fills in flops and the predicted times (cost.h), which of work of the host alone is one.
void PredictBuild(const BuildRates& rates, const BuildWork& work, int threads, BuildEstimate* e);

}  // namespace spaid::kernels
