#include "kernels/engine/static_spai_engine.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/option_range.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/cuda_library.h"
#include "kernels/engine/options.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

// What makes local problems small: of a prescribed pattern, or of one that has grown.
std::string Smaller(bool grown) {
  return grown ? "a smaller max_column_nnz" : "a smaller pattern_power or keep_tau";
}

// One sentence per thing that was repaired, rescued or is weak.
std::vector<std::string> Warnings(const StaticSpaiQuality& q, const StaticSpaiOptions& options,
                                  int64_t n, bool grown) {
  std::vector<std::string> out;
  if (q.zero_columns > 0) {
    const bool cured = grown || options.pattern.ensure_row || options.pattern.row_match;
    out.push_back(
        Columns(q.zero_columns, n, q.first_zero_column) +
        " of M are zero: no column of their pattern reaches the row of the unit vector; " +
        (cured
             ? grown
                   ? "these rows of A hold no usable entry, or growth had no step to reach them: M "
                     "is singular"
                   : "these rows of A hold no usable entry, M is singular"
             : "M is singular, set ensure_row or row_match"));
  }
  if (q.non_finite_columns > 0) {
    out.push_back(Columns(q.non_finite_columns, n, q.first_non_finite) +
                  " of M came out NaN or infinite and were set to zero; rescale A");
  }
  if (q.rank_deficient_columns > 0) {
    out.push_back(Columns(q.rank_deficient_columns, n, q.first_rank_deficient) +
                  " have a rank-deficient local problem: dependent directions were left out; A may "
                  "be singular there, " +
                  std::string(grown ? "fewer steps" : "a smaller pattern_power") +
                  " helps if it is not");
  }
  if (q.not_converged_columns > 0) {
    out.push_back(
        Columns(q.not_converged_columns, n, q.first_not_converged) +
        " have a local problem too large for a dense factor, and its iteration met its limit: "
        "these columns are less accurate; " +
        Smaller(grown) + " makes them small");
  }
  if (q.rescued_columns > 0) {
    out.push_back(Columns(q.rescued_columns, n, q.first_rescued) +
                  " were too ill-conditioned for the Gram path (smallest scaled pivot " +
                  Figure(q.min_scaled_pivot) +
                  ") and were solved again by QR; local_solver = QR avoids the second try");
  }
  return out;
}

// A sentence on columns that a device left to the host; none where there are none.
std::string LeftToHost(int64_t columns, int64_t n, bool grown) {
  if (columns == 0) return "";
  const std::string count = std::to_string(columns) + " of " + std::to_string(n) + " columns ";
  return count +
         "were left to the host: their local problems are too large or too ill-conditioned for "
         "the device's kernels; " +
         Smaller(grown) + " makes them small";
}

std::string InWaves() {
  return "the gather tables of the local problems found no room in the device's memory and are "
         "made in waves at each build, which takes about twice as long; a larger --device-memory, "
         "or a sparser pattern, spares that";
}

// Adds what static SPAI measured.
void Add(const StaticSpaiCudaTimings& from, DeviceTimings* to) {
  to->host_to_device_ms += from.host_to_device_ms;
  to->device_to_host_ms += from.device_to_host_ms;
  to->device_bytes = std::max(to->device_bytes, from.device_bytes);
  to->host_columns += from.host_columns;
  to->tables_in_waves = to->tables_in_waves || from.tables_in_waves;
}

// Without a limit on nnz(M) that E + |A| cannot meet: patterns without one the device makes itself.
StaticSpaiOptions WithoutIdleLimit(StaticSpaiOptions options, const CscView& a,
                                   const PatternView* user_pattern) {
  PatternOptions& pattern = options.pattern;
  const bool plain =
      user_pattern == nullptr && pattern.power == 1 && !pattern.ensure_row && !pattern.row_match;
  if (plain && pattern.max_nnz >= a.nnz() + a.n_cols) pattern.max_nnz = 0;
  return options;
}

}  // namespace

std::string Columns(int64_t count, int64_t n, int64_t first) {
  return std::to_string(count) + " of " + std::to_string(n) + " columns (first " +
         std::to_string(first) + ")";
}

int64_t SpaiPlan::host_bytes() const {
  if (there) return there->host_bytes;
  return here ? Counts(*here).plan_bytes : 0;
}

int64_t SpaiPlan::device_bytes() const {
  if (over) return over->bytes();
  return there ? there->device_bytes : 0;
}

