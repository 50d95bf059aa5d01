// Where the adapter has builds and solves run.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/engine/cost.h"
#include "server/base/status.h"
#include "server/engine/adapter.h"

namespace spaid::server {

Placement EngineAdapter::PlaceHostWork() const {
  Placement placement;
  if (devices_[0].backend == kernels::Backend::kCpu) placement.devices = DeviceBit(0);
  return placement;
}

absl::StatusOr<Placement> EngineAdapter::Place(const ResolvedBuild& build,
                                               const kernels::BuildEstimate& estimate) const {
  const bool has_cpu = devices_[0].backend == kernels::Backend::kCpu;
  const size_t first_gpu = has_cpu ? 1 : 0;
  const kernels::EngineKind kind = build.spec.engine;
  const bool static_spai =
      kind == kernels::EngineKind::kStaticSpai || kind == kernels::EngineKind::kAuto;
  if (first_gpu == devices_.size() || !static_spai) return PlaceHostWork();

  Placement gpu{.devices = 0, .fallback = has_cpu ? DeviceBit(0) : 0, .on_gpu = true, .why = ""};
  std::string names, lost;
  int64_t limit = 0;
  for (size_t d = first_gpu; d < devices_.size(); ++d) {
    const kernels::DeviceState state = engine_.State(static_cast<int>(d));
    if (state.lost) {
      absl::StrAppend(&lost, lost.empty() ? "" : ", ", names_[d]);
      continue;
    }
    limit = std::max(limit, state.limit_bytes);
    if (estimate.device_bytes > state.limit_bytes) continue;
    gpu.devices |= DeviceBit(d);
    absl::StrAppend(&names, names.empty() ? "" : " or ", names_[d]);
  }
  const bool too_large = gpu.devices == 0 && limit > 0;
  if (!has_cpu) {
    if (too_large) {
      return MakeError(absl::StatusCode::kResourceExhausted, reason::kBuildTooLarge,
                       absl::StrCat("the build may take ", estimate.device_bytes,
                                    " bytes of device memory; the limit is ", limit,
                                    " (--device-memory); use a lower pattern power, a threshold "
                                    "(keep_tau) or a sparser pattern, or have cpu among the "
                                    "server's --devices"))
          .Meta("actual", estimate.device_bytes)
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
  const Placement cpu{.devices = DeviceBit(0), .fallback = 0, .on_gpu = false, .why = ""};
  const auto on_cpu = [&cpu](const std::string& why) {
    Placement placement = cpu;
    placement.why = absl::StrCat("cpu: ", why);
    return placement;
  };
  const std::string predicted = absl::StrFormat("%.3g ms", estimate.predicted_ms);
  if (estimate.predicted_ms <= kernels::kGpuWorthMs) {
    return on_cpu(absl::StrFormat("predicted at %s there; a GPU pays from %g ms on", predicted,
                                  kernels::kGpuWorthMs));
  }
  if (too_large) {
    return on_cpu(absl::StrCat("the build may take ", estimate.device_bytes,
                               " bytes of device memory, over the limit of ", limit,
                               " (--device-memory)"));
  }
  if (gpu.devices == 0) return on_cpu(absl::StrCat(lost, " has failed"));
  gpu.why = absl::StrCat(names, ": predicted at ", predicted, " on the CPU");
  return gpu;
}

}  // namespace spaid::server
