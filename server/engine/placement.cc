// Decides on which devices the adapter runs builds and solves.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/engine/cost.h"
#include "server/base/status.h"
#include "server/engine/adapter.h"
#include "server/engine/resolved_build.h"

namespace spaid::server {
namespace {

// "the build may take ... bytes of device memory, over the limit of ...": of what fits no GPU.
std::string TooLarge(const kernels::BuildEstimate& estimate, const kernels::GpuBuilds& builds,
                     int64_t limit) {
  return absl::StrCat("the build may take ", estimate.device_bytes_min,
                      " bytes of device memory, over the limit of ", limit, " (--device-memory)",
                      estimate.device_bytes_min < estimate.device_bytes ? builds.too_large : "");
}

constexpr char kLiesThere[] = "the matrix lies there alone";
constexpr char kMLiesThere[] = "the preconditioner lies there alone";
constexpr char kBuiltThereAlone[] = "none else builds it";
constexpr char kRanksFirst[] = "ranks compute what they can (--devices=mpi)";
// A build over ranks beside one thread's for each of theirs, as measured (docs/decisions/mpi.md):
// columns that repeat are told apart over ranks, M goes to the owners of its rows and to rank 0.
constexpr double kRanksOverhead = 2.4, kRanksFixedMs = 20;
constexpr double kRanksBytesPerMs = 1e6;
// Bytes of all ranks together beside those of one process: columns that several of them need.
constexpr int64_t kRanksShare = 2;

// Why a build stays on the CPU, for people.
std::string WhyNotOverRanks(const ResolvedBuild& build, const kernels::BuildEstimate& estimate) {
  const kernels::EngineTraits& engine = kernels::TraitsOf(build.spec.engine);
  if (engine.kind == kernels::EngineKind::kNone) return "";
  if (!engine.over_ranks || engine.may_be_diagonal) {
    return absl::StrCat("cpu: several processes do not build ", std::string(engine.name));
  }
  if (build.spec.scaling != kernels::ScalingMode::kNone) {
    return "cpu: several processes do not scale A";
  }
  if (build.spec.static_spai.pattern.row_match) {
    return "cpu: several processes do not match rows (row_match)";
  }
  if (kernels::TimeDecides(build.spec)) {
    return "cpu: several processes do not end growth by the clock (time_budget)";
  }
  return absl::StrFormat("cpu: predicted at %.3g ms there, no sooner by several processes",
                         estimate.predicted_ms);
}

// Devices that a build may go to.
struct Fitting {
  DeviceMask devices = 0;
  int64_t limit = 0;  // the largest device's
  std::string names;

