// A stand-in for libspaid_cuda.so; FAKE_* say how it answers.
#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "kernels/base/cuda/cuda_abi.h"

#ifndef FAKE_ABI_OFFSET
#define FAKE_ABI_OFFSET 0
#endif

namespace {

int32_t List(SpaidCudaDevice* devices, int32_t capacity, int32_t* count, int32_t* driver,
             int32_t* runtime, char* message, size_t size) {
  const int32_t devices_here = FAKE_COUNT;
  *count = devices_here;
  *driver = FAKE_DRIVER;
  *runtime = 13000;
  for (int32_t i = 0; i < std::min(capacity, devices_here); ++i) {
    devices[i] = SpaidCudaDevice{};
    devices[i].ordinal = i;
    devices[i].compute_capability_major = 9;
    devices[i].compute_capability_minor = 1;
    devices[i].memory_bytes = int64_t{80} << 30;
    std::snprintf(devices[i].name, sizeof(devices[i].name), "Fake %d", static_cast<int>(i));
    std::snprintf(devices[i].uuid, sizeof(devices[i].uuid), "GPU-%08d", static_cast<int>(i));
  }
  if (FAKE_RESULT != 0) std::snprintf(message, size, "cudaSomething: fake words");
  return FAKE_RESULT;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const SpaidCudaInterface* spaid_cuda_interface() {
  static const SpaidCudaInterface table = [] {
    SpaidCudaInterface fake{};  // lists devices, and can do nothing with them
    fake.abi_version = kSpaidCudaAbiVersion + FAKE_ABI_OFFSET;
    fake.struct_size = sizeof(SpaidCudaInterface);
    fake.list_devices = &List;
    return fake;
  }();
  return &table;
}
