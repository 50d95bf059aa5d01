#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/cuda/ahead_lane.h"
#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

AheadLane::AheadLane() {
  try {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    for (cudaEvent_t& event : idle_) {
      Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    }
    Check(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming), "cudaEventCreate");
    void* pinned = nullptr;
    Check(cudaHostAlloc(&pinned, kBuffers * kPiece, cudaHostAllocDefault), "cudaHostAlloc");
    pinned_ = static_cast<char*>(pinned);
  } catch (...) {
    Destroy();
    throw;
  }
}

AheadLane::~AheadLane() {
  cudaStreamSynchronize(stream_);
  Destroy();
}

void AheadLane::Destroy() noexcept {
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
  if (order_ != nullptr) cudaEventDestroy(order_);
  for (cudaEvent_t event : idle_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

size_t AheadLane::Send(char* device, const char* host, size_t bytes, bool whole) {
  const std::lock_guard lock(mutex_);
  size_t sent = 0;
  while (bytes - sent >= kPiece || (whole && bytes > sent)) {
    const cudaError_t idle = cudaEventQuery(idle_[next_]);
    if (idle == cudaErrorNotReady) {
      cudaGetLastError();  // it is none
      break;
    }
    Check(idle, "copies ahead to the device");
    const size_t piece = std::min(kPiece, bytes - sent);
    char* const buffer = pinned_ + static_cast<size_t>(next_) * kPiece;
    std::memcpy(buffer, host + sent, piece);
    Check(cudaMemcpyAsync(device + sent, buffer, piece, cudaMemcpyHostToDevice, stream_),
          "copy ahead to the device");
    Check(cudaEventRecord(idle_[next_], stream_), "cudaEventRecord");
    next_ = (next_ + 1) % kBuffers;
    sent += piece;
  }
  return sent;
}

void AheadLane::LeadTo(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Check(cudaEventRecord(order_, stream_), "cudaEventRecord");
  Check(cudaStreamWaitEvent(stream, order_), "cudaStreamWaitEvent");
}

void AheadLane::Follow(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Check(cudaEventRecord(order_, stream), "cudaEventRecord");
  Check(cudaStreamWaitEvent(stream_, order_), "cudaStreamWaitEvent");
}

kernels::Result<int64_t> CopyAhead::Send(int64_t final) {
  std::shared_ptr<char> failed;  // is freed once the mutex is released
  const std::lock_guard lock(mutex_);
  if (there_ == nullptr || final <= sent_) return sent_;
  const auto from = static_cast<size_t>(sent_);
  try {
    Check(cudaSetDevice(device_->info().index), "cudaSetDevice");
    sent_ += static_cast<int64_t>(lane_.Send(there_.get() + from, host_ + from,
                                             static_cast<size_t>(final) - from, final == bytes_));
  } catch (const Failure& failure) {
    there_.swap(failed);
    return device_->Failed(failure.fault(), failure.what());
  }
  return sent_;
}

void CopyAhead::Drop() {
  std::shared_ptr<char> dropped;
  const std::lock_guard lock(mutex_);
  there_.swap(dropped);
}

int64_t CopyAhead::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

int64_t CopyAhead::device_bytes() const {
  const std::lock_guard lock(mutex_);
  return there_ != nullptr ? bytes_ : 0;
}

int64_t CopyAhead::Take(int ordinal, cudaStream_t stream, void* to, const void* host,
                        int64_t bytes) {
  // Held until the copy has ended: what is dropped meanwhile must not be another's yet.
  const std::lock_guard lock(mutex_);
  if (there_ == nullptr || sent_ == 0 || host != host_ || bytes != bytes_ ||
      ordinal != device_->info().index) {
    return 0;
  }
  lane_.LeadTo(stream);
  Check(cudaMemcpyAsync(to, there_.get(), static_cast<size_t>(sent_), cudaMemcpyDeviceToDevice,
                        stream),
        "copy of what was sent ahead");
  Check(cudaStreamSynchronize(stream), "copies ahead to the device");
  taken_ = std::max(taken_, sent_);
  return sent_;
}

}  // namespace spaid::cuda
