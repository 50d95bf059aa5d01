// Static and adaptive FSAI as engines: options, plans, builds, estimates, warnings.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/cuda_library.h"
#include "kernels/engine/options.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/fsai/fsai.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

std::string Rows(int64_t count, int64_t n, int64_t first) {
  return std::to_string(count) + " of " + std::to_string(n) + " rows (first " +
         std::to_string(first) + ")";
}

std::string Smaller(const FsaiOptions& options) {
  return options.adaptive ? "a smaller k_max makes them small"
                          : "a smaller pattern_power, or a larger drop_tol, makes them small";
}

void Add(const FsaiCudaTimings& from, DeviceTimings* to) {
  to->host_to_device_ms += from.host_to_device_ms;
  to->device_to_host_ms += from.device_to_host_ms;
  to->device_bytes = std::max(to->device_bytes, from.device_bytes);
  to->host_columns += from.host_rows;
  to->waves = std::max(to->waves, from.waves);
}

// `host_rows`: that a device left to the host.
std::vector<std::string> Warnings(const FsaiQuality& q, const FsaiOptions& options,
                                  int64_t host_rows, int64_t n) {
  std::vector<std::string> out;
  if (host_rows > 0) {
    out.push_back(std::to_string(host_rows) + " of " + std::to_string(n) +
                  " rows of G were left to the host: their local problems are too large for the "
                  "device's kernels; " +
                  Smaller(options));
  }
  if (q.not_spd_rows > 0) {
    out.push_back(Rows(q.not_spd_rows, n, q.first_not_spd) +
                  " of G met a pivot that is not positive and keep what they had before it: A is "
                  "not positive definite" +
                  (options.precision == Precision::kFp32
                       ? ", or not so in fp32; precision = FP64 tells which"
                       : "; use static SPAI with BiCGSTAB or GMRES if CG ends as INDEFINITE"));
  }
  if (q.not_converged_rows > 0) {
    out.push_back(Rows(q.not_converged_rows, n, q.first_not_converged) +
                  " have a local problem too large for a dense factor, and its iteration met its "
                  "limit: these rows are less accurate; " +
                  Smaller(options));
  }
  if (q.out_of_time) {
    out.push_back("the time budget of " + Figure(options.time_budget_ms) +
                  " ms ended growth after " + std::to_string(q.steps) + " of " +
                  std::to_string(options.k_max) +
                  " steps; a longer one, or a larger step_size, lets it come further");
  }
  return out;
}

// The options that the kind reads, the others as they are by default; `adaptive` by the kind.
FsaiOptions FsaiOptionsOf(const PreconditionerSpec& spec) {
  const FsaiOptions& given = spec.fsai;
  FsaiOptions out;
  out.adaptive = spec.engine == EngineKind::kAfsai;
  out.post_filter = given.post_filter;
  out.precision = given.precision;
  out.symmetry_tolerance = given.symmetry_tolerance;
  if (out.adaptive) {
    out.k_max = given.k_max;
    out.s = given.s;
    out.epsilon = given.epsilon;
    out.min_gain = given.min_gain;
    out.time_budget_ms = given.time_budget_ms;
  } else {
    out.drop_tol = given.drop_tol;
    out.power = given.power;
  }
  return out;
}

class PlanOfFsai final : public EnginePlan {
 public:
  // `user_pattern`: by columns, of which the lower triangle counts; may be null. Errors: those of
  // FsaiPattern and PlanFsaiCuda; PATTERN_SIZE_MISMATCH; stop statuses.
  static Result<std::shared_ptr<const Plan>> Make(const PreconditionerSpec& spec, const CscView& a,
                                                  const PatternView* user_pattern, PlanFor of,
                                                  const Context& context) {
    std::shared_ptr<PlanOfFsai> plan(new PlanOfFsai(std::move(of)));
    const FsaiOptions options = FsaiOptionsOf(spec);
    plan->power_ = options.power;
    plan->drop_tol_ = options.drop_tol;
    plan->reads_values_ = options.adaptive || options.drop_tol > 0;
    if (plan->made_for().ranks != nullptr && user_pattern == nullptr) {
      return std::shared_ptr<const Plan>(
          std::move(plan));  // they find the pattern with the numbers
    }
    if (options.adaptive && user_pattern == nullptr) {
      if (Status status = plan->OnDevice(a, nullptr, context); !status.ok()) return status;
      return std::shared_ptr<const Plan>(std::move(plan));
    }
    std::optional<Result<Pattern>> by_rows;
    PatternView view;
    if (user_pattern != nullptr) {
      by_rows.emplace(Transpose(*user_pattern, context));
      if (!by_rows->ok()) return by_rows->status();
      view = **by_rows;
    }
    auto rows = FsaiPattern(a, user_pattern != nullptr ? &view : nullptr, options, context);
    if (!rows.ok()) return rows.status();
    plan->rows_ = *std::move(rows);
    const PatternView of_g = plan->rows_;
    if (Status status = plan->OnDevice(a, &of_g, context); !status.ok()) return status;
    return std::shared_ptr<const Plan>(std::move(plan));
  }

