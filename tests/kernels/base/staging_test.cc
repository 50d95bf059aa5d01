// Copies between host and device, on a device that is a thread: it takes copies and events in
// order, and fails where it is told to. What is tested has nothing in it that needs CUDA's
// compiler.
#include "kernels/base/cuda/staging.cu"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

class FakeStream {
 public:
  FakeStream() : thread_([this] { Work(); }) {}
  ~FakeStream() {
    Put(nullptr);
    thread_.join();
  }
  // null: the end.
  void Put(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    came_.notify_one();
  }

 private:
  void Work() {
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

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

struct FakeEvent {
  std::mutex mutex;
  std::condition_variable came;
  int recorded = 0, reached = 0;
};

FakeStream* stream;
std::atomic<int> copies_left;  // until one fails
std::atomic<bool> pins;        // whether there is memory to pin

FakeEvent& Event(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }

}  // namespace

// The runtime's functions that are used, of that device.
extern "C" {

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                      cudaStream_t) {
  if (copies_left.fetch_sub(1) <= 0) return cudaErrorInvalidValue;
  stream->Put([=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t named, cudaStream_t) {
  FakeEvent& event = Event(named);
  int count = 0;
  {
    const std::lock_guard lock(event.mutex);
    count = ++event.recorded;
  }
  stream->Put([&event, count] {
    const std::lock_guard lock(event.mutex);
    event.reached = count;
    event.came.notify_all();
  });
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t named) {
  FakeEvent& event = Event(named);
  std::unique_lock lock(event.mutex);
  const int count = event.recorded;
  event.came.wait(lock, [&] { return event.reached >= count; });
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  delete &Event(event);
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (!pins) return cudaErrorMemoryAllocation;
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

namespace spaid::cuda {

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Failure(CudaFault::kError, what);
}

namespace {

constexpr int kAllCopies = 1 << 30;

class StagingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stream = &stream_;
    copies_left = kAllCopies;
    pins = true;
  }

  // There, back to an address that is not aligned, and the second half to another array.
  static void ExpectThereAndBack(Staging& staging, size_t bytes) {
    std::vector<char> host(bytes), device(bytes), back(bytes + 5, 1), half(bytes / 2);
    std::mt19937 random(static_cast<unsigned>(bytes));
    for (char& c : host) c = static_cast<char>(random());
    staging.In(device.data(), host.data(), bytes);
    const size_t middle = bytes - bytes / 2;
    staging.Out({{back.data() + 3, device.data(), bytes},
                 {nullptr, nullptr, 0},
                 {half.data(), device.data() + middle, bytes / 2}});
    WaitForStream();
    EXPECT_TRUE(std::equal(host.begin(), host.end(), back.begin() + 3));
    EXPECT_TRUE(std::equal(half.begin(), half.end(), host.begin() + static_cast<int64_t>(middle)));
    EXPECT_TRUE(back[0] == 1 && back[2] == 1 && back[bytes + 3] == 1 && back[bytes + 4] == 1);
  }

  // Small copies are the driver's own.
  static void WaitForStream() {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, 0);
    cudaEventRecord(event, nullptr);
    cudaEventSynchronize(event);
    cudaEventDestroy(event);
  }

  FakeStream stream_;
};

TEST_F(StagingTest, BringsBackWhatItBrought) {
  for (const int threads : {1, 2, 8}) {
    Staging staging(0, nullptr, threads);
    // Under what threads are woken for, of odd ends, and several times all buffers.
    for (const size_t bytes :
         {size_t{0}, size_t{100}, (size_t{1} << 20) + 3, (size_t{5} << 20) + 7, size_t{70} << 20}) {
      SCOPED_TRACE(bytes);
      ExpectThereAndBack(staging, bytes);
    }
  }
}

TEST_F(StagingTest, GoesByTheDriverWithoutMemoryToPin) {
  pins = false;
  Staging refused(0, nullptr, 3);
  ExpectThereAndBack(refused, size_t{9} << 20);
  pins = true;
  ExpectThereAndBack(refused, size_t{9} << 20);
}

// In the first copies, in the middle, and nobody waits for ever for what does not come.
TEST_F(StagingTest, AFailureEndsItAndTheNextCopyWorks) {
  constexpr size_t kBytes = size_t{70} << 20;
  std::vector<char> host(kBytes), device(kBytes);
  for (const int threads : {1, 5}) {
    Staging staging(0, nullptr, threads);
    for (const int before : {0, 3, 9, 16}) {
      copies_left = before;
      EXPECT_THROW(staging.In(device.data(), host.data(), kBytes), Failure) << before;
      copies_left = before;
      EXPECT_THROW(staging.Out({{host.data(), device.data(), kBytes}}), Failure) << before;
      copies_left = kAllCopies;
      WaitForStream();
      ExpectThereAndBack(staging, size_t{9} << 20);
    }
  }
}

}  // namespace
}  // namespace spaid::cuda
