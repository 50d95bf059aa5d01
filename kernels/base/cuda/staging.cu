#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernels/base/cuda/context.h"
#include "kernels/base/cuda/staging.h"
#include "kernels/base/parallel.h"

namespace spaid::cuda {
namespace {

// What a thread copies at a time: the last ones are waited for.
constexpr size_t kPart = size_t{1} << 19;
// They copy as much as a PCIe 5 bus carries; more would wait for it.
constexpr int kMostThreads = 8;

// memcpy that leaves `to` out of the caches, and so need not read it: what comes from a device is
// more than they hold, and two devices bring more than memory carries three times.
void CopyPastCaches(char* to, const char* from, size_t bytes) {
#if defined(__SSE2__)
  const auto misaligned = reinterpret_cast<uintptr_t>(to) % sizeof(__m128i);
  const size_t head = std::min(bytes, misaligned == 0 ? 0 : sizeof(__m128i) - misaligned);
  std::memcpy(to, from, head);
  size_t at = head;
  constexpr size_t kStep = 4 * sizeof(__m128i);
  for (; at + kStep <= bytes; at += kStep) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    auto* const target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                  c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace

// Pieces on their way, piece i through the buffer i % kBuffers, each copied in parts of kPart.
// Whoever has a part waits, at the most, for those who have parts before it.
class Staging::Transfer {
 public:
  Transfer(Staging& staging, std::vector<Piece> pieces, bool in, Arrived arrived)
      : staging_(staging),
        in_(in),
        arrived_(std::move(arrived)),
        pieces_(std::move(pieces)),
        states_(pieces_.size()) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const size_t parts = (pieces_[i].bytes + kPart - 1) / kPart;
      states_[i].left = static_cast<int>(parts);
      for (size_t part = 0; part < parts; ++part) parts_.push_back({i, part * kPart});
    }
  }

  void Run() {
    if (!in_) {
      for (size_t i = 0; i < std::min<size_t>(kBuffers, pieces_.size()); ++i) Start(i);
    }
    // For what the stream has to do before, one waits: others would keep their cores.
    Check(cudaEventSynchronize(idle(0)), "copies between host and device");
    kernels::ParallelFor(static_cast<int64_t>(parts_.size()), 1,
                         std::min(kernels::ResolveThreads(staging_.threads_), kMostThreads),
                         [this](int64_t begin, int64_t end, int) {
                           for (int64_t i = begin; i < end; ++i) CopyPart(static_cast<size_t>(i));
                         });
    if (failure_) throw Failure(*failure_);
  }

 private:
  struct Part {
    size_t piece, offset;
  };
  struct State {
    std::atomic<bool> started = false;  // its copy between buffer and device is in the stream
    std::atomic<bool> ready = false;    // its buffer may be read, or written
    std::atomic<int> left = 0;          // parts that are still to be copied
    bool there = false;                 // on the host; guarded by mutex_
  };

  // A failure ends the transfer, and waits for the caller of Run.
  void CopyPart(size_t part) noexcept {
    try {
      Check(cudaSetDevice(staging_.ordinal_), "cudaSetDevice");
      const auto [i, offset] = parts_[part];
      if (offset == 0 ? !MakeReady(i) : !WaitFor(states_[i].ready)) return;
      const size_t bytes = std::min(kPart, pieces_[i].bytes - offset);
      if (in_) {
        std::memcpy(buffer(i) + offset, pieces_[i].from + offset, bytes);
      } else {
        CopyPastCaches(pieces_[i].to + offset, buffer(i) + offset, bytes);
      }
      if (states_[i].left.fetch_sub(1) > 1) return;
      if (in_) return Start(i);
      if (i + kBuffers < pieces_.size()) Start(i + kBuffers);
      if (arrived_) Tell(i);
    } catch (const Failure& failure) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_.emplace(failure);
      failed_.store(true);
    }
  }

  // Piece i is on the host.
  void Tell(size_t i) {
    const std::lock_guard<std::mutex> lock(mutex_);
    states_[i].there = true;
    if (i > there_) return;
    for (; there_ < pieces_.size() && states_[there_].there; ++there_) {
      bytes_there_ += pieces_[there_].bytes;
    }
    arrived_(bytes_there_);
  }

