#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {
namespace {

// After these the process' context on the device is gone: every later call fails too.
bool Sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // what is reported here shall not be found by the next check
  const CudaFault fault = Sticky(error)                        ? CudaFault::kDeviceLost
                          : error == cudaErrorMemoryAllocation ? CudaFault::kOutOfMemory
                                                               : CudaFault::kError;
  throw Failure(fault, std::string(what) + ": " + cudaGetErrorString(error) + " (" +
                           cudaGetErrorName(error) + ")");
}

void CheckLaunch(const char* kernel) { Check(cudaGetLastError(), kernel); }

Arena::Arena(int ordinal, cudaStream_t stream, int64_t limit)
    : ordinal_(ordinal), stream_(stream), whole_(this), limit_(limit) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  Check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
  uint64_t keep = UINT64_MAX;
  Check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep),
        "cudaMemPoolSetAttribute");
}

Arena::Arena(Arena& whole, cudaStream_t stream)
    : ordinal_(whole.ordinal_), stream_(stream), whole_(&whole), limit_(whole.limit_) {}

Arena::~Arena() {
  if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

void* Arena::Allocate(int64_t bytes) {
  const int64_t rounded = Rounded(bytes);
  int64_t before = whole_->used_;
  do {
    if (rounded <= limit_ - before) continue;
    throw Failure(CudaFault::kOutOfMemory, "device memory: " + std::to_string(rounded) +
                                               " bytes more than the " + std::to_string(before) +
                                               " in use do not fit the limit of " +
                                               std::to_string(limit_));
  } while (!whole_->used_.compare_exchange_weak(before, before + rounded));
  const int64_t used = before + rounded;
  void* memory = nullptr;
  const cudaError_t made =
      cudaMallocFromPoolAsync(&memory, static_cast<size_t>(rounded), whole_->pool_, stream_);
  if (made != cudaSuccess) whole_->used_ -= rounded;
  Check(made, "cudaMallocFromPoolAsync");
  for (int64_t peak = whole_->peak_; used > peak;) {
    if (whole_->peak_.compare_exchange_weak(peak, used)) break;
  }
  return memory;
}

void Arena::Free(void* memory, int64_t bytes) noexcept {
  cudaFreeAsync(memory, stream_);
  whole_->used_ -= Rounded(bytes);
}

void Arena::ShareWith(int ordinal) {
  if (ordinal == ordinal_) return;
  if (std::find(shared_with_.begin(), shared_with_.end(), ordinal) != shared_with_.end()) return;
  int linked = 0;
  Check(cudaDeviceCanAccessPeer(&linked, ordinal, ordinal_), "cudaDeviceCanAccessPeer");
  if (linked != 0) {
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = ordinal;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    Check(cudaMemPoolSetAccess(pool_, &access, 1), "cudaMemPoolSetAccess");
  }
  shared_with_.push_back(ordinal);
}

Context::Context(int device, int64_t memory_limit, const Variants& chosen)
    : ordinal(device), variants(chosen) {
  Enter();
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  if (memory_limit <= 0) {
    size_t free = 0, total = 0;
    Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    memory_limit = static_cast<int64_t>(total);
  }
  try {
    MakeQueues();
    arena = new Arena(device, stream, memory_limit);
  } catch (...) {
    Destroy();
    throw;
  }
}

Context::Context(Context& whole)
    : ordinal(whole.ordinal), variants(whole.variants), multiprocessors(whole.multiprocessors) {
  try {
    MakeQueues();
    arena = new Arena(*whole.arena, stream);
  } catch (...) {
    Destroy();
    throw;
  }
}

void Context::MakeQueues() {
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  for (cudaStream_t& branch : branches) {
    Check(cudaStreamCreateWithFlags(&branch, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  for (cudaEvent_t* made : {&event, &begun}) {
    Check(cudaEventCreateWithFlags(made, cudaEventDisableTiming), "cudaEventCreate");
  }
  Check(cudaMallocHost(&pinned, kPinnedBytes + kArrivingBytes), "cudaMallocHost");
  arriving_ = static_cast<char*>(pinned) + kPinnedBytes;
  staging = new Staging(ordinal, stream);
}

Context& Context::Beside() {
  if (beside_ == nullptr) beside_.reset(new Context(*this));
  return *beside_;
}

void Context::Destroy() noexcept {
  beside_.reset();
  delete staging;
  delete arena;
  if (pinned != nullptr) cudaFreeHost(pinned);
  for (cudaEvent_t made : {event, begun}) {
    if (made != nullptr) cudaEventDestroy(made);
  }
  for (cudaStream_t branch : branches) {
    if (branch != nullptr) cudaStreamDestroy(branch);
  }
  if (stream != nullptr) cudaStreamDestroy(stream);
}

Context::~Context() {
  cudaSetDevice(ordinal);
  cudaStreamSynchronize(stream);
  Destroy();
}

Milestone::Milestone(const Context& of) {
  Check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  const cudaError_t recorded = cudaEventRecord(event_, of.stream);
  if (recorded != cudaSuccess) cudaEventDestroy(event_);
  Check(recorded, "cudaEventRecord");
}

void Milestone::Precede(const Context& other) const {
  Check(cudaStreamWaitEvent(other.stream, event_), "cudaStreamWaitEvent");
}

Branch Branches::Fork(int i) {
  i %= Context::kBranches;
  Check(cudaEventRecord(context_.event, context_.stream), "cudaEventRecord");
  Check(cudaStreamWaitEvent(context_.branches[i], context_.event), "cudaStreamWaitEvent");
  if (any_) Check(cudaStreamWaitEvent(context_.branches[i], context_.begun), "cudaStreamWaitEvent");
  any_ = forked_[i] = true;
  return {context_.branches[i], context_.begun};
}

// Errors show at the next check: a context that has failed fails in everything.
void Branches::Join() noexcept {
  for (int i = 0; i < Context::kBranches; ++i) {
    if (!forked_[i]) continue;
    cudaEventRecord(context_.event, context_.branches[i]);
    cudaStreamWaitEvent(context_.stream, context_.event);
  }
}

void Context::Enter() const { Check(cudaSetDevice(ordinal), "cudaSetDevice"); }

void Context::Synchronize() const { Check(cudaStreamSynchronize(stream), "the device's work"); }

void Context::Download(const std::vector<HostCopy>& copies, const Staging::Arrived& arrived) const {
  size_t all = 0;
  const auto room = [](const HostCopy& copy) { return (copy.bytes + 7) / 8 * 8; };
  for (const HostCopy& copy : copies) all += room(copy);
  if (all > kArrivingBytes || arrived != nullptr) {
    staging->Out(copies, arrived);
    return Synchronize();
  }
  char* at = arriving_;
  for (const HostCopy& copy : copies) {
    if (copy.bytes == 0) continue;
    Check(cudaMemcpyAsync(at, copy.device, copy.bytes, cudaMemcpyDeviceToHost, stream),
          "copy from the device");
    at += room(copy);
  }
  Synchronize();
  at = arriving_;
  for (const HostCopy& copy : copies) {
    if (copy.bytes > 0) std::memcpy(copy.host, at, copy.bytes);
    at += room(copy);
  }
}

void Context::CopyBytesAcross(void* to, int to_ordinal, const void* from, int from_ordinal,
                              size_t bytes) const {
  if (bytes == 0) return;
  Check(to_ordinal == from_ordinal
            ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream)
            : cudaMemcpyPeerAsync(to, to_ordinal, from, from_ordinal, bytes, stream),
        "copy between devices");
}

double TimeCopy(Context& context, int64_t bytes) {
  // Several at a time, so that a launch weighs little against them.
  constexpr int kRuns = 5, kCopies = 4;
  const Buffer<char> from(context, bytes), to(context, bytes);
  const auto copy = [&] {
    Check(cudaMemcpyAsync(to.get(), from.get(), static_cast<size_t>(bytes),
                          cudaMemcpyDeviceToDevice, context.stream),
          "cudaMemcpyAsync");
  };
  from.Fill(1);
  copy();
  double ms[kRuns];
  for (double& run : ms) {
    Stopwatch watch(context);
    for (int i = 0; i < kCopies; ++i) copy();
    run = watch.Stop() / kCopies;
  }
  std::nth_element(ms, ms + kRuns / 2, ms + kRuns);
  return ms[kRuns / 2];
}

}  // namespace spaid::cuda
