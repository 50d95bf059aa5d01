#include "kernels/base/cuda_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "kernels/base/cuda/cuda_abi.h"

namespace spaid::kernels {
namespace {

constexpr char kLibrary[] = "libspaid_cuda.so";

std::string Version(int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaDevices Unavailable(std::string why) {
  CudaDevices result;
  result.status = std::move(why);
  return result;
}

CudaDevices Ask(const std::string& path, const SpaidCudaInterface& interface) {
  // An empty machine, or 16 GPUs; the second call is for whatever has more.
  std::vector<SpaidCudaDevice> found(16);
  int32_t count = 0, driver = 0, runtime = 0;
  char message[512] = "";
  int32_t result = interface.list_devices(found.data(), static_cast<int32_t>(found.size()), &count,
                                          &driver, &runtime, message, sizeof(message));
  if (result == kSpaidCudaOk && count > static_cast<int32_t>(found.size())) {
    found.resize(static_cast<size_t>(count));
    result = interface.list_devices(found.data(), count, &count, &driver, &runtime, message,
                                    sizeof(message));
  }
  const std::string text = message;
  switch (result) {
    case kSpaidCudaOk:
      break;
    case kSpaidCudaNoDriver:
      if (driver == 0) {
        return Unavailable("no NVIDIA driver answers (" + text +
                           "); install the driver, or give the container access to the GPU");
      }
      return Unavailable("the NVIDIA driver is for CUDA " + Version(driver) + ", " + path +
                         " needs CUDA " + Version(runtime) + " (" + text + "); update the driver");
    case kSpaidCudaNoDevice:
      return Unavailable("no CUDA device is visible (" + text + "; driver " + Version(driver) +
                         "); check nvidia-smi and CUDA_VISIBLE_DEVICES");
    default:
      return Unavailable("CUDA does not work here: " + text);
  }
  CudaDevices devices;
  devices.available = true;
  devices.interface = &interface;
  for (int32_t i = 0; i < count && i < static_cast<int32_t>(found.size()); ++i) {
    const SpaidCudaDevice& d = found[static_cast<size_t>(i)];
    DeviceInfo info;
    info.backend = Backend::kCuda;
    info.index = d.ordinal;
    info.name = d.name;
    info.uuid = d.uuid;
    info.memory_bytes = d.memory_bytes;
    info.compute_capability_major = d.compute_capability_major;
    info.compute_capability_minor = d.compute_capability_minor;
    devices.devices.push_back(std::move(info));
  }
  devices.status = std::to_string(count) + (count == 1 ? " device" : " devices") + ", driver " +
                   Version(driver) + ", runtime " + Version(runtime);
  return devices;
}

}  // namespace

std::vector<std::string> CudaLibraryCandidates() {
  std::vector<std::string> candidates;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path folder = program.parent_path();
    candidates.push_back((folder / kLibrary).string());
    candidates.push_back((folder.parent_path() / "lib" / kLibrary).string());
  }
  candidates.emplace_back(kLibrary);
  return candidates;
}

CudaDevices LoadCudaDevices(const std::vector<std::string>& candidates) {
  std::string looked;
  for (const std::string& path : candidates) {
    const bool bare = path.find('/') == std::string::npos;
    looked += (looked.empty() ? "" : ", ") + (bare ? "the loader's path" : path);
    if (!bare && access(path.c_str(), F_OK) != 0) continue;
    dlerror();
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* text = dlerror();
      const std::string why = text != nullptr ? text : "unknown loader error";
      // Only the loader can tell "not on the path" from "there, but broken", and only in words.
      if (bare && why.rfind(path + ": cannot open shared object file", 0) == 0) continue;
      return Unavailable("cannot load " + path + ": " + why);
    }
    // Never closed after this: CUDA's own exit handlers live in it.
    const auto entry =
        reinterpret_cast<SpaidCudaEntryPoint>(dlsym(library, SPAID_CUDA_ENTRY_POINT));
    if (entry == nullptr) {
      return Unavailable(path + " is no CUDA library of spaid: it has no symbol " +
                         SPAID_CUDA_ENTRY_POINT + "; install it from the same build");
    }
    const SpaidCudaInterface* interface = entry();
    if (interface == nullptr || interface->abi_version != kSpaidCudaAbiVersion ||
        interface->struct_size != sizeof(SpaidCudaInterface)) {
      return Unavailable(path + " has interface version " +
                         std::to_string(interface == nullptr ? 0 : interface->abi_version) +
                         ", this program needs " + std::to_string(kSpaidCudaAbiVersion) +
                         ": install both from the same build");
    }
    return Ask(path, *interface);
  }
  return Unavailable(std::string(kLibrary) + " not found (looked in " + looked +
                     "); this installation serves the CPU only");
}

}  // namespace spaid::kernels
