#include "kernels/base/cuda_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/base/build_id.h"
#include "kernels/base/cuda_backend.h"

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

CudaDevices Ask(const std::string& path, CudaBackend& backend) {
  CudaListing found = backend.ListDevices();
  const std::string& text = found.message;
  const std::string driver = Version(found.driver_version);
  switch (found.outcome) {
    case CudaListing::Outcome::kDevices:
      break;
    case CudaListing::Outcome::kNoDriver:
      if (found.driver_version == 0) {
        return Unavailable("no NVIDIA driver answers (" + text +
                           "); install the driver, or give the container access to the GPU");
      }
      return Unavailable("the NVIDIA driver is for CUDA " + driver + ", " + path + " needs CUDA " +
                         Version(found.runtime_version) + " (" + text + "); update the driver");
    case CudaListing::Outcome::kNoDevice:
      return Unavailable("no CUDA device is visible (" + text + "; driver " + driver +
                         "); check nvidia-smi and CUDA_VISIBLE_DEVICES");
    case CudaListing::Outcome::kError:
      return Unavailable("CUDA does not work here: " + text);
  }
  CudaDevices devices;
  devices.available = true;
  devices.backend = &backend;
  devices.devices = std::move(found.devices);
  const size_t count = devices.devices.size();
  devices.status = std::to_string(count) + (count == 1 ? " device" : " devices") + ", driver " +
                   driver + ", runtime " + Version(found.runtime_version);
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
    const auto entry = reinterpret_cast<CudaEntryPoint>(dlsym(library, kCudaEntryPoint));
    if (entry == nullptr) {
      return Unavailable(path + " is no CUDA library of spaid: it has no symbol " +
                         kCudaEntryPoint + "; install it from the same build");
    }
    CudaBackend* backend = nullptr;
    const char* const build_id = entry(kCudaBuildId, &backend);
    if (backend == nullptr) {
      return Unavailable(path + " has interface version " + build_id + ", this program needs " +
                         kCudaBuildId + ": install both from the same build");
    }
    return Ask(path, *backend);
  }
  return Unavailable(std::string(kLibrary) + " not found (looked in " + looked +
                     "); this installation serves the CPU only");
}

}  // namespace spaid::kernels
