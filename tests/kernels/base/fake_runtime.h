// CUDA's runtime functions that copies need, on a device whose streams are threads: they take
// copies and events in order, and fail where they are told to. What is tested with it has nothing
// in it that needs CUDA's compiler.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace spaid::cuda {

// A cudaStream_t points to one; null is that of the test.
class FakeStream {
 public:
  FakeStream() : thread_([this] { Work(); }) {}
  ~FakeStream() {
    Put(nullptr);
    thread_.join();
  }
  // null: the end.
  void Put(std::function<void()> task);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

inline constexpr int kAllCopies = 1 << 30;
extern std::atomic<int> copies_left;  // until one fails
extern std::atomic<bool> pins;        // whether there is memory to pin
// Runs on the device before it copies from or to this address; null: nothing does.
extern const void* hook_at;
extern std::function<void()> hook;

class FakeRuntime : public ::testing::Test {
 protected:
  FakeRuntime();
  ~FakeRuntime() override;

  FakeStream stream_;
};

}  // namespace spaid::cuda
