#include "tests/kernels/base/fake_runtime.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

std::atomic<int> copies_left;
std::atomic<bool> pins;
const void* hook_at;
std::function<void()> hook;

namespace {

FakeStream* of_the_test;

struct FakeEvent {
  std::mutex mutex;
  std::condition_variable came;
  int recorded = 0, reached = 0;

  void WaitFor(int count) {
    std::unique_lock lock(mutex);
    came.wait(lock, [&] { return reached >= count; });
  }
};

// Streams may still have tasks of an event that was destroyed.
std::mutex events_mutex;
std::map<cudaEvent_t, std::shared_ptr<FakeEvent>> events;

std::shared_ptr<FakeEvent> Event(cudaEvent_t event) {
  const std::lock_guard lock(events_mutex);
  return events.at(event);
}

FakeStream& Stream(cudaStream_t stream) {
  return stream == nullptr ? *of_the_test : *reinterpret_cast<FakeStream*>(stream);
}

// Puts the event on the stream. How often that was.
int Record(const std::shared_ptr<FakeEvent>& event, cudaStream_t stream) {
  int count = 0;
  {
    const std::lock_guard lock(event->mutex);
    count = ++event->recorded;
  }
  Stream(stream).Put([event, count] {
    const std::lock_guard lock(event->mutex);
    event->reached = count;
    event->came.notify_all();
  });
  return count;
}

int Recorded(FakeEvent& event) {
  const std::lock_guard lock(event.mutex);
  return event.recorded;
}

}  // namespace

void FakeStream::Put(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  came_.notify_one();
}

void FakeStream::Work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [this] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (!task) return;
    task();
  }
}

FakeRuntime::FakeRuntime() {
  of_the_test = &stream_;
  copies_left = kAllCopies;
  pins = true;
  hook_at = nullptr;
}

FakeRuntime::~FakeRuntime() { hook = nullptr; }

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Failure(error == cudaErrorMemoryAllocation ? CudaFault::kOutOfMemory : CudaFault::kError,
                what);
}

}  // namespace spaid::cuda

// The runtime's functions that are used, of that device.
extern "C" {

using spaid::cuda::Event;
using spaid::cuda::FakeEvent;
using spaid::cuda::FakeStream;
using spaid::cuda::Stream;

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                      cudaStream_t stream) {
  if (spaid::cuda::copies_left.fetch_sub(1) <= 0) return cudaErrorInvalidValue;
  Stream(stream).Put([=] {
    const void* const at = spaid::cuda::hook_at;
    if (at != nullptr && (from == at || to == at)) spaid::cuda::hook();
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  spaid::cuda::Record(Event(event), stream);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t named) {
  const auto event = Event(named);
  event->WaitFor(spaid::cuda::Recorded(*event));
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t named) {
  const auto event = Event(named);
  const std::lock_guard lock(event->mutex);
  return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t named, unsigned) {
  const auto event = Event(named);
  const int count = spaid::cuda::Recorded(*event);
  Stream(stream).Put([event, count] { event->WaitFor(count); });
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new FakeStream);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  delete &Stream(stream);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  const auto event = std::make_shared<FakeEvent>();
  event->WaitFor(spaid::cuda::Record(event, stream));
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const auto made = std::make_shared<FakeEvent>();
  *event = reinterpret_cast<cudaEvent_t>(made.get());
  const std::lock_guard lock(spaid::cuda::events_mutex);
  spaid::cuda::events[*event] = made;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(spaid::cuda::events_mutex);
  spaid::cuda::events.erase(event);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (!spaid::cuda::pins) return cudaErrorMemoryAllocation;
  *memory = std::malloc(bytes);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaGetLastError() { return cudaSuccess; }

}  // extern "C"
