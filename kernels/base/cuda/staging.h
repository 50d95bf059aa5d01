// Copies of large arrays of the host, which are pageable: threads of the host copy to and from
// pinned buffers, piece by piece, each of which is on its way while others are copied. The driver,
// asked for such a copy, does that with one thread, and reaches a fifth of what the bus carries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace spaid::cuda {

// An array of the device, and where it goes on the host.
struct HostCopy {
  void* host;
  const void* device;
  size_t bytes;
};

// Belongs to one context and its stream. Not thread-safe.
class Staging {
 public:
  // `threads`: of the host, at most, as a Context has them.
  Staging(int ordinal, cudaStream_t stream, int threads = 0)
      : ordinal_(ordinal), stream_(stream), threads_(threads) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // In the stream's order. The host's array must stay until the stream has been waited for.
  void In(void* device, const void* host, size_t bytes);
  // Is told that the first `bytes` of the copies, one behind the other, are on the host: more of
  // them than before. One call at a time, on the threads that copy, which wait for it. Must not
  // throw.
  using Arrived = std::function<void(size_t bytes)>;
  // One array is on its way while the one before it is copied. `arrived`: null, or told piece by
  // piece; of copies that the driver makes, not.
  void Out(const std::vector<HostCopy>& copies, const Arrived& arrived = nullptr);

 private:
  class Transfer;
  struct Piece {
    char* to;
    const char* from;
    size_t bytes;
  };

  static constexpr int kBuffers = 8;
  // The most of a piece: the driver takes some ten microseconds for each, one after the other.
  static constexpr size_t kBytes = size_t{4} << 20;
  // Less than this is on its way before threads have woken.
  static constexpr size_t kLarge = size_t{1} << 20;

  // False where the host has no memory to pin.
  bool Prepare();
  // The pieces of an array, one of several of `all` bytes together.
  static void Cut(const Piece& array, size_t all, std::vector<Piece>& pieces);

  const int ordinal_;
  const cudaStream_t stream_;
  const int threads_;
  char* pinned_ = nullptr;           // kBuffers of kBytes
  cudaEvent_t idle_[kBuffers] = {};  // what was last copied from or to each has arrived
  bool refused_ = false;
};

}  // namespace spaid::cuda
