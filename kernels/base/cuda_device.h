// A CUDA device that is in use: its context in libspaid_cuda.so, under a memory limit.
//
//   Result<std::shared_ptr<CudaDevice>> gpu = CudaDevice::Open(ListCudaDevices().devices[0], 0);
//   if (gpu.ok()) ... PlanStaticSpaiCuda(*gpu, ...) ...
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda_backend.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

class CudaDevice {
 public:
  // `memory_limit`: bytes that everything on the device may take together; 0: all of it. Errors:
  // UNAVAILABLE/DEVICE_UNAVAILABLE.
  static Result<std::shared_ptr<CudaDevice>> Open(const DeviceInfo& info, int64_t memory_limit);
  // By this backend, which must outlive it, in place of libspaid_cuda.so's.
  static Result<std::shared_ptr<CudaDevice>> Open(const DeviceInfo& info, int64_t memory_limit,
                                                  CudaBackend& backend);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const { return info_; }
  int64_t memory_limit() const { return memory_limit_; }
  CudaContext& context() const { return *context_; }

  // One computation at a time; held for every call of the context, or of what was made with it.
  std::unique_lock<std::mutex> Lock();
  // Calls `free`, which frees what was made with the context: now, or, where something computes,
  // before the next computation. Never waits for one, so that anybody may end such an object.
  void Free(std::function<void()> free);

  // See CudaContext.
  bool lost() const { return context_->lost(); }
  Status Probe();
  // Bytes that everything on the device takes. While something is computed on it: what it was
  // before.
  int64_t used_bytes();
  // What a copy within the device's memory reaches, bytes read and written counted; measured with
  // the first call that finds room for it; 0: there was none, or the device failed.
  double CopyBytesPerSecond();

 private:
  CudaDevice(const DeviceInfo& info, int64_t memory_limit, std::unique_ptr<CudaContext> context)
      : info_(info), memory_limit_(memory_limit), context_(std::move(context)) {}

  const DeviceInfo info_;
  const int64_t memory_limit_;
  void FreeWaiting();  // mutex_ is held

  std::unique_ptr<CudaContext> context_;
  std::mutex mutex_;
  std::mutex waiting_mutex_;                    // taken after mutex_ where both are
  std::vector<std::function<void()>> waiting_;  // guarded by waiting_mutex_
  std::atomic<int64_t> used_bytes_{0};
  double copy_bytes_per_second_ = 0;  // guarded by mutex_
};

// An object that was made with a device's context, and ends by CudaDevice::Free.
template <class T>
class CudaObject {
 public:
  explicit CudaObject(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  ~CudaObject() {
    if (locked) object.reset();
    if (object == nullptr) return;
    device_->Free([freed = object.release()] { delete freed; });
  }
  CudaObject(const CudaObject&) = delete;
  CudaObject& operator=(const CudaObject&) = delete;

  // What was made, with the device's lock; or why there is none.
  Status Take(Result<std::unique_ptr<T>> made) {
    if (!made.ok()) return made.status();
    object = *std::move(made);
    return {};
  }

  std::unique_ptr<T> object;  // set and reset with the device's lock alone
  bool locked = false;        // the scope in which it ends holds the lock

 private:
  std::shared_ptr<CudaDevice> device_;
};

// Of the device that the kernels' tuning tables were measured on. All devices use them.
const char* MeasuredDevice();
// Whether that is such a device.
bool IsMeasured(const DeviceInfo& gpu);

}  // namespace spaid::kernels