  int64_t host_bytes() const override {
    return static_cast<int64_t>(sizeof(PlanOfFsai) + rows_.col_ptr.size() * sizeof(int64_t) +
                                rows_.row_idx.size() * sizeof(int32_t));
  }
  int64_t device_bytes() const override { return there_ ? there_->device_bytes : 0; }
  bool serves_new_values() const override { return !reads_values_; }

 private:
  using EnginePlan::EnginePlan;

  Status OnDevice(const CscView& a, const PatternView* rows, const Context& context) {
    if (gpus().empty()) return {};
    FsaiCudaTimings own;
    auto there = Cuda().plan_fsai(gpus(), a, rows, context, &own);
    if (!there.ok()) return there.status();
    Add(own, &made_in_);
    there_ = *std::move(there);
    return {};
  }

  std::string Differences(const PreconditionerSpec& spec) const override {
    const FsaiOptions asked = FsaiOptionsOf(spec);
    return power_ != asked.power || drop_tol_ != asked.drop_tol
               ? "another pattern_power or drop_tol"
               : "";
  }

  Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                     DeviceTimings* timings) const override {
    FsaiOptions options = FsaiOptionsOf(spec);
    const bool grows = options.adaptive && !grown_;
    const PatternView rows = rows_;
    const PatternView* const initial = rows_.col_ptr.empty() ? nullptr : &rows;
    if (made_for().ranks != nullptr) {
      options.adaptive = grows;
      return MakeOverRanks(options, a, initial, context, timings);
    }
    FsaiCudaTimings there;
    FsaiCudaOutputs outputs;
    const auto build = [&] {
      if (there_ == nullptr) {
        return grows ? BuildFsai(a, initial, options, context)
                     : BuildFsaiOn(rows, a, options, context);
      }
      return grows ? Cuda().grow_fsai(*there_, initial, a, options, context, &there, &outputs)
                   : Cuda().build_fsai(*there_, rows, a, options, context, &there, &outputs);
    };
    auto built = build();
    if (!built.ok()) return built.status();
    Made made;
    made.g_columns = std::move(outputs.g_columns);
    made.on_device = std::move(outputs.g);
    made.quality.density = built->quality.density;
    made.quality.warnings = Warnings(built->quality, options, there.host_rows, a.n_cols);
    made.quality.pattern_reused = grown_;
    if (grows && !built->quality.out_of_time) {
      std::shared_ptr<PlanOfFsai> grown = OnGrown(built->g_rows, context.threads);
      grown->there_ = std::move(outputs.plan);
      if (there_ != nullptr && grown->there_ == nullptr) {
        const PatternView of_g = grown->rows_;
        auto again = Cuda().plan_fsai(gpus(), a, &of_g, context, &there);
        if (!again.ok()) return again.status();
        grown->there_ = *std::move(again);
      }
      made.grown = std::move(grown);
    }
    Add(there, timings);
    made.quality.fsai = std::move(built->quality);
    made.m = std::move(built->g_rows);
    return Result<Made>(std::move(made));
  }

  // The same plan for other values of A, on the pattern that G has grown.
  std::shared_ptr<PlanOfFsai> OnGrown(const CscMatrix& g_rows, int threads) const {
    std::shared_ptr<PlanOfFsai> grown(new PlanOfFsai(*this));
    grown->grown_ = true;
    grown->reads_values_ = false;
    Pattern& rows = grown->rows_;
    rows.n_rows = g_rows.n_rows;
    rows.n_cols = g_rows.n_cols;
    rows.col_ptr.resize(g_rows.col_ptr.size());
    rows.row_idx.resize(g_rows.row_idx.size());
    ParallelCopy(g_rows.col_ptr, rows.col_ptr, threads);
    ParallelCopy(g_rows.row_idx, rows.row_idx, threads);
    return grown;
  }

  // options.adaptive: G grows.
  Result<Made> MakeOverRanks(const FsaiOptions& options, const CscView& a,
                             const PatternView* user_rows, const Context& context,
                             DeviceTimings* timings) const {
    RanksDevice& ranks = *made_for().ranks;
    auto spread = SpreadTimed(ranks, a, context, timings);
    if (!spread.ok()) return spread.status();
    auto built = ranks.BuildFsai(**spread, user_rows, options, context);
    if (!built.ok()) return built.status();
    timings->device_to_host_ms += built->gather_ms;
    Made made;
    made.quality.density = built->fsai.density;
    made.quality.warnings = Warnings(built->fsai, options, 0, a.n_cols);
    made.quality.pattern_reused = grown_;
    made.quality.fsai = std::move(built->fsai);
    if (options.adaptive && !IsStandIn(a)) made.grown = OnGrown(built->m, context.threads);
    made.m = std::move(built->m);
    made.over_ranks = std::move(built->there);
    return Result<Made>(std::move(made));
  }

  // By rows, as FsaiResult::g_rows. Static FSAI's, and adaptive FSAI's where grown_: G's; else that
  // from which G grows (no columns at all: the diagonal).
  Pattern rows_;
  bool grown_ = false, reads_values_ = false;
  int power_ = 1;  // of a static pattern, unless that is the user's
  double drop_tol_ = 0;
  std::shared_ptr<const FsaiCudaPlan> there_;  // the same on a CUDA device; null: it is the host's
};

