#include "server/engine/devices.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/cuda_device.h"
#include "kernels/engine/mpi_library.h"
#include "server/base/log.h"
#include "server/base/status.h"
#include "server/engine/convert.h"

namespace spaid::server {
namespace {

constexpr std::chrono::seconds kLastWords{1};
constexpr char kCure[] =
    "name cpu, gpu:N, GPU-UUID or mpi, separated by commas, or auto for the CPU and GPU 0 where "
    "there is one";

absl::Status BadDevices(const std::string& flag, const std::string& why) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadFlag,
                   absl::StrCat("--devices=", flag, ": ", why, "; ", kCure));
}

std::vector<std::string> Names(const std::string& flag) { return absl::StrSplit(flag, ','); }

// The ordinal of "gpu:N"; -1: it is not of that form.
int Ordinal(const std::string& name) {
  int ordinal = -1;
  const bool fits = absl::StartsWith(name, "gpu:") && name.size() > 4 &&
                    absl::ascii_isdigit(static_cast<unsigned char>(name[4])) &&
                    absl::SimpleAtoi(name.substr(4), &ordinal);
  return fits ? ordinal : -1;
}

bool IsUuid(const std::string& name) { return absl::StartsWithIgnoreCase(name, "GPU-"); }

std::string Found(const kernels::CudaDevices& found) {
  std::string text = "found: cpu";
  for (const kernels::DeviceInfo& gpu : found.devices) {
    absl::StrAppend(&text, ", ", DeviceName(gpu), " (", gpu.name, ", ", gpu.uuid, ")");
  }
  return absl::StrCat(text, "; CUDA: ", found.status);
}

}  // namespace

std::string DeviceName(const kernels::DeviceInfo& device) {
  switch (device.backend) {
    case kernels::Backend::kCpu:
      return std::string(kCpuName);
    case kernels::Backend::kRanks:
      return absl::StrCat(std::string(kRanksName), ":", device.index);
    default:
      return absl::StrCat("gpu:", device.index);
  }
}

