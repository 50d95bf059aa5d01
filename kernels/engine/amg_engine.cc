// Multigrid as an engine: symmetry, plans, builds, estimates, warnings; which set-ups a GPU has.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/scaling.h"
#include "kernels/amg/suitability.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/cuda_library.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/sparse/symmetry.h"

namespace spaid::kernels {
namespace {

// cᵀÂc / cᵀc over which c is hardly a near-null vector, entries of all levels over A's that are
// many, and β over which a diagonal smooths badly.
constexpr double kPoorRayleigh = kMostRayleighForAmg, kManyEntries = 2, kPoorDiagonal = 8;

constexpr GpuBuilds kOnGpu = {
    .worth_ms = 10,
    .waves = "products that find no room are made in waves, which takes a little longer",
    .too_large = ", even with its products made in waves",
    .cure = "use fewer levels' entries (max_operator_complexity)",
    .host_alone = "multigrid with classical coarsening is set up by the host"};

std::vector<std::string> Warnings(const AmgQuality& q, const AmgOptions& options, bool given) {
  std::vector<std::string> out;
  const auto level = [&](auto is) {
    return std::find_if(q.levels.begin(), q.levels.end(), is) - q.levels.begin();
  };
  const auto levels = static_cast<std::ptrdiff_t>(q.levels.size());
  if (q.operator_complexity > kManyEntries) {
    out.push_back("all levels have " + Figure(q.operator_complexity) +
                  " times the entries of A: cycles are dear; a larger strength_threshold, or a "
                  "smaller max_growth, makes them cheaper");
  }
  // A small matrix has its boundary near everywhere, and a large quotient for that.
  if (q.near_null_rayleigh > kPoorRayleigh && q.levels.front().rows >= kLeastRowsForAmg) {
    out.push_back(std::string(given ? "the near-null vectors are" : "constants are") +
                  " not nearly in A's null space (Rayleigh quotient " +
                  Figure(q.near_null_rayleigh) + " of the scaled A, a good one is under " +
                  Figure(kPoorRayleigh) + "): give near_null_space, or take AFSAI");
  }
  const bool diagonal =
      q.smoother == SmootherKind::kL1Jacobi || q.smoother == SmootherKind::kJacobi;
  if (q.beta > kPoorDiagonal && diagonal && q.levels.size() > 1) {
    out.push_back("some row has " + Figure(q.beta) +
                  " times its diagonal entry in absolute values, and a diagonal smooths that "
                  "badly; smoother = AUTO takes a stronger one");
  }
  if (const auto at = level([](const auto& l) { return 10 * l.isolated > l.rows; }); at < levels) {
    const AmgLevelQuality& l = q.levels[static_cast<size_t>(at)];
    out.push_back(std::to_string(l.isolated) + " of " + std::to_string(l.rows) + " rows of level " +
                  std::to_string(at) +
                  " have no strong coupling and are left to the smoother; a smaller "
                  "strength_threshold couples more");
  }
  if (const auto at = level([](const auto& l) { return l.guarded; }); at < levels) {
    out.push_back("from level " + std::to_string(at) +
                  " on, P is not smoothed on some: the next would have had more than max_growth "
                  "= " +
                  Figure(options.max_growth) + " of its entries; iterations are more for it");
  }
  if (!q.inverted) {
    out.push_back("the last level, of " + std::to_string(q.levels.back().rows) +
                  " rows, is smoothed and not inverted: max_operator_complexity, max_levels or "
                  "a lack of strong couplings ended coarsening there");
  }
  return out;
}

// Near-null vectors that are given, or made of coordinates.
int VectorsOf(const NearNullInput& near) {
  const int motions = near.dimension == 3 ? 6 : near.dimension == 2 ? 3 : 0;
  return std::max(near.count, motions);
}

class PlanOfAmg final : public EnginePlan {
 public:
  PlanOfAmg(PlanFor of, const AmgOptions& options) : EnginePlan(std::move(of)), options_(options) {}

  int64_t host_bytes() const override {
    return static_cast<int64_t>(sizeof(PlanOfAmg)) + (found_ != nullptr ? HostBytes(*found_) : 0);
  }
  int64_t device_bytes() const override { return there_ != nullptr ? there_->device_bytes() : 0; }
  // Without aggregates there is nothing that would.
  bool serves_new_values() const override { return found_ != nullptr || there_ != nullptr; }

 private:
  PlanOfAmg(const PlanOfAmg&) = default;

  Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                     DeviceTimings* timings) const override {
    const NearNullInput near =
        spec.near_null != nullptr ? spec.near_null->input() : NearNullInput();
    if (gpus().size() == 1 && found_ == nullptr) {
      AmgCudaTimings taken;
      auto there = MakeThere(spec, a, near, context, &taken);
      timings->host_to_device_ms += taken.host_to_device_ms;
      timings->device_bytes = std::max(timings->device_bytes, taken.device_bytes);
      if (!there.ok()) return there.status();
      if (*there) return **std::move(there);
    }
    // Aggregates of one kind serve no other one: of new values that are symmetric no more, all is
    // made anew.
    const bool symmetric = CompareMirrors(a, context.threads).numerically_symmetric;
    const bool again = found_ != nullptr && symmetric_ == symmetric;
    auto built = again ? RebuildAmg(found_, a, near, context)
                       : BuildAmg(a, symmetric, near, options_, context);
    if (!built.ok()) return built.status();
    std::shared_ptr<const AmgPlan> plan = built->plan;
    Made made = MadeOf(spec, a, *std::move(built), again);
    if (!again) {
      std::shared_ptr<PlanOfAmg> grown(new PlanOfAmg(*this));
      grown->found_ = std::move(plan);
      grown->there_ = nullptr;
      grown->symmetric_ = symmetric;
      made.grown = std::move(grown);
    }
    return Result<Made>(std::move(made));
  }

