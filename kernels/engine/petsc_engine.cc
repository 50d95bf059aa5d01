// ParaSails, BoomerAMG and GAMG as engines, which ranks alone build: symmetry, near-null vectors,
// builds, guesses of their cost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/preconditioner_engine.h"

namespace spaid::kernels {
namespace {

class PlanOfPetsc final : public EnginePlan {
 public:
  PlanOfPetsc(PlanFor of, PetscMethod method) : EnginePlan(std::move(of)), method_(method) {}
  int64_t host_bytes() const override { return static_cast<int64_t>(sizeof(PlanOfPetsc)); }
  bool serves_new_values() const override { return false; }  // there is nothing in it

 private:
  Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                     DeviceTimings* timings) const override {
    std::span<const double> near_null;
    if (spec.near_null != nullptr) near_null = spec.near_null->vectors;
    for (size_t i = 0; i < near_null.size(); ++i) {
      if (std::isfinite(near_null[i])) continue;
      return Status(StatusCode::kInvalidArgument, "BAD_NEAR_NULL_SPACE",
                    "near_null_space[" + std::to_string(i) +
                        "] is NaN or infinite; send finite values")
          .At("near_null_space", static_cast<int64_t>(i));
    }
    RanksDevice& ranks = *made_for().ranks;
    const auto there = SpreadTimed(ranks, a, context, timings);
    if (!there.ok()) return there.status();
    auto built = ranks.BuildPetsc(**there, method_, spec.petsc, near_null, context);
    if (!built.ok()) return built.status();
    Made made;
    made.quality.worst_column = -1;
    made.quality.density = static_cast<double>(built->there->nnz()) /
                           static_cast<double>(std::max<int64_t>(1, (*there)->nnz()));
    made.quality.petsc = built->petsc;
    made.over_ranks = std::move(built->there);
    return Result<Made>(std::move(made));
  }

  const PetscMethod method_;
};

class Petsc final : public PreconditionerEngine {
 public:
  Petsc(EngineKind kind, std::string_view name, PetscMethod method, const WorkRates& rates)
      : PreconditionerEngine({.kind = kind,
                              .name = name,
                              .options_field = "petsc",
                              .takes_near_null = method == PetscMethod::kGamg,
                              .over_ranks = true,
                              .ranks_alone = true,
                              .rates = {.cpu = rates, .gpu = {}}}),
        method_(method) {}

  Status Check(const PreconditionerSpec& spec) const override {
    return CheckPetscOptions(spec.petsc);
  }

  PreconditionerSpec OwnOptions(const PreconditionerSpec& spec) const override {
    PreconditionerSpec own = PreconditionerEngine::OwnOptions(spec);
    own.scaling = ScalingMode::kNone;
    const PetscEngineOptions& given = spec.petsc;
    PetscEngineOptions& kept = own.petsc;
    switch (method_) {
      case PetscMethod::kParasails:
        kept.levels = given.levels;
        kept.threshold = given.threshold;
        kept.filter = given.filter;
        kept.symmetry = given.symmetry;
        break;
      case PetscMethod::kBoomeramg:
        kept.strong_threshold = given.strong_threshold;
        kept.coarsening = given.coarsening;
        kept.interpolation = given.interpolation;
        kept.interpolation_entries = given.interpolation_entries;
        kept.aggressive_levels = given.aggressive_levels;
        kept.max_levels = given.max_levels;
        break;
      case PetscMethod::kGamg:
        kept.drop_threshold = given.drop_threshold;
        kept.smooths = given.smooths;
        own.near_null = spec.near_null;
        break;
    }
    return own;
  }

  bool ForCg(const PreconditionerSpec& spec) const override {
    return method_ != PetscMethod::kParasails || spec.petsc.symmetry != ParasailsSymmetry::kGeneral;
  }

  Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView&,
                               const Diagnosis& diagnosis, const PatternView*,
                               const Context&) const override {
    ResolvedSpec resolved{OwnOptions(spec), ""};
    ParasailsSymmetry& symmetry = resolved.spec.petsc.symmetry;
    if (method_ == PetscMethod::kParasails && symmetry == ParasailsSymmetry::kAuto) {
      symmetry = MayBePositive(diagnosis) ? ParasailsSymmetry::kSpd : ParasailsSymmetry::kGeneral;
    }
    return resolved;
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView*, const Context& context) const override {
    return GuessPetsc(spec, a.n_cols, a.nnz(), ResolveThreads(context.threads));
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec&, const CscView&,
                                               const PatternView*, PlanFor of,
                                               const Context&) const override {
    return std::shared_ptr<const Plan>(std::make_shared<PlanOfPetsc>(std::move(of), method_));
  }

 private:
  const PetscMethod method_;
};

}  // namespace

BuildEstimate GuessPetsc(const PreconditionerSpec& spec, int64_t n, int64_t nnz_a, int threads) {
  const auto rows = static_cast<double>(n), entries = static_cast<double>(nnz_a);
  const double mean = entries / std::max(1.0, rows);
  BuildWork work{.rows = rows, .nnz_a = entries};
  double copies = 4;  // of A: all levels, P, and what is made on the way
  if (spec.engine == EngineKind::kParasails) {
    const double of_m = std::min(rows, std::pow(mean, spec.petsc.levels + 1));
    work.entries = rows * of_m;
    work.flops = rows * mean * of_m * of_m;
    copies = 2 + of_m / std::max(1.0, mean);
  }
  BuildEstimate e;
  e.host_bytes = static_cast<int64_t>(std::min(12 * copies * entries, 9e17)) + 64 * n;
  PredictBuild(TraitsOf(spec.engine).rates, work, threads, &e);
  return e;
}

const PreconditionerEngine& ParasailsEngine() {
  static const Petsc engine(EngineKind::kParasails, "parasails", PetscMethod::kParasails,
                            {.fixed = 1e6, .row = 900, .entry = 0.5});
  return engine;
}

const PreconditionerEngine& BoomeramgEngine() {
  static const Petsc engine(EngineKind::kBoomeramg, "boomeramg", PetscMethod::kBoomeramg,
                            {.fixed = 1e6, .row = 1450, .nnz_a = 58});
  return engine;
}

const PreconditionerEngine& GamgEngine() {
  static const Petsc engine(EngineKind::kGamg, "gamg", PetscMethod::kGamg,
                            {.fixed = 1e6, .row = 3000, .nnz_a = 17});
  return engine;
}

}  // namespace spaid::kernels
