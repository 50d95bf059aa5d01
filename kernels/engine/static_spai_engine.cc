#include "kernels/engine/static_spai_engine.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/engine_parts.h"
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
  if (there) return HostBytes(*there);
  return here ? Counts(*here).plan_bytes : 0;
}

int64_t SpaiPlan::device_bytes() const { return there ? DeviceBytes(*there) : 0; }

Result<SpaiPlan> PlanSpai(const StaticSpaiOptions& options, const CscView& a,
                          const PatternView* user_pattern,
                          std::span<const std::shared_ptr<CudaDevice>> gpus, const Context& context,
                          DeviceTimings* timings, std::unique_ptr<SpaiOnDevice> there) {
  SpaiPlan plan;
  if (gpus.empty()) {
    auto made = PlanStaticSpai(a, user_pattern, options, context);
    if (!made.ok()) return made.status();
    plan.here = *std::move(made);
    return Result<SpaiPlan>(std::move(plan));
  }
  StaticSpaiCudaTimings own;
  auto made = PlanStaticSpaiCuda(gpus, a, user_pattern, WithoutIdleLimit(options, a, user_pattern),
                                 context, &own, std::move(there));
  if (!made.ok()) return made.status();
  plan.there = *std::move(made);
  Add(own, timings);
  return Result<SpaiPlan>(std::move(plan));
}

Result<SpaiBuild> BuildOnSpaiPlan(const SpaiPlan& plan, const StaticSpaiOptions& options,
                                  bool grown, const CscView& a, const Context& context,
                                  DeviceTimings* timings) {
  StaticSpaiCudaTimings own;
  SpaiBuild out;
  auto built = plan.there ? BuildStaticSpaiCuda(*plan.there, a, options, context, &own, &out.kept)
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

}  // namespace spaid::kernels
