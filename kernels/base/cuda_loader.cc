#include "kernels/base/cuda_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/base/build_id.h"

namespace spaid::kernels {
namespace {

constexpr char kLibrary[] = "libspaid_cuda.so";

std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaDevices Unavailable(std::string why) {
  CudaDevices result;
  result.status = std::move(why);
  return result;
}

CudaDevices Ask(const std::string& path, const CudaEntry& entry) {
  CudaListing found = entry.list_devices();
  switch (found.outcome) {
    case CudaListing::Outcome::kDevices:
      break;
    case CudaListing::Outcome::kNoDriver:
      if (found.driver == 0) {
        return Unavailable("no NVIDIA driver answers (" + found.message +
                           "); install the driver, or give the container access to the GPU");
      }
      return Unavailable("the NVIDIA driver is for CUDA " + Version(found.driver) + ", " + path +
                         " needs CUDA " + Version(found.runtime) + " (" + found.message +
                         "); update the driver");
    case CudaListing::Outcome::kNoDevice:
      return Unavailable("no CUDA device is visible (" + found.message + "; driver " +
                         Version(found.driver) + "); check nvidia-smi and CUDA_VISIBLE_DEVICES");
    default:
      return Unavailable("CUDA does not work here: " + found.message);
  }
  CudaDevices devices;
  devices.available = true;
  devices.entry = &entry;
  devices.devices = std::move(found.devices);
  const size_t count = devices.devices.size();
  devices.status = std::to_string(count) + (count == 1 ? " device" : " devices") + ", driver " +
                   Version(found.driver) + ", runtime " + Version(found.runtime);
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
    const auto* const entry = static_cast<const CudaEntry*>(dlsym(library, kCudaEntry));
    if (entry == nullptr) {
      return Unavailable(path + " is no CUDA library of spaid: it has no symbol " + kCudaEntry +
                         "; install it from the same build");
    }
    if (std::memcmp(entry->build_id, SPAID_CUDA_BUILD_ID, sizeof(SPAID_CUDA_BUILD_ID)) != 0) {
      return Unavailable(
          path + " is of build " +
          std::string(entry->build_id, strnlen(entry->build_id, sizeof(entry->build_id))) +
          ", this program is of build " + SPAID_CUDA_BUILD_ID +
          ": install both from the same build");
    }
    entry->adopt({});
    return Ask(path, *entry);
  }
  return Unavailable(std::string(kLibrary) + " not found (looked in " + looked +
                     "); this installation serves the CPU only");
}

}  // namespace spaid::kernels