  void Add(size_t device, const std::string& name, int64_t bytes) {
    devices |= DeviceBit(device);
    limit = std::max(limit, bytes);
    absl::StrAppend(&names, names.empty() ? "" : " or ", name);
  }
};

}  // namespace

Placement EngineAdapter::PlaceHostWork() const {
  Placement placement;
  if (devices_[0].backend == kernels::Backend::kCpu) placement.devices = DeviceBit(0);
  return placement;
}

Placement EngineAdapter::PlaceSolve(const Matrix& a, int64_t nnz_m, int64_t n_rhs,
                                    const kernels::SolveOptions& options, double predicted_ms,
                                    kernels::MForm form) const {
  const bool has_cpu = devices_[0].backend == kernels::Backend::kCpu;
  const std::string predicted = absl::StrFormat("predicted at %.3g ms on the CPU", predicted_ms);
  const auto host = [&](const std::string& why) {
    Placement placement = PlaceHostWork();
    if (devices_.size() == 1 && has_cpu) return placement;
    placement.why = absl::StrCat(has_cpu ? "cpu: " : "the host of a GPU: ", why);
    return placement;
  };
  if (ranks_ && (options_.ranks_first || a.over != nullptr || form == kernels::MForm::kOverRanks)) {
    const std::string_view why = kernels::NotOverRanks(options, form);
    if (!why.empty()) return host(std::string(why));
    const int64_t bytes = kernels::SolveRanksBytes(a.n(), a.nnz(), nnz_m, options);
    const int64_t limit = engine_.State(static_cast<int>(slots_[*ranks_].front())).limit_bytes;
    if (bytes > limit) {
      return host(
          absl::StrCat("the solve may take ", bytes, " bytes over all ranks, which have ", limit));
    }
    return {.devices = DeviceBit(*ranks_),
            .on_gpu = true,
            .device_bytes = bytes,
            .why = absl::StrCat(names_[*ranks_], ": ",
                                a.over != nullptr                    ? kLiesThere
                                : form == kernels::MForm::kOverRanks ? kMLiesThere
                                                                     : kRanksFirst),
            .over_ranks = true};
  }
  const size_t gpus = devices_.size() - (has_cpu ? 1 : 0) - (ranks_ ? 1 : 0);
  if (gpus == 0) return host("ranks solve where they have built M");
  if (const std::string_view why = kernels::HostAlone(options, form); !why.empty()) {
    return host(std::string(why));
  }
  if (has_cpu && predicted_ms <= kernels::kGpuSolveWorthMs) {
    return host(
        absl::StrFormat("%s; a GPU pays from %g ms on", predicted, kernels::kGpuSolveWorthMs));
  }
  // With more right-hand sides it takes more where there is more.
  const int64_t bytes = engine_.SolveDeviceBytes(a.n(), a.nnz(), nnz_m, /*n_rhs=*/1, options, form);
  std::string lost;
  Fitting fitting;
  int64_t limit = 0;
  for (size_t d = has_cpu ? 1 : 0; d < devices_.size(); ++d) {
    if (d == ranks_) continue;
    const kernels::DeviceState state = engine_.State(static_cast<int>(slots_[d].front()));
    if (state.lost) {
      absl::StrAppend(&lost, lost.empty() ? "" : ", ", names_[d]);
      continue;
    }
    limit = std::max(limit, state.limit_bytes);
    if (bytes <= state.limit_bytes) fitting.Add(d, names_[d], state.limit_bytes);
  }
  if (fitting.devices == 0) {
    if (limit > 0) {
      return host(absl::StrCat("the solve may take ", bytes,
                               " bytes of device memory, over the limit of ", limit,
                               " (--device-memory)"));
    }
    return host(absl::StrCat(lost, " has failed"));
  }
  return {.devices = fitting.devices,
          .fallback = has_cpu ? DeviceBit(0) : 0,
          .on_gpu = true,
          .device_bytes = std::min(
              engine_.SolveDeviceBytes(a.n(), a.nnz(), nnz_m, n_rhs, options, form), limit),
          .why = devices_.size() == 1 ? ""
                 : has_cpu            ? absl::StrCat(fitting.names, ": ", predicted)
                                      : absl::StrCat(fitting.names, ": the first that is free")};
}

Residence EngineAdapter::ResidenceOf(absl::FunctionRef<bool(size_t index)> holds) const {
  Residence residence;
  for (size_t d = 0; d < devices_.size(); ++d) {
    for (size_t slot = 0; slot < slots_[d].size(); ++slot) {
      if (holds(slots_[d][slot])) residence.Add(d, slot);
    }
  }
  return residence;
}

Residence EngineAdapter::LaidOutOn(const Matrix& a) const {
  return ResidenceOf([&](size_t index) { return on_devices_.Holds(a, index); });
}

Residence EngineAdapter::PlannedOn(const std::string& tenant, const ResolvedBuild& build) const {
  return ResidenceOf([&](size_t index) { return plans_.Holds(PlanKey({index}, tenant, build)); });
}

int EngineAdapter::MaxDevices(const ResolvedBuild& build,
                              const kernels::BuildEstimate& estimate) const {
  const kernels::GpuBuilds* on_gpu = kernels::TraitsOf(build.spec.engine).on_gpu;
  const bool pays = on_gpu != nullptr && estimate.predicted_ms >= on_gpu->splits_from_ms;
  return pays ? options_.max_devices : 1;
}

std::optional<Placement> EngineAdapter::PlaceOverRanks(
    const ResolvedBuild& build, const kernels::BuildEstimate& estimate) const {
  const kernels::EngineTraits& engine = kernels::TraitsOf(build.spec.engine);
  if (!ranks_) return std::nullopt;
  // Resolve has refused what they do not build of a matrix that lies there.
  if (!build.over_ranks &&
      (!engine.over_ranks || engine.may_be_diagonal ||
       build.spec.scaling != kernels::ScalingMode::kNone ||
       build.spec.static_spai.pattern.row_match || kernels::TimeDecides(build.spec))) {
    return std::nullopt;
  }
  const bool alone = engine.ranks_alone;
  const kernels::DeviceInfo& ranks = devices_[*ranks_];
  const int64_t limit = engine_.State(static_cast<int>(slots_[*ranks_].front())).limit_bytes;
  // M comes to rank 0, in pieces; each rank has its part of all else, and columns of others.
  const int64_t bytes = kRanksShare * estimate.host_bytes;
  if (bytes > limit && !build.over_ranks && !alone) return std::nullopt;
  const int64_t host_bytes = 2 * estimate.download_bytes + bytes / std::max(1, ranks.index);
  const double sequential_ms = estimate.predicted_ms * threads();
  // hypre and PETSc have a thread a rank, and rates of their own.
  const double predicted_ms =
      alone ? sequential_ms / std::max(1, ranks.index)
            : kRanksOverhead * sequential_ms / std::max(1, ranks.threads) + kRanksFixedMs +
                  static_cast<double>(2 * estimate.download_bytes) / kRanksBytesPerMs;
  const bool too_large_here =
      options_.max_build_bytes > 0 && estimate.host_bytes > options_.max_build_bytes;
  const bool gpu = devices_.size() > 2 && estimate.predicted_device_ms > 0;
  std::string why;
  if (build.over_ranks) {
    why = kLiesThere;
  } else if (alone) {
    why = kBuiltThereAlone;
  } else if (options_.ranks_first) {
    why = kRanksFirst;
  } else if (too_large_here) {
    why =
        absl::StrCat("the build may take ", estimate.host_bytes, " bytes here, over the limit of ",
                     options_.max_build_bytes, " (--max-build-bytes)");
  } else if (predicted_ms < estimate.predicted_ms &&
             !(gpu && estimate.predicted_device_ms < predicted_ms)) {
    why = absl::StrFormat("predicted at %.3g ms there, at %.3g ms on the CPU", predicted_ms,
                          estimate.predicted_ms);
  } else {
    return std::nullopt;
  }
  if (estimate.rank_bytes > 0) {
    absl::StrAppend(&why, "; a rank takes at most ", estimate.rank_bytes, " bytes, ",
                    estimate.halo_bytes, " of them columns of other ranks");
  }
  return Placement{.devices = DeviceBit(*ranks_),
                   .on_gpu = true,
                   .device_bytes = bytes,
                   .why = absl::StrCat(names_[*ranks_], ": ", why),
                   .over_ranks = true,
                   .predicted_ms = predicted_ms,
                   .host_bytes = host_bytes};
}

absl::StatusOr<Placement> EngineAdapter::Place(const ResolvedBuild& build,
                                               const kernels::BuildEstimate& estimate) const {
  const bool has_cpu = devices_[0].backend == kernels::Backend::kCpu;
  const size_t first_gpu = has_cpu ? 1 : 0;
  const kernels::GpuBuilds* on_gpu = kernels::TraitsOf(build.spec.engine).on_gpu;
  const size_t gpus = devices_.size() - first_gpu - (ranks_ ? 1 : 0);
  if (auto over_ranks = PlaceOverRanks(build, estimate)) {
    const int64_t limit = engine_.State(static_cast<int>(slots_[*ranks_].front())).limit_bytes;
    if (over_ranks->device_bytes > limit && !build.over_ranks) {  // and none else builds it
      return MakeError(absl::StatusCode::kResourceExhausted, reason::kBuildTooLarge,
                       absl::StrCat("the build may take ", over_ranks->device_bytes,
                                    " bytes over all ranks, which have ", limit,
                                    "; take more hosts, or another engine"))
          .Meta("actual", over_ranks->device_bytes)
          .Meta("limit", limit);
    }
    return *std::move(over_ranks);
  }
  if (gpus == 0 || on_gpu == nullptr) {
    Placement host = PlaceHostWork();
    if (ranks_ && gpus == 0) host.why = WhyNotOverRanks(build, estimate);
    return host;
  }
  const kernels::GpuBuilds& builds = *on_gpu;
  if (*builds.host_alone != '\0' && estimate.device_bytes == 0) {
    Placement host = PlaceHostWork();
    host.host_alone = true;
    host.why = absl::StrCat(has_cpu ? "cpu: " : "the host of a GPU: ", builds.host_alone);
    return host;
  }

  std::string lost;
  int64_t limit = 0;
  Fitting whole, in_waves;
  for (size_t d = first_gpu; d < devices_.size(); ++d) {
    if (d == ranks_) continue;
    const kernels::DeviceState state = engine_.State(static_cast<int>(slots_[d].front()));
    if (state.lost) {
      absl::StrAppend(&lost, lost.empty() ? "" : ", ", names_[d]);
      continue;
    }
    limit = std::max(limit, state.limit_bytes);
    if (estimate.device_bytes <= state.limit_bytes) {
      whole.Add(d, names_[d], state.limit_bytes);
    } else if (estimate.device_bytes_min <= state.limit_bytes) {
      in_waves.Add(d, names_[d], state.limit_bytes);
    }
  }
  const bool waves = whole.devices == 0 && in_waves.devices != 0;
  const Fitting& fitting = waves ? in_waves : whole;
  Placement gpu{.devices = fitting.devices,
                .fallback = has_cpu ? DeviceBit(0) : 0,
                .on_gpu = true,
                .device_bytes = std::min(estimate.device_bytes, fitting.limit),
                .why = ""};
  if (waves) {
    gpu.why = absl::StrCat(fitting.names, ": all at once may take ", estimate.device_bytes,
                           " bytes of device memory, over the limit of ", fitting.limit,
                           " (--device-memory); ", builds.waves);
  }
  const bool too_large = gpu.devices == 0 && limit > 0;
  if (!has_cpu) {
    if (too_large && *builds.host_alone != '\0') {  // the host builds others, too
      Placement host = PlaceHostWork();
      host.host_alone = true;
      host.why = absl::StrCat("the host of a GPU: ", TooLarge(estimate, builds, limit));
      return host;
    }
    if (too_large) {
      return MakeError(absl::StatusCode::kResourceExhausted, reason::kBuildTooLarge,
                       absl::StrCat(TooLarge(estimate, builds, limit), "; ", builds.cure,
                                    ", or have the server given more --device-memory, or cpu among "
                                    "its --devices"))
          .Meta("actual", estimate.device_bytes_min)
          .Meta("limit", limit);
    }
    if (gpu.devices == 0) {
      return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost,
                       absl::StrCat(lost,
                                    " has failed, and the server has no other device: send "
                                    "the request to another server, and restart this one"));
    }
    return gpu;
  }
  const auto on_cpu = [](const std::string& why) {
    Placement placement;
    placement.devices = DeviceBit(0);
    placement.why = absl::StrCat("cpu: ", why);
    return placement;
  };
  const std::string predicted = absl::StrFormat("%.3g ms", estimate.predicted_ms);
  const double worth = builds.worth_ms * (waves ? builds.waves_cost : 1);
  if (estimate.predicted_ms <= worth && !build.for_gpu) {
    return on_cpu(
        absl::StrFormat("predicted at %s there; a GPU pays from %g ms on", predicted, worth));
  }
  if (estimate.predicted_device_ms >= estimate.predicted_ms && !build.for_gpu) {
    return on_cpu(absl::StrFormat("predicted at %s there, at %.3g ms on a GPU", predicted,
                                  estimate.predicted_device_ms));
  }
  if (too_large) return on_cpu(TooLarge(estimate, builds, limit));
  if (gpu.devices == 0) return on_cpu(absl::StrCat(lost, " has failed"));
  std::string why = absl::StrCat("predicted at ", predicted, " on the CPU");
  if (estimate.predicted_device_ms > 0) {
    absl::StrAppendFormat(&why, ", at %.3g ms there", estimate.predicted_device_ms);
  }
  gpu.why = waves ? absl::StrCat(gpu.why, "; ", why) : absl::StrCat(fitting.names, ": ", why);
  return gpu;
}

}  // namespace spaid::server
