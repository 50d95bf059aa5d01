// Dynamic SPAI as an engine: plans, builds, estimates, warnings. Its options are checked and its
// sizes counted by kernels/dynamic_spai.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/base/step_progress.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/cuda_library.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/engine/static_spai_engine.h"

namespace spaid::kernels {
namespace {

// Shares of the progress of a build that grows its pattern: where growth ends, and the plan on it.
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

class PlanOfDynamicSpai final : public EnginePlan {
 public:
  // `user_pattern`: where growth begins; may be null. Errors: those of GrowDynamicSpai's arguments.
  static Result<std::shared_ptr<const Plan>> Make(const PreconditionerSpec& spec, const CscView& a,
                                                  const PatternView* user_pattern, PlanFor of,
                                                  const Context& context) {
    if (Status status = CheckDynamicSpai(a, user_pattern, spec.dynamic_spai); !status.ok()) {
      return status;
    }
    return GuardMemory("plan of dynamic SPAI", [&]() -> Result<std::shared_ptr<const Plan>> {
      std::shared_ptr<PlanOfDynamicSpai> plan(new PlanOfDynamicSpai(std::move(of)));
      if (user_pattern != nullptr) {
        Pattern& initial = plan->initial_;
        initial.n_rows = user_pattern->n_rows;
        initial.n_cols = user_pattern->n_cols;
        initial.col_ptr.resize(user_pattern->col_ptr.size());
        initial.row_idx.resize(user_pattern->row_idx.size());
        ParallelCopy(user_pattern->col_ptr, initial.col_ptr, context.threads);
        ParallelCopy(user_pattern->row_idx, initial.row_idx, context.threads);
      }
      return std::shared_ptr<const Plan>(std::move(plan));
    });
  }

  int64_t host_bytes() const override {
    return static_cast<int64_t>(sizeof(PlanOfDynamicSpai) +
                                initial_.col_ptr.size() * sizeof(int64_t) +
                                initial_.row_idx.size() * sizeof(int32_t)) +
           numbers_.host_bytes();
  }
  int64_t device_bytes() const override { return numbers_.device_bytes(); }
  bool serves_new_values() const override { return static_cast<bool>(numbers_); }

 private:
  using EnginePlan::EnginePlan;

  // Errors: those of GrowDynamicSpai, PlanSpai and BuildOnSpaiPlan.
  Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a, const Context& with_progress,
                     DeviceTimings* timings) const override {
    const DynamicSpaiOptions& options = spec.dynamic_spai;
    Context context = with_progress;
    StepProgress progress(with_progress.progress, Stage::kBuild, a.n_cols);
    if (with_progress.progress != nullptr) context.progress = &progress;
    const StaticSpaiOptions of_numbers = NumbersOf(options);
    Made made;
    SpaiPlan on = numbers_;
    DynamicSpaiQuality growth;
    if (!on) {
      progress.NextStep(kGrowthShare);
      const PatternView initial = initial_;
      const PatternView* const start = initial.n_cols == 0 ? nullptr : &initial;
      if (made_for().ranks != nullptr) {
        auto spread = SpreadTimed(*made_for().ranks, a, context, timings);
        if (!spread.ok()) return spread.status();
        auto grown = made_for().ranks->GrowDynamicSpai(**spread, start, options, context);
        if (!grown.ok()) return grown.status();
        growth = std::move(grown->quality);
        on.over = std::move(grown->plan);
        on.ranks = made_for().ranks;
      } else {
        DynamicSpaiCudaTimings own;
        std::shared_ptr<SpaiOnDevice> there;
        auto pattern = gpus().empty() ? GrowDynamicSpai(a, start, options, context)
                                      : Cuda().grow_dynamic_spai(gpus(), a, start, options, context,
                                                                 &own, &there);
        if (!pattern.ok()) return pattern.status();
        Add(own, timings);
        growth = std::move(pattern->quality);
        progress.NextStep(kPlanShare);
        const PatternView of_m = pattern->m;
        auto planned = PlanSpai(of_numbers, a, &of_m, gpus(), context, timings, std::move(there));
        if (!planned.ok()) return planned.status();
        on = *std::move(planned);
      }
      std::shared_ptr<PlanOfDynamicSpai> grown(new PlanOfDynamicSpai(*this));
      grown->initial_ = Pattern();
      grown->numbers_ = on;
      made.grown = std::move(grown);
    }
    progress.NextStep(1);
    auto built = BuildOnSpaiPlan(on, of_numbers, /*grown=*/true, a, context, timings);
    if (!built.ok()) return built.status();
    made.m = std::move(built->m);
    made.shown = std::move(built->shown);
    made.on_device = std::move(built->kept);
    made.over_ranks = std::move(built->over);
    made.quality = std::move(built->quality);
    made.quality.pattern_reused = made.grown == nullptr;
    if (made.grown != nullptr) AddWarnings(growth, options, a.n_cols, &made.quality.warnings);
    made.quality.dynamic_spai = std::move(growth);
    return Result<Made>(std::move(made));
  }

