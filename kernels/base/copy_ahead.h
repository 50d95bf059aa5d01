// A copy on a CUDA device of an array of the host that is still being filled: its elements go there
// as they become final, beside computations, and a computation that wants the array finds its
// beginning there.
//
//   auto ahead = Cuda().begin_copy_ahead(gpu, values.data(), bytes);
//   (*ahead)->Send(bytes_so_far);                       // again and again
//   plan->Build(spec, a, {.ahead = ahead->get()});      // copies the rest alone
//   (*ahead)->Drop();
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/status.h"

namespace spaid::kernels {

class CudaDevice;

// Thread-safe. The array lies where it is as long as Send or a computation may be called with this,
// but may go before this does.
class CopyAhead {
 public:
  virtual ~CopyAhead() = default;  // as Drop
  CopyAhead(const CopyAhead&) = delete;
  CopyAhead& operator=(const CopyAhead&) = delete;

  // Puts on its way what has not been sent of the first `final` bytes of the array, which will not
  // change any more, as far as that goes without waiting for the device. Returns the bytes sent so
  // far, from the first on. Errors: those of CudaDevice::Failed, after which it is as if dropped.
  virtual Result<int64_t> Send(int64_t final) = 0;
  // Frees the device's memory, between computations; nothing is sent or taken any more.
  virtual void Drop() = 0;
  // Returns the bytes that computations have taken from here and not from the host, at the most.
  virtual int64_t taken() const = 0;
  // Returns the device's memory that it holds; 0: none any more.
  virtual int64_t device_bytes() const = 0;

 protected:
  CopyAhead() = default;
};

// Begins a copy of the `bytes` of an array at `host`, of which nothing is sent yet. Null: the
// device computes just now, is lost or has no memory for it, or the host none to pin; the next call
// may do better. Never waits for a computation. Errors: those of CudaDevice::Failed. Part of
// libspaid_cuda.so, called by kernels/engine/cuda_library.h.
Result<std::shared_ptr<CopyAhead>> BeginCopyAhead(const std::shared_ptr<CudaDevice>& device,
                                                  const void* host, int64_t bytes);

}  // namespace spaid::kernels
