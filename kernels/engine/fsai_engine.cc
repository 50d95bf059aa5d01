#include "kernels/engine/fsai_engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/engine/engine_parts.h"
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

}  // namespace

int64_t FsaiPlan::bytes() const {
  return static_cast<int64_t>(sizeof(FsaiPlan) + rows.col_ptr.size() * sizeof(int64_t) +
                              rows.row_idx.size() * sizeof(int32_t));
}

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

Result<std::shared_ptr<const FsaiPlan>> PlanFsai(const PreconditionerSpec& spec, const CscView& a,
                                                 const PatternView* user_pattern,
                                                 std::span<const std::shared_ptr<CudaDevice>> gpus,
                                                 const Context& context, DeviceTimings* timings) {
  const FsaiOptions options = FsaiOptionsOf(spec);
  auto plan = std::make_shared<FsaiPlan>();
  plan->power = options.power;
  plan->drop_tol = options.drop_tol;
  const auto on_device = [&](const PatternView* rows) -> Status {
    if (gpus.empty()) return {};
    FsaiCudaTimings own;
    auto there = PlanFsaiCuda(gpus, a, rows, context, &own);
    if (!there.ok()) return there.status();
    Add(own, timings);
    plan->there = *std::move(there);
    return {};
  };
  if (options.adaptive && user_pattern == nullptr) {
    if (Status status = on_device(nullptr); !status.ok()) return status;
    return std::shared_ptr<const FsaiPlan>(std::move(plan));
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
  plan->rows = *std::move(rows);
  const PatternView of_g = plan->rows;
  if (Status status = on_device(&of_g); !status.ok()) return status;
  return std::shared_ptr<const FsaiPlan>(std::move(plan));
}

Result<FsaiBuild> BuildOnFsaiPlan(const FsaiPlan& plan, const PreconditionerSpec& spec,
                                  std::span<const std::shared_ptr<CudaDevice>> gpus,
                                  const CscView& a, const Context& context,
                                  DeviceTimings* timings) {
  const FsaiOptions options = FsaiOptionsOf(spec);
  const bool grows = options.adaptive && !plan.grown;
  const PatternView rows = plan.rows;
  const PatternView* const initial = plan.rows.col_ptr.empty() ? nullptr : &rows;
  FsaiCudaTimings there;
  FsaiCudaOutputs outputs;
  const auto build = [&] {
    if (plan.there == nullptr) {
      return grows ? BuildFsai(a, initial, options, context)
                   : BuildFsaiOn(rows, a, options, context);
    }
    return grows ? GrowFsaiCuda(*plan.there, initial, a, options, context, &there, &outputs)
                 : BuildFsaiOnCuda(*plan.there, rows, a, options, context, &there, &outputs);
  };
  auto built = build();
  if (!built.ok()) return built.status();
  FsaiBuild out;
  out.g_columns = std::move(outputs.g_columns);
  out.kept = std::move(outputs.g);
  out.quality.density = built->quality.density;
  out.quality.warnings = Warnings(built->quality, options, there.host_rows, a.n_cols);
  out.quality.pattern_reused = plan.grown;
  if (grows && !built->quality.out_of_time) {
    auto grown = std::make_shared<FsaiPlan>();
    grown->grown = true;
    grown->rows = {.n_rows = built->g_rows.n_rows,
                   .n_cols = built->g_rows.n_cols,
                   .col_ptr = built->g_rows.col_ptr,
                   .row_idx = built->g_rows.row_idx};
    grown->there = std::move(outputs.plan);
    if (plan.there != nullptr && grown->there == nullptr) {
      const PatternView of_g = grown->rows;
      auto again = PlanFsaiCuda(gpus, a, &of_g, context, &there);
      if (!again.ok()) return again.status();
      grown->there = *std::move(again);
    }
    out.grown = std::move(grown);
  }
  Add(there, timings);
  out.quality.fsai = std::move(built->quality);
  out.g_rows = std::move(built->g_rows);
  return Result<FsaiBuild>(std::move(out));
}

}  // namespace spaid::kernels
