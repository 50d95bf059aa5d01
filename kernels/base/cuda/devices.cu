#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "kernels/base/cuda/devices.h"

namespace spaid::cuda {
namespace {

using kernels::CudaListing;
using kernels::DeviceInfo;
using Outcome = CudaListing::Outcome;

Outcome Classify(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
      return Outcome::kNoDriver;
    case cudaErrorNoDevice:
      return Outcome::kNoDevice;
    default:
      return Outcome::kError;
  }
}

std::string FormatUuid(const cudaUUID_t& uuid) {
  const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  char out[48];
  std::snprintf(out, sizeof(out),
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
  return out;
}

}  // namespace

CudaListing ListDevices() {
  CudaListing found;
  const auto fail = [&](const char* call, cudaError_t error) {
    cudaGetLastError();  // a failed query must not be found by the next call's check
    found.outcome = Classify(error);
    found.message =
        std::string(call) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
    found.devices.clear();
    return found;
  };
  int version = 0;
  if (cudaError_t e = cudaRuntimeGetVersion(&version); e != cudaSuccess) {
    return fail("cudaRuntimeGetVersion", e);
  }
  found.runtime = version;
  if (cudaError_t e = cudaDriverGetVersion(&version); e != cudaSuccess) {
    return fail("cudaDriverGetVersion", e);
  }
  found.driver = version;
  int count = 0;
  if (cudaError_t e = cudaGetDeviceCount(&count); e != cudaSuccess) {
    return fail("cudaGetDeviceCount", e);
  }
  if (count == 0) return fail("cudaGetDeviceCount", cudaErrorNoDevice);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaError_t e = cudaGetDeviceProperties(&properties, i); e != cudaSuccess) {
      return fail("cudaGetDeviceProperties", e);
    }
    DeviceInfo device;
    device.backend = kernels::Backend::kCuda;
    device.index = i;
    device.name = properties.name;
    device.uuid = FormatUuid(properties.uuid);
    device.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    device.compute_capability_major = properties.major;
    device.compute_capability_minor = properties.minor;
    found.devices.push_back(std::move(device));
  }
  return found;
}

}  // namespace spaid::cuda
