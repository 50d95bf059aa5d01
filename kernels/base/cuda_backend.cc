#include "kernels/base/cuda_backend.h"

#include <string>

#include "kernels/base/reasons.h"

namespace spaid::kernels {

std::string CudaName(const DeviceInfo& gpu) {
  return gpu.name + " (gpu:" + std::to_string(gpu.index) + ")";
}

Status CudaFailure(CudaFault fault, const DeviceInfo& gpu, const std::string& message) {
  const std::string where = CudaName(gpu) + ": ";
  switch (fault) {
    case CudaFault::kOutOfMemory:
      return Status(StatusCode::kResourceExhausted, reason::kDeviceOutOfMemory,
                    where + message +
                        "; choose a smaller pattern, or raise --device-memory if it is lower than "
                        "what the device has");
    case CudaFault::kDeviceLost:
      return Status(StatusCode::kUnavailable, "DEVICE_LOST",
                    where + message +
                        "; the device takes no more work in this process: send the request again "
                        "to another one, and restart this one");
    case CudaFault::kPlanMismatch:
      return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                    message + "; make a plan for this matrix")
          .At("plan");
    case CudaFault::kError:
      break;
  }
  return Status(StatusCode::kInternal, "CUDA_ERROR", where + message);
}

}  // namespace spaid::kernels