  Pattern initial_;   // from which it grows; no columns at all: the diagonal
  SpaiPlan numbers_;  // of a grown pattern; none: a build grows one
};

constexpr GpuBuilds kOnGpu = {
    .worth_ms = kGpuWorthMs,
    .waves_cost = kWavesCost,
    .waves =
        "columns grow in waves, and so the gather tables of their values are made, where they find "
        "no room, which takes about twice as long",
    .too_large = ", even in waves",
    .cure = "use fewer steps (max_steps), a smaller max_column_nnz or a sparser pattern",
    .splits_from_ms = kSplitWorthMs};

class DynamicSpai final : public PreconditionerEngine {
 public:
  DynamicSpai()
      : PreconditionerEngine(
            {.kind = EngineKind::kDynamicSpai,
             .name = "dynamic-spai",
             .options_field = "dynamic_spai",
             .for_cg = false,
             .takes_pattern = true,
             .grows_pattern = true,
             .on_gpu = &kOnGpu,
             .over_ranks = true,
             .rates = {
                 .cpu = {.fixed = 1.2e5,
                         .row = 420,
                         .entry = 90,
                         .gathered = 1.7,
                         .flop = 0.2,
                         .serial = 0.15},
                 .gpu = {.fixed = 2e6, .row = 40, .entry = 5, .gathered = 0.05, .nnz_a = 0.4}}}) {}

  Status Check(const PreconditionerSpec& spec) const override {
    return CheckDynamicOptions(spec.dynamic_spai);
  }

  PreconditionerSpec OwnOptions(const PreconditionerSpec& spec) const override {
    PreconditionerSpec own = PreconditionerEngine::OwnOptions(spec);
    own.dynamic_spai = spec.dynamic_spai;
    return own;
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView* user_pattern,
                                 const Context& context) const override {
    const auto counts = EstimateDynamicSpai(a, user_pattern, spec.dynamic_spai, context);
    if (!counts.ok()) return counts.status();
    const int64_t n = a.n_cols, nnz = counts->nnz_m;
    const int threads = ResolveThreads(context.threads);
    BuildEstimate e;
    e.nnz_m = nnz;
    e.gram_nnz = counts->gram_nnz;
    e.download_bytes = CscBytes(n, nnz);
    // Beside the build: its plan, with a pattern to begin with, and the one that it leaves; the row
    // layout of M and its list of row blocks.
    e.host_bytes =
        static_cast<int64_t>(2 * sizeof(PlanOfDynamicSpai) + sizeof(HostPreconditioner)) +
        counts->host_bytes + e.download_bytes +
        2 * (n + 2) * static_cast<int64_t>(sizeof(int64_t)) + RowScratchBytes(n, nnz) +
        (user_pattern != nullptr ? CscBytes(n, user_pattern->nnz()) : 0);
    e.device_bytes = counts->device_bytes;
    e.device_bytes_min = counts->device_bytes_min;
    PredictBuild(traits().rates, counts->work, threads, &e);
    return e;
  }

  Result<RanksDevice::RankBytes> BoundOverRanks(const BoundForA& bound,
                                                const PreconditionerSpec& spec,
                                                const PatternView* user_pattern,
                                                const BuildEstimate& estimate) const override {
    return bound({.dynamic_spai = &spec.dynamic_spai,
                  .user_pattern = user_pattern,
                  .nnz_m = estimate.nnz_m,
                  .gram_nnz = estimate.gram_nnz});
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView& a,
                                               const PatternView* user_pattern, PlanFor of,
                                               const Context& context) const override {
    return PlanOfDynamicSpai::Make(spec, a, user_pattern, std::move(of), context);
  }
};

}  // namespace

const PreconditionerEngine& DynamicSpaiEngine() {
  static const DynamicSpai engine;
  return engine;
}

}  // namespace spaid::kernels
