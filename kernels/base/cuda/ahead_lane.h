// Copies of arrays that are still being filled, on a stream of their own beside that of
// computations.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/base/copy_ahead.h"
#include "kernels/base/cuda_device.h"

namespace spaid::cuda {

// Pinned buffers and a stream of a device by which such copies go. Thread-safe; the device is
// current for the thread that calls.
class AheadLane {
 public:
  // Throws Failure.
  AheadLane();
  ~AheadLane();
  AheadLane(const AheadLane&) = delete;
  AheadLane& operator=(const AheadLane&) = delete;

  // Copies the beginning of an array, as much of it as there are idle buffers for, in pieces of
  // kPiece; `whole`: the last one may be shorter. Returns how much; the host's array is not read
  // any more then. Throws Failure.
  size_t Send(char* device, const char* host, size_t bytes, bool whole);
  // Work that `stream` is given from now on follows all that was sent before. Throws Failure.
  void LeadTo(cudaStream_t stream);
  // All that is sent from now on follows the work that `stream` has been given. Throws Failure.
  void Follow(cudaStream_t stream);

  // A piece of 1 MiB takes the host longer to come by than the bus to carry, so that buffers are
  // idle again before the next ones are wanted.
  static constexpr size_t kPiece = size_t{1} << 20;
  static constexpr int kBuffers = 8;

 private:
  void Destroy() noexcept;

  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  char* pinned_ = nullptr;           // kBuffers of kPiece
  cudaEvent_t idle_[kBuffers] = {};  // what was last copied from each has arrived
  cudaEvent_t order_ = nullptr;      // of LeadTo and Follow
  int next_ = 0;                     // the buffer of the next piece
};

// The only kind that functions of the library are given.
class CopyAhead final : public kernels::CopyAhead {
 public:
  // `there`: memory of the device for the array, which may be freed on any thread.
  CopyAhead(std::shared_ptr<kernels::CudaDevice> device, AheadLane& lane,
            std::shared_ptr<char> there, const void* host, int64_t bytes)
      : device_(std::move(device)),
        lane_(lane),
        host_(static_cast<const char*>(host)),
        bytes_(bytes),
        there_(std::move(there)) {}

  kernels::Result<int64_t> Send(int64_t final) override;
  void Drop() override;
  int64_t taken() const override;
  int64_t device_bytes() const override;

  // Copies the beginning of the array at `host`, as far as it is on device `ordinal`, to `to`
  // there, on `stream`, and waits for that. Returns the bytes; 0: this is the copy of another
  // array, on another device, or dropped. Throws Failure.
  int64_t Take(int ordinal, cudaStream_t stream, void* to, const void* host, int64_t bytes);

 private:
  const std::shared_ptr<kernels::CudaDevice> device_;
  AheadLane& lane_;
  const char* const host_;
  const int64_t bytes_;
  mutable std::mutex mutex_;     // guards all below
  std::shared_ptr<char> there_;  // null: dropped
  int64_t sent_ = 0, taken_ = 0;
};

}  // namespace spaid::cuda
