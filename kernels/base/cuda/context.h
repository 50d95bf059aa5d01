// The context of all work in libspaid_cuda.so: one device, its stream, and its memory under a
// limit.
//
// Errors travel inside the library as exceptions, Failure and Refusal, which Guard (device.h) alone
// catches: every CUDA call and every launch is checked, and a check that had to be passed on by
// hand through each of them would hide the numerics.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda/staging.h"
#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/status.h"

namespace spaid::cuda {

using kernels::CudaFault;

class Failure : public std::exception {
 public:
  Failure(CudaFault fault, std::string message) : fault_(fault), message_(std::move(message)) {}
  CudaFault fault() const { return fault_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  CudaFault fault_;
  std::string message_;
};

// No fault of the device: what the caller asked for ends with this status.
struct Refusal {
  kernels::Status status;
};

// Throws Failure, with CUDA's words and `what`, unless `error` is cudaSuccess. Errors after which a
// device answers nothing more become CudaFault::kDeviceLost.
void Check(cudaError_t error, const char* what);
// The same for the launch before.
void CheckLaunch(const char* kernel);

// Memory of one device, taken from a pool of the driver that keeps what is freed: once warm, no
// call reaches the device's allocator. Stream-ordered: what is freed may be reused by later work of
// the stream. Not thread-safe, but beside an arena that shares its memory.
class Arena {
 public:
  // `limit`: bytes at once at most; every block counts as a multiple of kGrain.
  Arena(int ordinal, cudaStream_t stream, int64_t limit);
  // Another stream's, of the same memory and under the same limit; `whole` outlives it.
  Arena(Arena& whole, cudaStream_t stream);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Throws CudaFault::kOutOfMemory where the limit or the device has no room for it.
  void* Allocate(int64_t bytes);
  void Free(void* memory, int64_t bytes) noexcept;
  // Lets another device reach this memory, where the two are linked: copies between them go by the
  // link then, and through the host else.
  void ShareWith(int ordinal);

  int64_t limit() const { return limit_; }
  int64_t used() const { return whole_->used_; }
  int64_t peak() const { return whole_->peak_; }
  void ResetPeak() { whole_->peak_ = whole_->used_.load(); }

  static constexpr int64_t kGrain = 256;
  static constexpr int64_t Rounded(int64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

 private:
  const int ordinal_;
  cudaStream_t stream_;
  Arena* const whole_;  // which has the pool and the books; itself, but where it is shared
  cudaMemPool_t pool_ = nullptr;
  std::vector<int> shared_with_;
  int64_t limit_;
  std::atomic<int64_t> used_ = 0, peak_ = 0;
};

struct Context {
  // `memory_limit`: bytes at once, at most; 0: the whole device.
  Context(int ordinal, int64_t memory_limit, const Variants& variants = tuning::kVariants);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Returns the context, made with the first call, of work by another thread beside that of this
  // one: it has the device, the arena's memory and its limit in common with it, and goes with it.
  Context& Beside();
  // Makes the device current for the calling thread. Guard begins so.
  void Enter() const;
  void Synchronize() const;
  // Copies arrays to the host, and waits for them. `arrived`: as Staging::Out's.
  void Download(const std::vector<HostCopy>& copies,
                const Staging::Arrived& arrived = nullptr) const;
  // Copies `count` elements between the memories of two devices, or within one's, in the order of
  // this stream.
  template <class T>
  void CopyAcross(T* to, int to_ordinal, const T* from, int from_ordinal, int64_t count) const {
    CopyBytesAcross(to, to_ordinal, from, from_ordinal, static_cast<size_t>(count) * sizeof(T));
  }

  const int ordinal;
  const Variants variants;
  int multiprocessors = 0;
  cudaStream_t stream = nullptr;
  static constexpr int kBranches = 4;
  cudaStream_t branches[kBranches] = {};         // class Branches
  cudaEvent_t event = nullptr, begun = nullptr;  // class Branches
  Arena* arena = nullptr;                        // owned; after the stream
  Staging* staging = nullptr;                    // owned
  // Host memory for small things on their way there; one computation at a time uses it.
  static constexpr int64_t kPinnedBytes = 16 << 10;
  void* pinned = nullptr;

 private:
  explicit Context(Context& whole);  // Beside's
  void MakeQueues();
  void CopyBytesAcross(void* to, int to_ordinal, const void* from, int from_ordinal,
                       size_t bytes) const;
  void Destroy() noexcept;