absl::Status CheckDevicesFlag(const std::string& flag) {
  if (flag == "auto") return absl::OkStatus();
  std::set<std::string> names;
  for (const std::string& name : Names(flag)) {
    if (!names.insert(name).second) return BadDevices(flag, absl::StrCat(name, " is named twice"));
    if (name == kCpuName || name == kRanksName || Ordinal(name) >= 0 || IsUuid(name)) continue;
    return BadDevices(flag, name == "auto" ? "auto stands alone"
                                           : absl::StrCat("'", name, "' is no device's name"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceChoice> ChooseDevices(const std::string& flag,
                                           const kernels::CudaDevices& found) {
  RETURN_IF_ERROR(CheckDevicesFlag(flag));
  DeviceChoice choice;
  const auto find = [&](auto matches) -> const kernels::DeviceInfo* {
    const auto it = std::find_if(found.devices.begin(), found.devices.end(), matches);
    return it == found.devices.end() ? nullptr : &*it;
  };
  if (flag == "auto") {
    choice.cpu = choice.automatic = true;
    const auto* first = find([](const kernels::DeviceInfo& gpu) { return gpu.index == 0; });
    if (first != nullptr) choice.gpus.push_back(*first);
    return choice;
  }
  for (const std::string& name : Names(flag)) {
    if (name == kCpuName || name == kRanksName) {
      (name == kCpuName ? choice.cpu : choice.ranks) = true;
      continue;
    }
    const int ordinal = Ordinal(name);
    const kernels::DeviceInfo* gpu = find([&](const kernels::DeviceInfo& device) {
      return ordinal >= 0 ? device.index == ordinal : absl::EqualsIgnoreCase(device.uuid, name);
    });
    if (gpu == nullptr) {
      return BadDevices(flag, absl::StrCat("there is no ", name, "; ", Found(found)));
    }
    const bool twice =
        std::any_of(choice.gpus.begin(), choice.gpus.end(),
                    [&](const kernels::DeviceInfo& other) { return other.index == gpu->index; });
    if (twice) return BadDevices(flag, absl::StrCat(DeviceName(*gpu), " is named twice"));
    choice.gpus.push_back(*gpu);
  }
  if (choice.ranks) choice.cpu = true;
  return choice;
}

absl::StatusOr<JoinedRanks> JoinRanks(const std::string& flag, const std::string& program,
                                      int threads, std::chrono::milliseconds keep_freed) {
  RETURN_IF_ERROR(CheckDevicesFlag(flag));
  const std::vector<std::string> names = Names(flag);
  JoinedRanks joined;
  if (std::find(names.begin(), names.end(), kRanksName) == names.end()) return joined;
  const auto failed = [&](const kernels::Status& status) {
    const absl::Status as_said = ToAbsl(status);
    return MakeError(as_said.code(), ReasonOf(as_said),
                     absl::StrCat("--devices=", flag, ": ", as_said.message()));
  };
  const auto library = kernels::LoadMpi();
  if (!library.ok()) return failed(library.status());
  const auto lost = [](const std::string& sentence) {
    if (!sentence.empty()) {
      LogLastWords(absl::StrCat("spaid: [", std::string(reason::kRankLost), "] ", sentence,
                                "; start the job again"));
      FlushLog(kLastWords);
    }
    std::_Exit(1);
  };
  auto ranks = (*library)->join(
      {.program = program, .threads = threads, .keep_freed = keep_freed, .lost = lost});
  if (!ranks.ok()) return failed(ranks.status());
  if (ranks->device == nullptr) {
    joined.exit_code = 0;  // rank 0 says how it went
    return joined;
  }
  const std::vector<kernels::RanksDevice::Rank>& all = ranks->device->ranks();
  for (size_t r = 0; r < all.size(); ++r) {
    Log(LogLevel::kInfo, "rank",
        {{"rank", r},
         {"host", all[r].host},
         {"threads", all[r].threads},
         {"memory_bytes", all[r].memory_bytes}});
  }
  joined.device = std::move(ranks->device);
  return joined;
}

absl::StatusOr<OpenedEngine> OpenEngine(const std::string& flag, int64_t device_memory, int slots,
                                        const kernels::CudaDevices& found,
                                        std::shared_ptr<kernels::RanksDevice> ranks) {
  ASSIGN_OR_RETURN(const DeviceChoice choice, ChooseDevices(flag, found));
  OpenedEngine opened;
  opened.cuda_status = found.status;
  std::vector<std::shared_ptr<kernels::CudaDevice>> gpus, more_slots;
  for (const kernels::DeviceInfo& gpu : choice.gpus) {
    const int64_t memory =
        device_memory > 0 ? std::min(device_memory, gpu.memory_bytes) : gpu.memory_bytes;
    const int64_t slot_bytes = memory / kSlotShare;
    auto device = kernels::CudaDevice::Open(
        gpu, slots > 1 ? memory - (slots - 1) * slot_bytes : device_memory);
    std::vector<std::shared_ptr<kernels::CudaDevice>> own_slots;
    for (int slot = 1; slot < slots && device.ok(); ++slot) {
      auto another = kernels::CudaDevice::Open(gpu, slot_bytes);
      if (another.ok()) {
        own_slots.push_back(*std::move(another));
      } else {
        device = another.status();
      }
    }
    if (device.ok()) {
      gpus.push_back(*std::move(device));
      more_slots.insert(more_slots.end(), own_slots.begin(), own_slots.end());
      if (!kernels::IsMeasured(gpu)) {
        Log(LogLevel::kInfo, "device_without_tables",
            {{"device", DeviceName(gpu)},
             {"name", gpu.name},
             {"uses_those_of", kernels::MeasuredDevice()}});
      }
      continue;
    }
    const std::string why = absl::StrCat(DeviceName(gpu), ": ", device.status().message());
    if (!choice.automatic) {
      return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceUnavailable,
                       absl::StrCat("--devices=", flag, ": ", why, "; ", Found(found),
                                    "; free the device, or leave it out"));
    }
    absl::StrAppend(&opened.cuda_status, "; not used: ", why);
    Log(LogLevel::kWarning, "device_unavailable", {{"device", DeviceName(gpu)}, {"error", why}});
  }
  for (const kernels::DeviceInfo& device : found.devices) {
    const bool used = std::any_of(gpus.begin(), gpus.end(), [&](const auto& gpu) {
      return gpu->info().index == device.index;
    });
    if (!used) opened.idle.push_back(device);
  }
  gpus.insert(gpus.end(), more_slots.begin(), more_slots.end());
  opened.engine = kernels::MakeEngine(choice.cpu, std::move(gpus), std::move(ranks));
  return opened;
}

}  // namespace spaid::server
