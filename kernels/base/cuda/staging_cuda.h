// Copies of large arrays of the host, which are pageable: the threads of the host copy to and from
// pinned buffers while others of these are on their way. The driver, asked for such a copy, does
// that with one thread, and reaches a fifth of what the bus carries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/base/cuda/cuda_abi.h"

namespace spaid::cuda {

// Of one context, and of its stream. Not thread-safe.
class Staging {
 public:
  // `copy`: memcpy by the host's threads; null: the driver's own copies.
  Staging(cudaStream_t stream, SpaidCudaCopy copy) : stream_(stream), copy_(copy) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // In the stream's order. The host's array must stay until the stream has been waited for.
  void In(void* device, const void* host, size_t bytes);
  void Out(void* host, const void* device, size_t bytes);

 private:
  static constexpr int kBuffers = 4;
  static constexpr size_t kBytes = size_t{8} << 20;
  // Less than this is on its way before threads have woken.
  static constexpr size_t kLarge = size_t{1} << 20;

  struct Pinned {
    void* data = nullptr;
    cudaEvent_t idle = nullptr;  // what was last copied from or to it has arrived
  };

  // False where the host has no memory to pin.
  bool Prepare();
  void Wait(int buffer) const;
  void Mark(int buffer) const;

  const cudaStream_t stream_;
  const SpaidCudaCopy copy_;
  Pinned pinned_[kBuffers];
  bool refused_ = false;
};

}  // namespace spaid::cuda
