// A stand-in for libspaid_cuda.so; FAKE_* say how it answers.
#include <cstdint>
#include <string>

#include "kernels/base/build_id.h"
#include "kernels/base/cuda_loader.h"

#ifndef FAKE_BUILD_ID
#define FAKE_BUILD_ID SPAID_BUILD_ID
#endif

namespace spaid::kernels {
namespace {

CudaListing List() {
  CudaListing found;
  found.outcome = CudaListing::Outcome::FAKE_OUTCOME;
  if (found.outcome != CudaListing::Outcome::kDevices) found.message = "cudaSomething: fake words";
  found.driver = FAKE_DRIVER;
  found.runtime = 13000;
  for (int i = 0; i < FAKE_COUNT; ++i) {
    const std::string digits = std::to_string(i);
    DeviceInfo device;
    device.backend = Backend::kCuda;
    device.index = i;
    device.compute_capability_major = 9;
    device.compute_capability_minor = 1;
    device.memory_bytes = int64_t{80} << 30;
    device.name = "Fake " + digits;
    device.uuid = "GPU-" + std::string(8 - digits.size(), '0') + digits;
    found.devices.push_back(device);
  }
  return found;
}

void Adopt(const ProcessState&) {}

}  // namespace
}  // namespace spaid::kernels

// Lists devices, and can do nothing with them.
extern "C" __attribute__((visibility("default")))
const spaid::kernels::CudaEntry spaid_cuda_entry = {FAKE_BUILD_ID, &spaid::kernels::Adopt,
                                                    &spaid::kernels::List, nullptr, nullptr};