Result<SpaiPlan> PlanSpai(const StaticSpaiOptions& options, const CscView& a,
                          const PatternView* user_pattern,
                          std::span<const std::shared_ptr<CudaDevice>> gpus, const Context& context,
                          DeviceTimings* timings, std::shared_ptr<SpaiOnDevice> there) {
  SpaiPlan plan;
  if (gpus.empty()) {
    auto made = PlanStaticSpai(a, user_pattern, options, context);
    if (!made.ok()) return made.status();
    plan.here = *std::move(made);
    return Result<SpaiPlan>(std::move(plan));
  }
  StaticSpaiCudaTimings own;
  auto made =
      Cuda().plan_static_spai(gpus, a, user_pattern, WithoutIdleLimit(options, a, user_pattern),
                              context, &own, std::move(there));
  if (!made.ok()) return made.status();
  plan.there = *std::move(made);
  Add(own, timings);
  return Result<SpaiPlan>(std::move(plan));
}

Result<SpaiPlan> PlanSpaiOverRanks(const std::shared_ptr<RanksDevice>& ranks,
                                   const StaticSpaiOptions& options, const CscView& a,
                                   const PatternView* user_pattern, const Context& context,
                                   DeviceTimings* timings) {
  auto spread = SpreadTimed(*ranks, a, context, timings);
  if (!spread.ok()) return spread.status();
  auto made = ranks->PlanStaticSpai(**spread, user_pattern, options, context);
  if (!made.ok()) return made.status();
  SpaiPlan plan;
  plan.over = *std::move(made);
  plan.ranks = ranks;
  return Result<SpaiPlan>(std::move(plan));
}

Result<SpaiBuild> BuildOnSpaiPlan(const SpaiPlan& plan, const StaticSpaiOptions& options,
                                  bool grown, const CscView& a, const Context& context,
                                  DeviceTimings* timings) {
  SpaiBuild out;
  if (plan.over) {
    auto spread = SpreadTimed(*plan.ranks, a, context, timings);
    if (!spread.ok()) return spread.status();
    auto built = plan.ranks->BuildStaticSpai(*plan.over, **spread, context);
    if (!built.ok()) return built.status();
    timings->device_to_host_ms += built->gather_ms;
    out.m = std::move(built->m);
    out.over = std::move(built->there);
    static_cast<StaticSpaiQuality&>(out.quality) = std::move(built->quality);
    out.quality.warnings = Warnings(out.quality, options, a.n_cols, grown);
    return Result<SpaiBuild>(std::move(out));
  }
  StaticSpaiCudaTimings own;
  auto built = plan.there
                   ? Cuda().build_static_spai(*plan.there, a, options, context, &own, &out.kept)
                   : BuildStaticSpai(*plan.here, a, options, context);
  if (!built.ok()) return built.status();
  Add(own, timings);
  out.m = std::move(built->m);
  out.shown = std::move(built->shown);
  static_cast<StaticSpaiQuality&>(out.quality) = std::move(built->quality);
  out.quality.warnings = Warnings(out.quality, options, a.n_cols, grown);
  if (std::string left = LeftToHost(own.host_columns, a.n_cols, grown); !left.empty()) {
    out.quality.warnings.push_back(std::move(left));
  }
  if (own.tables_in_waves) out.quality.warnings.push_back(InWaves());
  return Result<SpaiBuild>(std::move(out));
}

namespace {

// The options that decide which pattern a plan has: a limit that it met is of no matter.
PatternOptions Shape(PatternOptions options) {
  options.max_nnz = 0;
  return options;
}

class PlanOfSpai final : public EnginePlan {
 public:
  static Result<std::shared_ptr<const Plan>> Make(const PreconditionerSpec& spec, const CscView& a,
                                                  const PatternView* user_pattern, PlanFor of,
                                                  const Context& context) {
    std::shared_ptr<PlanOfSpai> plan(new PlanOfSpai(std::move(of)));
    StaticSpaiOptions options = spec.static_spai;
    int64_t& most = options.pattern.max_nnz;
    if (spec.max_nnz > 0) most = most > 0 ? std::min(most, spec.max_nnz) : spec.max_nnz;
    const std::shared_ptr<RanksDevice>& ranks = plan->made_for().ranks;
    auto made = ranks != nullptr
                    ? PlanSpaiOverRanks(ranks, options, a, user_pattern, context, &plan->made_in_)
                    : PlanSpai(options, a, user_pattern, plan->gpus(), context, &plan->made_in_);
    if (!made.ok()) return made.status();
    plan->plan_ = *std::move(made);
    plan->shape_ = Shape(options.pattern);
    return std::shared_ptr<const Plan>(std::move(plan));
  }
  int64_t host_bytes() const override {
    return static_cast<int64_t>(sizeof(PlanOfSpai)) + plan_.host_bytes();
  }
  int64_t device_bytes() const override { return plan_.device_bytes(); }
  bool serves_new_values() const override { return !shape_.keep_tau.has_value(); }

 private:
  using EnginePlan::EnginePlan;

