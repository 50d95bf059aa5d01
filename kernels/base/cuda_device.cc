#include "kernels/base/cuda_device.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

void OnThreads(int64_t count, const std::function<void(int64_t i)>& work) {
  // They copy as much as a PCIe 5 bus carries; more would wait for it.
  constexpr int kMostThreads = 8;
  ParallelFor(count, 1, std::min(ResolveThreads(0), kMostThreads),
              [&](int64_t begin, int64_t end, int) {
                for (int64_t i = begin; i < end; ++i) work(i);
              });
}

}  // namespace

Result<std::shared_ptr<CudaDevice>> CudaDevice::Open(const DeviceInfo& info, int64_t memory_limit) {
  const CudaDevices& cuda = ListCudaDevices();
  if (cuda.backend == nullptr) {
    return Status(StatusCode::kUnavailable, "DEVICE_UNAVAILABLE", cuda.status);
  }
  return Open(info, memory_limit, *cuda.backend);
}

Result<std::shared_ptr<CudaDevice>> CudaDevice::Open(const DeviceInfo& info, int64_t memory_limit,
                                                     CudaBackend& backend) {
  const int64_t limit =
      memory_limit > 0 ? std::min(memory_limit, info.memory_bytes) : info.memory_bytes;
  auto context = backend.OpenContext(info, limit, &OnThreads, /*variants=*/nullptr);
  if (!context.ok()) {
    return Status(StatusCode::kUnavailable, "DEVICE_UNAVAILABLE",
                  CudaName(info) + " cannot be used: " + context.status().message());
  }
  return std::shared_ptr<CudaDevice>(new CudaDevice(info, limit, *std::move(context)));
}

const char* MeasuredDevice() { return cuda::tuning::kMeasuredOn; }

bool IsMeasured(const DeviceInfo& gpu) {
  return gpu.name.find(MeasuredDevice()) != std::string::npos;
}

CudaDevice::~CudaDevice() {
  FreeWaiting();
  // A lost device may not even answer that: what is left of its context goes with the process.
  if (lost()) static_cast<void>(context_.release());
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
  if (copy_bytes_per_second_ > 0 || lost()) return copy_bytes_per_second_;
  if (memory_limit_ - context_->used_bytes() < 2 * kCopyBytes) return 0;
  const Result<double> ms = context_->TimeCopy(kCopyBytes);
  if (ms.ok() && *ms > 0) copy_bytes_per_second_ = 2e3 * static_cast<double>(kCopyBytes) / *ms;
  return copy_bytes_per_second_;
}

Status CudaDevice::Probe() {
  const auto lock = Lock();
  return context_->Probe();
}

int64_t CudaDevice::used_bytes() {
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
    FreeWaiting();
    used_bytes_ = context_->used_bytes();
  }
  return used_bytes_;
}

}  // namespace spaid::kernels
