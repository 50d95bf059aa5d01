#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>

#include "kernels/base/cuda/cuda_abi.h"
#include "kernels/base/cuda/devices.h"

namespace spaid::cuda {
namespace {

void Say(char* message, size_t size, const char* call, cudaError_t error) {
  if (message == nullptr || size == 0) return;
  std::snprintf(message, size, "%s: %s (%s)", call, cudaGetErrorString(error),
                cudaGetErrorName(error));
}

int32_t Classify(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
      return kSpaidCudaNoDriver;
    case cudaErrorNoDevice:
      return kSpaidCudaNoDevice;
    default:
      return kSpaidCudaError;
  }
}

void FormatUuid(const cudaUUID_t& uuid, char* out, size_t size) {
  const auto* b = reinterpret_cast<const unsigned char*>(uuid.bytes);
  std::snprintf(out, size,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
}

}  // namespace

int32_t ListDevices(SpaidCudaDevice* devices, int32_t capacity, int32_t* count,
                    int32_t* driver_version, int32_t* runtime_version, char* message,
                    size_t message_size) {
  *count = 0;
  *driver_version = 0;
  *runtime_version = 0;
  const auto fail = [&](const char* call, cudaError_t error) {
    cudaGetLastError();  // a failed query must not be found by the next call's check
    Say(message, message_size, call, error);
    return Classify(error);
  };
  int version = 0;
  if (cudaError_t e = cudaRuntimeGetVersion(&version); e != cudaSuccess) {
    return fail("cudaRuntimeGetVersion", e);
  }
  *runtime_version = version;
  if (cudaError_t e = cudaDriverGetVersion(&version); e != cudaSuccess) {
    return fail("cudaDriverGetVersion", e);
  }
  *driver_version = version;
  int devices_found = 0;
  if (cudaError_t e = cudaGetDeviceCount(&devices_found); e != cudaSuccess) {
    return fail("cudaGetDeviceCount", e);
  }
  *count = devices_found;
  if (devices_found == 0) return fail("cudaGetDeviceCount", cudaErrorNoDevice);
  for (int i = 0; i < devices_found && i < capacity; ++i) {
    cudaDeviceProp properties{};
    if (cudaError_t e = cudaGetDeviceProperties(&properties, i); e != cudaSuccess) {
      return fail("cudaGetDeviceProperties", e);
    }
    SpaidCudaDevice& device = devices[i];
    device = SpaidCudaDevice{};
    device.ordinal = i;
    device.compute_capability_major = properties.major;
    device.compute_capability_minor = properties.minor;
    device.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    std::snprintf(device.name, sizeof(device.name), "%s", properties.name);
    FormatUuid(properties.uuid, device.uuid, sizeof(device.uuid));
  }
  return kSpaidCudaOk;
}

}  // namespace spaid::cuda
