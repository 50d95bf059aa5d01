// A CUDA device that is in use, under a memory limit: its context is libspaid_cuda.so's.
//
//   Result<std::shared_ptr<CudaDevice>> gpu = CudaDevice::Open(ListCudaDevices().devices[0], 0);
//   if (gpu.ok()) ... Cuda().plan_static_spai({&*gpu, 1}, ...) ...  //
//   kernels/engine/cuda_library.h
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

// Errors of a device's work.
enum class CudaFault {
  kError,  // the text has CUDA's own words
  kOutOfMemory,
  kDeviceLost,    // after which the device answers nothing more
  kPlanMismatch,  // the matrix has not the pattern of what was made before
};

class CudaDevice {
 public:
  // Opens it by libspaid_cuda.so. `memory_limit`: bytes that everything on the device may take
  // together; 0: all of it. Errors: UNAVAILABLE/DEVICE_UNAVAILABLE.
  static Result<std::shared_ptr<CudaDevice>> Open(const DeviceInfo& info, int64_t memory_limit);
  virtual ~CudaDevice() = default;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const { return info_; }
  int64_t memory_limit() const { return memory_limit_; }

  // One computation at a time; held for all that takes the context or what was made with it.
  std::unique_lock<std::mutex> Lock();
  // The same where nothing computes; else a lock that is not held, at once.
  std::unique_lock<std::mutex> TryLock();
  // Calls `free`, which frees what was made with the context: now, or, where something computes,
  // before the next computation. Never waits for one, so that anybody may end such an object.
  void Free(std::function<void()> free);

  // The status of a fault: RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY, UNAVAILABLE/DEVICE_LOST (and
  // the device is lost from then on), INVALID_ARGUMENT/PLAN_MISMATCH, INTERNAL/CUDA_ERROR.
  Status Failed(CudaFault fault, const std::string& message);
  // An error came after which the device answers nothing: it stays so.
  bool lost() const { return lost_.load(); }
  // Does a small piece of work on the device; one that cannot even do that is lost. Full memory is
  // no error: the device answers.
  virtual Status Probe() = 0;
  // Bytes that everything on the device takes. While something is computed on it: what it was
  // before.
  int64_t used_bytes();
  // Bandwidth of copies within the device's memory, bytes read and written counted; measured with
  // the first call that finds room for it; 0: there was none, or the device failed.
  double CopyBytesPerSecond();

 protected:
  // `memory_limit`: as for Open.
  CudaDevice(const DeviceInfo& info, int64_t memory_limit);
  void FreeWaiting();  // the lock is held, or the device ends

 private:
  // The lock is held for both. Milliseconds of a copy; 0: it failed.
  virtual int64_t UsedBytes() const = 0;
  virtual double TimeCopy(int64_t bytes) = 0;

  const DeviceInfo info_;
  const int64_t memory_limit_;
  std::mutex mutex_;
  std::mutex waiting_mutex_;                    // taken after mutex_ where both are
  std::vector<std::function<void()>> waiting_;  // guarded by waiting_mutex_
  std::atomic<bool> lost_{false};
  std::atomic<int64_t> used_bytes_{0};
  double copy_bytes_per_second_ = 0;  // guarded by mutex_
};

// "NVIDIA H100 80GB HBM3 (gpu:0)": without its id, which is the operator's to know; errors go to
// whoever asked.
std::string CudaName(const DeviceInfo& gpu);
// The device that the kernels' tuning tables were measured on. All devices use them.
const char* MeasuredDevice();
// Whether that is such a device.
bool IsMeasured(const DeviceInfo& gpu);

}  // namespace spaid::kernels