constexpr GpuBuilds OnGpu(double splits_from_ms) {
  return {.worth_ms = kGpuFsaiWorthMs,
          .waves =
              "rows of G are made in waves, as memory allows, and G by columns is made by the host",
          .too_large = ", even with its rows made in waves",
          .cure =
              "use fewer steps (k_max), a lower pattern power, a larger drop_tol or a sparser "
              "pattern",
          .splits_from_ms = splits_from_ms};
}
constexpr GpuBuilds kOnGpu = OnGpu(GpuBuilds().splits_from_ms);
constexpr GpuBuilds kGrownOnGpu = OnGpu(kSplitWorthMs);

class Fsai final : public PreconditionerEngine {
 public:
  explicit Fsai(const EngineTraits& traits) : PreconditionerEngine(traits) {}

  Status Check(const PreconditionerSpec& spec) const override {
    return CheckFsaiOptions(spec.fsai);
  }

  PreconditionerSpec OwnOptions(const PreconditionerSpec& spec) const override {
    PreconditionerSpec own = PreconditionerEngine::OwnOptions(spec);
    own.fsai = FsaiOptionsOf(spec);
    return own;
  }

  bool TimeDecides(const PreconditionerSpec& spec) const override {
    return traits().grows_pattern && spec.fsai.time_budget_ms > 0;
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView* user_pattern,
                                 const Context& context) const override {
    const FsaiOptions options = FsaiOptionsOf(spec);
    Result<Pattern> by_rows = Pattern();
    PatternView view;
    if (user_pattern != nullptr) {
      by_rows = Transpose(*user_pattern, context);
      if (!by_rows.ok()) return by_rows.status();
      view = *by_rows;
    }
    const auto counts =
        EstimateFsai(a, user_pattern != nullptr ? &view : nullptr, options, context);
    if (!counts.ok()) return counts.status();
    const int64_t n = a.n_cols, nnz = counts->nnz_g;
    const auto pointers = static_cast<int64_t>((n + 2) * sizeof(int64_t));
    const auto indices = static_cast<int64_t>(sizeof(int32_t));
    const int threads = ResolveThreads(context.threads);
    BuildEstimate e;
    e.nnz_m = nnz;
    e.download_bytes = CscBytes(n, nnz);
    // Beside the build: its plan, and the one that it leaves; the user's pattern by rows; G by
    // columns, with the lists of row blocks of both; a vector between them.
    e.host_bytes = static_cast<int64_t>(2 * sizeof(PlanOfFsai) + sizeof(HostPreconditioner)) +
                   counts->host_bytes + 2 * (pointers + indices * nnz) +
                   (user_pattern != nullptr ? pointers + indices * view.nnz() : 0) +
                   e.download_bytes + 3 * pointers + RowScratchBytes(n, nnz);
    e.device_bytes = counts->device_bytes;
    e.device_bytes_min = counts->device_bytes_min;
    PredictBuild(traits().rates, counts->work, threads, &e);
    return e;
  }

  Result<RanksDevice::RankBytes> BoundOverRanks(const BoundForA& bound,
                                                const PreconditionerSpec& spec,
                                                const PatternView* user_pattern,
                                                const BuildEstimate& estimate) const override {
    const FsaiOptions options = FsaiOptionsOf(spec);
    return bound({.fsai = &options, .user_pattern = user_pattern, .nnz_m = estimate.nnz_m});
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView& a,
                                               const PatternView* user_pattern, PlanFor of,
                                               const Context& context) const override {
    return PlanOfFsai::Make(spec, a, user_pattern, std::move(of), context);
  }
};

}  // namespace

const PreconditionerEngine& FsaiEngine() {
  static const Fsai engine({.kind = EngineKind::kFsai,
                            .name = "fsai",
                            .options_field = "fsai",
                            .factored = true,
                            .takes_pattern = true,
                            .on_gpu = &kOnGpu,
                            .over_ranks = true,
                            .rates = {.cpu = {.fixed = 4e4, .row = 112, .entry = 82, .flop = 0.05},
                                      .gpu = {.fixed = 1.7e6,
                                              .row = 17.4,
                                              .entry = 4.7,
                                              .flop = 5e-4,
                                              .first_entry = 17.6,
                                              .first_most = 0.96e6}}});
  return engine;
}

const PreconditionerEngine& AfsaiEngine() {
  static const Fsai engine({.kind = EngineKind::kAfsai,
                            .name = "afsai",
                            .options_field = "fsai",
                            .factored = true,
                            .takes_pattern = true,
                            .grows_pattern = true,
                            .on_gpu = &kGrownOnGpu,
                            .over_ranks = true,
                            .rates = {.cpu = {.fixed = 4e4, .row = 200, .gathered = 1.6},
                                      .gpu = {.fixed = 1.39e6,
                                              .entry = 2.9,
                                              .gathered = 0.0075,
                                              .first_entry = 14,
                                              .first_most = 0.82e6,
                                              .nnz_a = 0.15}}});
  return engine;
}

}  // namespace spaid::kernels
