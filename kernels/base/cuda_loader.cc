#include "kernels/base/cuda_loader.h"

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/library.h"

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

std::vector<std::string> CudaLibraryCandidates() { return LibraryCandidates(kLibrary); }

CudaDevices LoadCudaDevices(const std::vector<std::string>& candidates) {
  const OpenedLibrary opened = OpenLibrary(candidates, kCudaEntry, "CUDA library");
  if (!opened.why.empty()) return Unavailable(opened.why);
  if (opened.entry == nullptr) {
    return Unavailable(std::string(kLibrary) + " not found (looked in " + opened.looked +
                       "); this installation serves the CPU only");
  }
  const auto* const entry = static_cast<const CudaEntry*>(opened.entry);
  entry->adopt({});
  return Ask(opened.path, *entry);
}

}  // namespace spaid::kernels