  // Waits until what is in the buffer has arrived; false where the transfer has failed.
  bool MakeReady(size_t i) {
    if (!in_ && !WaitFor(states_[i].started)) return false;
    if (in_ && i >= kBuffers && !WaitFor(states_[i - kBuffers].started)) return false;
    Check(cudaEventSynchronize(idle(i)), "copies between host and device");
    states_[i].ready.store(true, std::memory_order_release);
    return true;
  }

  void Start(size_t i) {
    const Piece& piece = pieces_[i];
    Check(in_ ? cudaMemcpyAsync(piece.to, buffer(i), piece.bytes, cudaMemcpyHostToDevice,
                                staging_.stream_)
              : cudaMemcpyAsync(buffer(i), piece.from, piece.bytes, cudaMemcpyDeviceToHost,
                                staging_.stream_),
          "copy between host and device");
    Check(cudaEventRecord(idle(i), staging_.stream_), "cudaEventRecord");
    states_[i].started.store(true, std::memory_order_release);
  }

  // False where the transfer has failed.
  bool WaitFor(const std::atomic<bool>& flag) const {
    while (!flag.load(std::memory_order_acquire)) {
      if (failed_.load(std::memory_order_relaxed)) return false;
      std::this_thread::yield();
    }
    return true;
  }

  char* buffer(size_t i) const { return staging_.pinned_ + i % kBuffers * kBytes; }
  cudaEvent_t idle(size_t i) const { return staging_.idle_[i % kBuffers]; }

  Staging& staging_;
  const bool in_;
  const Arrived arrived_;
  const std::vector<Piece> pieces_;
  std::vector<Part> parts_;
  std::vector<State> states_;  // of pieces
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;                // guards all below, and calls of arrived_
  std::optional<Failure> failure_;  // the first
  size_t there_ = 0;                // the first pieces that are on the host, and
  size_t bytes_there_ = 0;          // their bytes
};

Staging::~Staging() {
  for (cudaEvent_t event : idle_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (pinned_ != nullptr) cudaFreeHost(pinned_);
}

bool Staging::Prepare() {
  if (refused_) return false;
  if (pinned_ != nullptr) return true;
  for (cudaEvent_t& event : idle_) {
    if (event != nullptr) continue;
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }
  void* pinned = nullptr;
  if (cudaHostAlloc(&pinned, kBuffers * kBytes, cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();
    refused_ = true;
    return false;
  }
  pinned_ = static_cast<char*>(pinned);
  return true;
}

void Staging::Cut(const Piece& array, size_t all, std::vector<Piece>& pieces) {
  const size_t size = std::clamp(all / kBuffers, kPart, kBytes);
  for (size_t at = 0; at < array.bytes; at += size) {
    pieces.push_back({array.to + at, array.from + at, std::min(size, array.bytes - at)});
  }
}

void Staging::In(void* device, const void* host, size_t bytes) {
  if (bytes < kLarge || !Prepare()) {
    Check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
          "copy to the device");
    return;
  }
  std::vector<Piece> pieces;
  Cut({static_cast<char*>(device), static_cast<const char*>(host), bytes}, bytes, pieces);
  Transfer(*this, std::move(pieces), /*in=*/true, nullptr).Run();
}

void Staging::Out(const std::vector<HostCopy>& copies, const Arrived& arrived) {
  size_t all = 0;
  for (const HostCopy& copy : copies) all += copy.bytes;
  if (all < kLarge || !Prepare()) {
    for (const HostCopy& copy : copies) {
      if (copy.bytes == 0) continue;
      Check(cudaMemcpyAsync(copy.host, copy.device, copy.bytes, cudaMemcpyDeviceToHost, stream_),
            "copy from the device");
    }
    return;
  }
  std::vector<Piece> pieces;
  for (const HostCopy& copy : copies) {
    Cut({static_cast<char*>(copy.host), static_cast<const char*>(copy.device), copy.bytes}, all,
        pieces);
  }
  Transfer(*this, std::move(pieces), /*in=*/false, arrived).Run();
}

}  // namespace spaid::cuda