  // "pattern_power 2 (not 1), another keep_tau"
  std::string Differences(const PreconditionerSpec& spec) const override {
    const PatternOptions& asked = spec.static_spai.pattern;
    std::string out;
    const auto add = [&out](bool differs, const std::string& what) {
      if (differs) out += (out.empty() ? "" : ", ") + what;
    };
    add(shape_.power != asked.power, "pattern_power " + std::to_string(shape_.power) + " (not " +
                                         std::to_string(asked.power) + ")");
    add(shape_.keep_tau != asked.keep_tau, "another keep_tau");
    add(shape_.ensure_row != asked.ensure_row, "another ensure_row");
    add(shape_.row_match != asked.row_match, "another row_match");
    return out;
  }

  Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                     DeviceTimings* timings) const override {
    auto built = BuildOnSpaiPlan(plan_, spec.static_spai, /*grown=*/false, a, context, timings);
    if (!built.ok()) return built.status();
    Made made;
    made.m = std::move(built->m);
    made.shown = std::move(built->shown);
    made.on_device = std::move(built->kept);
    made.over_ranks = std::move(built->over);
    made.quality = std::move(built->quality);
    return Result<Made>(std::move(made));
  }

  SpaiPlan plan_;
  PatternOptions shape_;
};

class StaticSpai final : public PreconditionerEngine {
 public:
  StaticSpai()
      : PreconditionerEngine(
            {.kind = EngineKind::kStaticSpai,
             .name = "static-spai",
             .options_field = "static_spai",
             .for_cg = false,
             .takes_pattern = true,
             .on_gpu = &StaticSpaiOnGpu(),
             .over_ranks = true,
             .rates = {.cpu = {.fixed = 1e5, .row = 610, .gathered = 8.3, .flop = 0.05},
                       .gpu = {.fixed = 1.18e6,
                               .row = 13,
                               .entry = 2.9,
                               .flop = 1e-4,
                               .first_entry = 27,
                               .first_most = 2.4e6}}}) {}

  Status Check(const PreconditionerSpec& spec) const override {
    return CheckRanges(spec.static_spai);
  }

  PreconditionerSpec OwnOptions(const PreconditionerSpec& spec) const override {
    PreconditionerSpec own = PreconditionerEngine::OwnOptions(spec);
    own.static_spai = spec.static_spai;
    return own;
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView* user_pattern,
                                 const Context& context) const override {
    const StaticSpaiOptions& options = spec.static_spai;
    const auto counts = EstimateStaticSpai(a, user_pattern, options, context);
    if (!counts.ok()) return counts.status();
    const int threads = ResolveThreads(context.threads);
    BuildEstimate e;
    e.nnz_m = counts->nnz_m;
    e.n1_max = counts->n1_max;
    e.n2_max = counts->n2_max;
    e.download_bytes = CscBytes(a.n_cols, e.nnz_m);
    // The row layout of M and its list of row blocks (at most one a row) come on top of the build.
    e.host_bytes = static_cast<int64_t>(sizeof(PlanOfSpai) + sizeof(HostPreconditioner)) +
                   counts->plan_bytes + counts->build_bytes + CscBytes(a.n_cols, e.nnz_m) +
                   2 * (a.n_cols + 2) * static_cast<int64_t>(sizeof(int64_t)) +
                   RowScratchBytes(a.n_cols, e.nnz_m);
    e.device_bytes = counts->device_bytes;
    e.device_bytes_min = counts->device_bytes_min;
    PredictBuild(traits().rates, counts->work, threads, &e);
    return e;
  }

  Result<RanksDevice::RankBytes> BoundOverRanks(const BoundForA& bound,
                                                const PreconditionerSpec& spec,
                                                const PatternView* user_pattern,
                                                const BuildEstimate& estimate) const override {
    return bound({.static_spai = &spec.static_spai,
                  .user_pattern = user_pattern,
                  .nnz_m = estimate.nnz_m,
                  .column_nnz = estimate.n2_max});
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView& a,
                                               const PatternView* user_pattern, PlanFor of,
                                               const Context& context) const override {
    return PlanOfSpai::Make(spec, a, user_pattern, std::move(of), context);
  }
};

}  // namespace

const GpuBuilds& StaticSpaiOnGpu() {
  static constexpr GpuBuilds kOnGpu = {
      .worth_ms = kGpuWorthMs,
      .waves_cost = kWavesCost,
      .waves =
          "where the gather tables find no room, they are made in waves, which takes about twice "
          "as long",
      .too_large = ", even with its tables made in waves",
      .cure = "use a lower pattern power, a threshold (keep_tau) or a sparser pattern",
      .splits_from_ms = kSplitWorthMs};
  return kOnGpu;
}

const PreconditionerEngine& StaticSpaiEngine() {
  static const StaticSpai engine;
  return engine;
}

}  // namespace spaid::kernels
