// Matches --devices against the devices of the machine, and opens the engine on them.
//
//   ASSIGN_OR_RETURN(OpenedEngine opened, OpenEngine("auto", /*device_memory=*/0, /*slots=*/1,
//                                                    kernels::ListCudaDevices()));
//   ... Backend backend(..., *opened.engine, ...) ...
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "kernels/mpi/ranks_device.h"

namespace spaid::server {

inline constexpr std::string_view kCpuName = "cpu";
inline constexpr std::string_view kRanksName = "mpi";

// Returns the name of a device in flags, messages, metrics and logs: "cpu", "gpu:0", "mpi:4" of
// four ranks.
std::string DeviceName(const kernels::DeviceInfo& device);

// Checks the form of `flag` only: INVALID_ARGUMENT/BAD_FLAG unless it is "auto", or a list of
// "cpu", "gpu:N", "GPU-UUID" and "mpi", separated by commas.
absl::Status CheckDevicesFlag(const std::string& flag);

struct DeviceChoice {
  bool cpu = false;
  bool automatic = false;                 // "auto": GPUs that cannot be opened are left out
  bool ranks = false;                     // "mpi", with which the CPU always is
  std::vector<kernels::DeviceInfo> gpus;  // in the order of the flag
};
// Finds the devices that `flag` names; "auto": the CPU, and GPU 0 if there is one. Errors:
// CheckDevicesFlag's; BAD_FLAG, with what was found, if a device is missing or named twice.
absl::StatusOr<DeviceChoice> ChooseDevices(const std::string& flag,
                                           const kernels::CudaDevices& found);

// The ranks of this program's MPI job.
struct JoinedRanks {
  std::unique_ptr<kernels::RanksDevice> device;  // null: `flag` does not name mpi
  std::optional<int> exit_code;                  // this is not rank 0, and its work is done
};
// Joins the other processes where `flag` names mpi. `program`: version and options, the same on all
// ranks. `threads`: of one rank; 0: its share of its host's cores. `keep_freed`:
// JoinTerms'. If a rank dies later, or is
// silent, this process ends with status 1 and one sentence. Errors: CheckDevicesFlag's;
// UNAVAILABLE/RANKS_UNAVAILABLE, INVALID_ARGUMENT/OPTIONS_DIFFER.
absl::StatusOr<JoinedRanks> JoinRanks(const std::string& flag, const std::string& program,
                                      int threads, std::chrono::milliseconds keep_freed);

struct OpenedEngine {
  std::unique_ptr<kernels::Engine> engine;
  std::vector<kernels::DeviceInfo> idle;  // found, and not used
  std::string cuda_status;  // the GPUs found, and why one that "auto" wanted is not used
};
// Chooses the devices of `flag` and opens an engine on them. `device_memory`: bytes of each GPU
// that the engine may take; 0: all. `slots`, at least 1: contexts of each GPU, whose computations
// run side by side; all but the first have a kSlotShare-th of its memory each, and come behind all
// devices in Engine::Devices(). Errors: ChooseDevices'; UNAVAILABLE/DEVICE_UNAVAILABLE if a GPU
// that is named cannot be used. `ranks`: null where `flag` does not name them.
inline constexpr int64_t kSlotShare = 32;
absl::StatusOr<OpenedEngine> OpenEngine(const std::string& flag, int64_t device_memory, int slots,
                                        const kernels::CudaDevices& found,
                                        std::shared_ptr<kernels::RanksDevice> ranks = nullptr);

}  // namespace spaid::server
