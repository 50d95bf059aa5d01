#include "kernels/base/cuda_device.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/base/parallel.h"
#include "kernels/base/reasons.h"

namespace spaid::kernels {
namespace {

// Without its id, which is the operator's to know: errors go to whoever asked.
std::string Named(const DeviceInfo& info) {
  return info.name + " (gpu:" + std::to_string(info.index) + ")";
}

void OnThreads(int64_t count, void (*work)(void* caller, int64_t i), void* caller) {
  // They copy as much as a PCIe 5 bus carries; more would wait for it.
  constexpr int kMostThreads = 8;
  ParallelFor(count, 1, std::min(ResolveThreads(0), kMostThreads),
              [&](int64_t begin, int64_t end, int) {
                for (int64_t i = begin; i < end; ++i) work(caller, i);
              });
}

}  // namespace

Result<std::shared_ptr<CudaDevice>> CudaDevice::Open(const DeviceInfo& info, int64_t memory_limit) {
  const CudaDevices& cuda = ListCudaDevices();
  if (cuda.interface == nullptr) {
    return Status(StatusCode::kUnavailable, "DEVICE_UNAVAILABLE", cuda.status);
  }
  return Open(info, memory_limit, *cuda.interface);
}

Result<std::shared_ptr<CudaDevice>> CudaDevice::Open(const DeviceInfo& info, int64_t memory_limit,
                                                     const SpaidCudaInterface& api) {
  const int64_t limit =
      memory_limit > 0 ? std::min(memory_limit, info.memory_bytes) : info.memory_bytes;
  std::shared_ptr<CudaDevice> device(new CudaDevice(info, limit, api));
  char message[kCudaMessageBytes] = "";
  const int32_t result =
      api.open_context(info.index, limit, &OnThreads,
                       /*variants=*/nullptr, &device->context_, message, sizeof(message));
  if (result != kSpaidCudaOk) {
    return Status(StatusCode::kUnavailable, "DEVICE_UNAVAILABLE",
                  Named(info) + " cannot be used: " + message);
  }
  return device;
}

const char* MeasuredDevice() { return cuda::tuning::kMeasuredOn; }

bool IsMeasured(const DeviceInfo& gpu) {
  return gpu.name.find(MeasuredDevice()) != std::string::npos;
}

CudaDevice::~CudaDevice() {
  FreeWaiting();
  // A lost device may not even answer that: what is left of its context goes with the process.
  if (context_ != nullptr && !lost_) api_.close_context(context_);
}

std::unique_lock<std::mutex> CudaDevice::Lock() {
  std::unique_lock lock(mutex_);
  FreeWaiting();
  return lock;
}

void CudaDevice::Free(std::function<void()> free) {
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(std::move(free));
  }
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) FreeWaiting();
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
  if (memory_limit_ - api_.used_bytes(context_) < 2 * kCopyBytes) return 0;
  char message[kCudaMessageBytes] = "";
  double ms = 0;
  const int32_t result = api_.time_copy(context_, kCopyBytes, &ms, message, sizeof(message));
  if (result == kSpaidCudaDeviceLost) lost_ = true;
  if (result == kSpaidCudaOk && ms > 0) {
    copy_bytes_per_second_ = 2e3 * static_cast<double>(kCopyBytes) / ms;
  }
  return copy_bytes_per_second_;
}

Status CudaDevice::Failed(int32_t result, const char* message) {
  const std::string where = Named(info_) + ": ";
  switch (result) {
    case kSpaidCudaOutOfMemory:
      return Status(StatusCode::kResourceExhausted, reason::kDeviceOutOfMemory,
                    where + message +
                        "; choose a smaller pattern, or raise --device-memory if it is lower than "
                        "what the device has");
    case kSpaidCudaDeviceLost:
      lost_ = true;
      return Status(StatusCode::kUnavailable, "DEVICE_LOST",
                    where + message +
                        "; the device takes no more work in this process: send the request again "
                        "to another one, and restart this one");
    case kSpaidCudaPlanMismatch:
      return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                    std::string(message) + "; make a plan for this matrix")
          .At("plan");
    default:
      return Status(StatusCode::kInternal, "CUDA_ERROR", where + message);
  }
}

Status CudaDevice::Probe() {
  const auto lock = Lock();
  char message[kCudaMessageBytes] = "";
  const int32_t result = api_.probe(context_, message, sizeof(message));
  if (result == kSpaidCudaOk || result == kSpaidCudaOutOfMemory) return {};
  return Failed(kSpaidCudaDeviceLost, message);
}

int64_t CudaDevice::used_bytes() {
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    FreeWaiting();
    used_bytes_ = api_.used_bytes(context_);
  }
  return used_bytes_;
}

}  // namespace spaid::kernels
