// The devices of this machine. Everything CUDA lives in libspaid_cuda.so, loaded when it is there
// and a driver answers; else `CudaStatus` says why not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spaid::kernels {

struct CudaEntry;  // cuda_loader.h

enum class Backend {
  kCpu,
  kCuda,
  kRanks,  // all processes of this program's MPI job together (kernels/mpi/ranks_device.h)
};

struct DeviceInfo {
  Backend backend = Backend::kCpu;
  int index = 0;             // CUDA ordinal; 0 for the CPU; of ranks how many there are
  std::string name;          // "NVIDIA H100 80GB HBM3"; the CPU's model name
  std::string uuid;          // "GPU-…" ; empty for the CPU
  int64_t memory_bytes = 0;  // total; for the CPU the cgroup limit where there is one
  int compute_capability_major = 0, compute_capability_minor = 0;
  int threads = 0;  // CPU: usable cores; of ranks those of all
};

DeviceInfo CpuDevice();

struct CudaDevices {
  bool available = false;
  std::string status;  // "2 devices, driver 13.0", or why there is none
  std::vector<DeviceInfo> devices;
  // The loaded library's; null where it is not available. Lives as long as the process.
  const CudaEntry* entry = nullptr;
};

// Loads libspaid_cuda.so (from the folder of the running binary, ../lib of it, then the loader's
// path) on the first call; later calls answer from memory. Thread-safe.
const CudaDevices& ListCudaDevices();

// Bytes this process may use: the cgroup's limit (v2 or v1) where there is one, else physical
// memory. Read once, as the cores are. Thread-safe.
int64_t UsableMemoryBytes();

}  // namespace spaid::kernels
