// Finds libspaid_cuda.so and asks it for devices; what device.h tells the rest of the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/base/device.h"
#include "kernels/base/memory.h"
#include "kernels/base/parallel.h"

namespace spaid::kernels {

struct CudaLibrary;  // kernels/engine/cuda_library.h

// The devices as the library lists them, or why there are none.
struct CudaListing {
  enum class Outcome {
    kDevices,
    kNoDriver,  // none, or one that is older than the runtime needs
    kNoDevice,
    kError,
  };
  Outcome outcome = Outcome::kDevices;
  std::string message;  // where there are no devices: CUDA's own words
  int driver = 0;       // 1000 major + 10 minor; 0: no driver
  int runtime = 0;      // the same
  std::vector<DeviceInfo> devices;
};

// The state that a process shall have once: the library links the rooms' host code a second time,
// and with a pool of its own it would start as many threads again, with a list of its own keep
// freed memory that nobody gives back.
struct ProcessState {
  Pool* pool = ThePool();
  FreedBlocks* freed = TheFreedBlocks();
};

// The one symbol of the library, kCudaEntry. Both sides speak in the kernels' own C++ types, so
// nothing but `build_id` is looked at before that is the program's own, SPAID_BUILD_ID.
struct CudaEntry {
  char build_id[17];
  void (*adopt)(const ProcessState& program);  // before all that follows
  CudaListing (*list_devices)();
  Result<std::shared_ptr<CudaDevice>> (*open_device)(const DeviceInfo& info, int64_t memory_limit);
  const CudaLibrary* library;
};
inline constexpr char kCudaEntry[] = "spaid_cuda_entry";

// Names where the library is looked for (LibraryCandidates).
std::vector<std::string> CudaLibraryCandidates();

// Opens the library (OpenLibrary) and lists its devices; what is wrong is in the status.
// Thread-safe.
CudaDevices LoadCudaDevices(const std::vector<std::string>& candidates);

}  // namespace spaid::kernels
