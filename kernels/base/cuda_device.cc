#include "kernels/base/cuda_device.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/base/reasons.h"

namespace spaid::kernels {

std::string CudaName(const DeviceInfo& gpu) {
  return gpu.name + " (gpu:" + std::to_string(gpu.index) + ")";
}

const char* MeasuredDevice() { return cuda::tuning::kMeasuredOn; }

bool IsMeasured(const DeviceInfo& gpu) {
  return gpu.name.find(MeasuredDevice()) != std::string::npos;
}

CudaDevice::CudaDevice(const DeviceInfo& info, int64_t memory_limit)
    : info_(info),
      memory_limit_(memory_limit > 0 ? std::min(memory_limit, info.memory_bytes)
                                     : info.memory_bytes) {}

std::unique_lock<std::mutex> CudaDevice::Lock() {
  std::unique_lock lock(mutex_);
  FreeWaiting();
  return lock;
}

std::unique_lock<std::mutex> CudaDevice::TryLock() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) FreeWaiting();
  return lock;
}

void CudaDevice::Free(std::function<void()> free) {
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(std::move(free));
  }
  TryLock();
}

void CudaDevice::FreeWaiting() {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting.swap(waiting_);
  }
  for (const auto& free : waiting) free();
}

double CudaDevice::CopyBytesPerSecond() {
  // Larger than caches.
  constexpr int64_t kCopyBytes = int64_t{128} << 20;
  const auto lock = Lock();
  if (copy_bytes_per_second_ > 0 || lost_) return copy_bytes_per_second_;
  if (memory_limit_ - UsedBytes() < 2 * kCopyBytes) return 0;
  const double ms = TimeCopy(kCopyBytes);
  if (ms > 0) copy_bytes_per_second_ = 2e3 * static_cast<double>(kCopyBytes) / ms;
  return copy_bytes_per_second_;
}

Status CudaDevice::Failed(CudaFault fault, const std::string& message) {
  const std::string where = CudaName(info_) + ": ";
  switch (fault) {
    case CudaFault::kOutOfMemory:
      return Status(StatusCode::kResourceExhausted, reason::kDeviceOutOfMemory,
                    where + message +
                        "; choose a smaller pattern, or raise --device-memory if it is lower than "
                        "what the device has");
    case CudaFault::kDeviceLost:
      lost_ = true;
      return Status(StatusCode::kUnavailable, "DEVICE_LOST",
                    where + message +
                        "; the device takes no more work in this process: send the request again "
                        "to another one, and restart this one");
    case CudaFault::kPlanMismatch:
      return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                    message + "; make a plan for this matrix")
          .At("plan");
    default:
      return Status(StatusCode::kInternal, "CUDA_ERROR", where + message);
  }
}

int64_t CudaDevice::used_bytes() {
  if (const auto lock = TryLock(); lock) used_bytes_ = UsedBytes();
  return used_bytes_;
}

}  // namespace spaid::kernels
