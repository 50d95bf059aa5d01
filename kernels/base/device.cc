#include "kernels/base/device.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "kernels/base/cgroup.h"
#include "kernels/base/cuda_loader.h"
#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

// "model name" on x86; ARM has none, and the machine's name must do.
std::string CpuName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  utsname names{};
  return uname(&names) == 0 ? std::string(names.machine) + " CPU" : "CPU";
}

int64_t ReadUsableMemory() {
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGE_SIZE)};
  const int64_t limit = ReadCgroupLimits().memory_bytes;
  return limit > 0 ? std::min(limit, physical) : physical;
}

}  // namespace

int64_t UsableMemoryBytes() {
  static const int64_t bytes = ReadUsableMemory();
  return bytes;
}

DeviceInfo CpuDevice() {
  DeviceInfo cpu;
  cpu.name = CpuName();
  cpu.memory_bytes = UsableMemoryBytes();
  cpu.threads = ResolveThreads(0);
  return cpu;
}

const CudaDevices& ListCudaDevices() {
  static const CudaDevices devices = LoadCudaDevices(CudaLibraryCandidates());
  return devices;
}

Result<std::shared_ptr<CudaDevice>> CudaDevice::Open(const DeviceInfo& info, int64_t memory_limit) {
  const CudaDevices& cuda = ListCudaDevices();
  if (cuda.entry != nullptr) return cuda.entry->open_device(info, memory_limit);
  return Status(StatusCode::kUnavailable, "DEVICE_UNAVAILABLE", cuda.status);
}

}  // namespace spaid::kernels
