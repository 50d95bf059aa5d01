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

#include "kernels/base/cuda/cuda_abi.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

class CudaDevice {
 public:
  // `memory_limit`: bytes that everything on the device may take together; 0: all of it. Errors:
  // UNAVAILABLE/DEVICE_UNAVAILABLE.
  static Result<std::shared_ptr<CudaDevice>> Open(const DeviceInfo& info, int64_t memory_limit);
  // By this interface, which must outlive it, in place of libspaid_cuda.so's.
  static Result<std::shared_ptr<CudaDevice>> Open(const DeviceInfo& info, int64_t memory_limit,
                                                  const SpaidCudaInterface& api);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const { return info_; }
  int64_t memory_limit() const { return memory_limit_; }
  const SpaidCudaInterface& api() const { return api_; }
  SpaidCudaContext* context() const { return context_; }

  // One computation at a time; held for every call that takes the context or what was made with it.
  std::unique_lock<std::mutex> Lock();
  // Calls `free`, which frees what was made with the context: now, or, where something computes,
  // before the next computation. Never waits for one, so that anybody may end such an object.
  void Free(std::function<void()> free);

  // The status of a result of the C interface other than kSpaidCudaOk: RESOURCE_EXHAUSTED/
  // DEVICE_OUT_OF_MEMORY, UNAVAILABLE/DEVICE_LOST (and the device is lost from then on),
  // INVALID_ARGUMENT/PLAN_MISMATCH, INTERNAL/CUDA_ERROR.
  Status Failed(int32_t result, const char* message);
  // An error came after which the device answers nothing: it stays so.
  bool lost() const { return lost_.load(); }
  // Does a small piece of work on the device; one that cannot even do that is lost. Full memory is
  // no error: the device answers.
  Status Probe();
  // Bytes that everything on the device takes. While something is computed on it: what it was
  // before.
  int64_t used_bytes();
  // Bandwidth of copies within the device's memory, bytes read and written counted; measured with
  // the first call that finds room for it; 0: there was none, or the device failed.
  double CopyBytesPerSecond();

 private:
  CudaDevice(const DeviceInfo& info, int64_t memory_limit, const SpaidCudaInterface& api)
      : info_(info), memory_limit_(memory_limit), api_(api) {}

  const DeviceInfo info_;
  const int64_t memory_limit_;
  const SpaidCudaInterface& api_;
  void FreeWaiting();  // mutex_ is held

  SpaidCudaContext* context_ = nullptr;
  std::mutex mutex_;
  std::mutex waiting_mutex_;                    // taken after mutex_ where both are
  std::vector<std::function<void()>> waiting_;  // guarded by waiting_mutex_
  std::atomic<bool> lost_{false};
  std::atomic<int64_t> used_bytes_{0};
  double copy_bytes_per_second_ = 0;  // guarded by mutex_
};

// An object of the C interface, made with a device's context.
template <class T>
class CudaObject {
 public:
  CudaObject(std::shared_ptr<CudaDevice> device, void (*SpaidCudaInterface::*free)(T*))
      : device_(std::move(device)), free_(free) {}
  ~CudaObject() {
    if (object == nullptr) return;
    const auto free = [call = device_->api().*free_, object = object] { call(object); };
    if (locked) {
      free();
    } else {
      device_->Free(free);
    }
  }
  CudaObject(const CudaObject&) = delete;
  CudaObject& operator=(const CudaObject&) = delete;

  T* object = nullptr;
  bool locked = false;  // the scope in which it ends holds the lock

 private:
  std::shared_ptr<CudaDevice> device_;
  void (*SpaidCudaInterface::*free_)(T*);
};

// The device that the kernels' tuning tables were measured on. All devices use them.
const char* MeasuredDevice();
// Whether that is such a device.
bool IsMeasured(const DeviceInfo& gpu);

// Texts of the C interface are no longer than this.
inline constexpr size_t kCudaMessageBytes = 512;

}  // namespace spaid::kernels