  // Small arrays on their way to the host: a copy to memory that is not pinned is one wait more.
  static constexpr size_t kArrivingBytes = 4 << 10;
  char* arriving_ = nullptr;
  std::unique_ptr<Context> beside_;
};

// All that a context's stream has been given so far.
class Milestone {
 public:
  explicit Milestone(const Context& of);
  Milestone(Milestone&& other) noexcept { std::swap(event_, other.event_); }
  Milestone& operator=(Milestone&&) = delete;
  ~Milestone() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  // Makes what the other's stream is given from now on follow that.
  void Precede(const Context& other) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// The place of a launch: a stream, and the event, or null, that then says that all its blocks have
// begun.
struct Branch {
  cudaStream_t stream;
  cudaEvent_t begun = nullptr;
};

// Work that may run beside other work of the context, on streams that start where its stream is and
// that it waits for in the end. Memory that the work uses must be allocated before Fork, and
// outlive this object. Kernels begin in the order of the forks that they are launched on: on its
// own a device takes launches that are ready together in any order, and where the longest comes
// last all wait for it.
class Branches {
 public:
  explicit Branches(const Context& context) : context_(context) {}
  ~Branches() { Join(); }
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  // A branch that follows all that the context's stream has been given so far, and the beginning of
  // what was launched on forks before; the i-th of kBranches, in turn.
  Branch Fork(int i);
  void Join() noexcept;

 private:
  const Context& context_;
  bool any_ = false, forked_[Context::kBranches] = {};
};

// `blocks` of `threads` threads each, `cluster` of them together (cluster.h; 1: no clusters),
// with `bytes` of dynamic shared memory.
template <class... Args>
void Launch(const Branch& branch, void (*kernel)(Args...), int blocks, int cluster, int threads,
            int bytes, Args... args) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(cluster);
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (branch.begun != nullptr) {
    attributes[count].id = cudaLaunchAttributeLaunchCompletionEvent;
    attributes[count].val.launchCompletionEvent.event = branch.begun;
    ++count;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = branch.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  Check(cudaLaunchKernelEx(&config, kernel, args...), "cudaLaunchKernelEx");
}

// Milliseconds between its making, Mark() and Stop(), by the device's clock.
class Stopwatch {
 public:
  explicit Stopwatch(const Context& context) : stream_(context.stream) {
    Check(cudaEventCreate(&begin_), "cudaEventCreate");
    Check(cudaEventCreate(&mark_), "cudaEventCreate");
    Check(cudaEventCreate(&end_), "cudaEventCreate");
    Check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
  }
  ~Stopwatch() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (mark_ != nullptr) cudaEventDestroy(mark_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  double Stop() {
    float ms = 0;
    Check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    Check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    Check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms;
  }
  void Mark() { Check(cudaEventRecord(mark_, stream_), "cudaEventRecord"); }
  // From the making to Mark(); after Stop().
  double Marked() const {
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin_, mark_), "cudaEventElapsedTime");
    return ms;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, mark_ = nullptr, end_ = nullptr;
};

// `size` elements of T on the device, uninitialised.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(Context& context, int64_t size) : context_(&context), size_(size) {
    if (size > 0) {
      data_ = static_cast<T*>(context.arena->Allocate(size * static_cast<int64_t>(sizeof(T))));
    }
  }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) {
      context_->arena->Free(data_, size_ * static_cast<int64_t>(sizeof(T)));
    }
  }

  T* get() const { return data_; }
  int64_t size() const { return size_; }
  // Gives the memory to another context of the same device (Beside), whose stream follows all work
  // on it.
  void GoTo(Context& other) { context_ = &other; }

  void Fill(int byte) const {
    if (size_ == 0) return;
    Check(cudaMemsetAsync(data_, byte, static_cast<size_t>(size_) * sizeof(T), context_->stream),
          "cudaMemsetAsync");
  }
  // From or to the host; the host's memory must stay until the stream has been waited for.
  void CopyIn(const T* from, int64_t count) const {
    if (count == 0) return;
    context_->staging->In(data_, from, static_cast<size_t>(count) * sizeof(T));
  }
  void CopyOut(T* to, int64_t count, int64_t offset = 0) const {
    if (count > 0) context_->staging->Out(std::vector<HostCopy>(1, To(to, count, offset)));
  }
  // That copy, for Context::Download.
  HostCopy To(T* to, int64_t count, int64_t offset = 0) const {
    return {to, count > 0 ? data_ + offset : nullptr, static_cast<size_t>(count) * sizeof(T)};
  }

 private:
  Context* context_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// The median time of a copy of `bytes` within the device's memory, in milliseconds by its clock.
double TimeCopy(Context& context, int64_t bytes);

}  // namespace spaid::cuda
