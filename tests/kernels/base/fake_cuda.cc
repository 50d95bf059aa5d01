// A stand-in for libspaid_cuda.so; FAKE_* say how it answers.
#include <cstring>
#include <string>

#include "kernels/base/build_id.h"
#include "kernels/base/cuda_backend.h"

namespace spaid::kernels {
namespace {

// Lists devices, and can do nothing with them.
class Fake final : public CudaBackend {
 public:
  CudaListing ListDevices() override {
    CudaListing found;
    found.outcome = CudaListing::Outcome::FAKE_OUTCOME;
    found.driver_version = FAKE_DRIVER;
    found.runtime_version = 13000;
    if (found.outcome != CudaListing::Outcome::kDevices) {
      found.message = "cudaSomething: fake words";
    }
    for (int i = 0; i < FAKE_COUNT; ++i) {
      DeviceInfo device;
      device.backend = Backend::kCuda;
      device.index = i;
      device.compute_capability_major = 9;
      device.compute_capability_minor = 1;
      device.memory_bytes = int64_t{80} << 30;
      device.name = "Fake " + std::to_string(i);
      device.uuid = "GPU-" + std::to_string(100000000 + i).substr(1);
      found.devices.push_back(device);
    }
    return found;
  }
  Result<std::unique_ptr<CudaContext>> OpenContext(const DeviceInfo&, int64_t, CudaOnThreads,
                                                   const CudaVariants*) override {
    return Status(StatusCode::kUnavailable, "DEVICE_UNAVAILABLE", "a fake");
  }
};

#ifdef FAKE_BUILD_ID
constexpr char kId[] = FAKE_BUILD_ID;
#else
constexpr const char* kId = kCudaBuildId;
#endif

}  // namespace
}  // namespace spaid::kernels

extern "C" __attribute__((visibility("default"))) const char* spaid_cuda_backend(
    const char* build_id, spaid::kernels::CudaBackend** backend) {
  static spaid::kernels::Fake fake;
  if (std::strcmp(build_id, spaid::kernels::kId) == 0) *backend = &fake;
  return spaid::kernels::kId;
}
