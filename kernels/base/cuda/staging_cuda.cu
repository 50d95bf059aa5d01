#include <algorithm>

#include "kernels/base/cuda/context_cuda.h"
#include "kernels/base/cuda/staging_cuda.h"

namespace spaid::cuda {

Staging::~Staging() {
  for (const Pinned& pinned : pinned_) {
    if (pinned.idle != nullptr) cudaEventDestroy(pinned.idle);
    if (pinned.data != nullptr) cudaFreeHost(pinned.data);
  }
}

bool Staging::Prepare() {
  if (copy_ == nullptr || refused_) return false;
  for (Pinned& pinned : pinned_) {
    if (pinned.idle == nullptr) {
      Check(cudaEventCreateWithFlags(&pinned.idle, cudaEventDisableTiming), "cudaEventCreate");
    }
    if (pinned.data != nullptr) continue;
    if (cudaHostAlloc(&pinned.data, kBytes, cudaHostAllocDefault) != cudaSuccess) {
      cudaGetLastError();
      pinned.data = nullptr;
      refused_ = true;
      return false;
    }
  }
  return true;
}

void Staging::Wait(int buffer) const {
  Check(cudaEventSynchronize(pinned_[buffer].idle), "copies between host and device");
}

void Staging::Mark(int buffer) const {
  Check(cudaEventRecord(pinned_[buffer].idle, stream_), "cudaEventRecord");
}

void Staging::In(void* device, const void* host, size_t bytes) {
  if (bytes < kLarge || !Prepare()) {
    Check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
          "copy to the device");
    return;
  }
  int buffer = 0;
  for (size_t at = 0; at < bytes; at += kBytes, buffer = (buffer + 1) % kBuffers) {
    const size_t count = std::min(kBytes, bytes - at);
    Wait(buffer);
    copy_(pinned_[buffer].data, static_cast<const char*>(host) + at, count);
    Check(cudaMemcpyAsync(static_cast<char*>(device) + at, pinned_[buffer].data, count,
                          cudaMemcpyHostToDevice, stream_),
          "copy to the device");
    Mark(buffer);
  }
}

void Staging::Out(void* host, const void* device, size_t bytes) {
  if (bytes < kLarge || !Prepare()) {
    Check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_),
          "copy from the device");
    return;
  }
  const size_t pieces = (bytes + kBytes - 1) / kBytes;
  const auto size = [&](size_t piece) { return std::min(kBytes, bytes - piece * kBytes); };
  const auto fetch = [&](size_t piece) {
    const auto buffer = static_cast<int>(piece % kBuffers);
    Check(cudaMemcpyAsync(pinned_[buffer].data, static_cast<const char*>(device) + piece * kBytes,
                          size(piece), cudaMemcpyDeviceToHost, stream_),
          "copy from the device");
    Mark(buffer);
  };
  for (size_t piece = 0; piece < std::min<size_t>(pieces, kBuffers); ++piece) fetch(piece);
  for (size_t piece = 0; piece < pieces; ++piece) {
    const auto buffer = static_cast<int>(piece % kBuffers);
    Wait(buffer);
    copy_(static_cast<char*>(host) + piece * kBytes, pinned_[buffer].data, size(piece));
    if (piece + kBuffers < pieces) fetch(piece + kBuffers);
  }
}

}  // namespace spaid::cuda