  // Whether the GPU has room for a set-up; nobody counts unknowns of nodes where it has plenty.
  bool HasRoom(const CscView& a, const NearNullInput& near, int threads) const {
    const int64_t limit = gpus().front()->memory_limit();
    if (SetUpDeviceBytes(a.n_cols, a.nnz(), 1, kMostNearNull, options_) <= limit) return true;
    const AmgCounts counts = EstimateAmg(a, VectorsOf(near), options_, threads);
    return LeastSetUpDeviceBytes(a.n_cols, a.nnz(), counts.block, counts.vectors, options_) <=
           limit;
  }

  // By the GPU; nothing where that is the host's.
  Result<std::optional<Made>> MakeThere(const PreconditionerSpec& spec, const CscView& a,
                                        const NearNullInput& near, const Context& context,
                                        AmgCudaTimings* timings) const {
    if (there_ != nullptr) {
      auto again = Cuda().rebuild_amg(gpus().front(), there_, a, near, context, timings);
      if (!again.ok()) return again.status();
      if (*again) return std::optional(MadeOf(spec, a, **std::move(again), /*again=*/true));
    }
    if (!MaySetUpOnDevice(a.n_cols, near, options_) ||
        !HasRoom(a, near, ResolveThreads(context.threads))) {
      return std::optional<Made>();
    }
    auto built = Cuda().build_amg(gpus().front(), a, near, options_, context, timings);
    if (!built.ok()) return built.status();
    if (!*built) return std::optional<Made>();
    std::shared_ptr<const AmgPlanThere> plan = (*built)->there;
    Made made = MadeOf(spec, a, **std::move(built), /*again=*/false);
    if (plan != nullptr) {
      std::shared_ptr<PlanOfAmg> grown(new PlanOfAmg(*this));
      grown->there_ = std::move(plan);
      made.grown = std::move(grown);
    }
    return std::optional(std::move(made));
  }

  Made MadeOf(const PreconditionerSpec& spec, const CscView& a, AmgResult built, bool again) const {
    Made made;
    made.quality.worst_column = -1;
    made.quality.density = static_cast<double>(built.hierarchy->nnz()) /
                           static_cast<double>(std::max<int64_t>(1, a.nnz()));
    made.quality.pattern_reused = again;
    made.quality.warnings = Warnings(built.quality, options_, spec.near_null != nullptr);
    made.quality.amg = std::move(built.quality);
    made.hierarchy = std::move(built.hierarchy);
    return made;
  }

  AmgOptions options_;
  // Neither: a build finds aggregates.
  std::shared_ptr<const AmgPlan> found_;
  std::shared_ptr<const AmgPlanThere> there_;
  bool symmetric_ = false;
};

class Amg final : public PreconditionerEngine {
 public:
  Amg()
      : PreconditionerEngine(
            {.kind = EngineKind::kAmg,
             .name = "amg",
             .options_field = "amg",
             .by_parts = true,
             .takes_near_null = true,
             .grows_pattern = true,
             .on_gpu = &kOnGpu,
             .rates = {.cpu = {.fixed = 1e5, .row = 560, .nnz_a = 53, .serial = 0.3},
                       .gpu = {.fixed = 6e6, .gathered = 16, .nnz_a = 0.6}}}) {}

  Status Check(const PreconditionerSpec& spec) const override { return CheckAmgOptions(spec.amg); }

  PreconditionerSpec OwnOptions(const PreconditionerSpec& spec) const override {
    PreconditionerSpec own = PreconditionerEngine::OwnOptions(spec);
    own.scaling = ScalingMode::kNone;  // kAuto comes to that: A is scaled by its diagonal
    own.amg = spec.amg;
    own.near_null = spec.near_null;
    return own;
  }

  bool ForCg(const PreconditionerSpec& spec) const override {
    return spec.amg.pre_sweeps == spec.amg.post_sweeps;
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView*, const Context& context) const override {
    const NearNullInput near =
        spec.near_null != nullptr ? spec.near_null->input() : NearNullInput();
    const int threads = ResolveThreads(context.threads);
    const AmgCounts counts = EstimateAmg(a, VectorsOf(near), spec.amg, threads);
    BuildEstimate e;
    e.nnz_m = counts.nnz;
    e.download_bytes = CscBytes(a.n_cols, counts.nnz);
    e.host_bytes = counts.host_bytes + static_cast<int64_t>(2 * sizeof(PlanOfAmg)) +
                   static_cast<int64_t>(sizeof(HostPreconditioner));
    if (MaySetUpOnDevice(a.n_cols, near, spec.amg)) {
      e.device_bytes = SetUpDeviceBytes(a.n_cols, a.nnz(), counts.block, counts.vectors, spec.amg);
      e.device_bytes_min =
          LeastSetUpDeviceBytes(a.n_cols, a.nnz(), counts.block, counts.vectors, spec.amg);
    }
    PredictBuild(traits().rates, counts.work, threads, &e);
    if (e.device_bytes == 0) e.predicted_device_ms = 0;
    return e;
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView&,
                                               const PatternView*, PlanFor of,
                                               const Context&) const override {
    return std::shared_ptr<const Plan>(std::make_shared<PlanOfAmg>(std::move(of), spec.amg));
  }
};

}  // namespace

const PreconditionerEngine& AmgEngine() {
  static const Amg engine;
  return engine;
}

}  // namespace spaid::kernels
