// A few threads for what is too long for a reactor and too short for the job queue: validating,
// diagnosing and hashing a matrix that has arrived, counting the cost of a build.
//
//   Executor executor(2, 256);
//   if (!executor.TryRun([=] { ... })) return Busy();
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace spaid::server {

// FIFO, bounded. Thread-safe. The destructor runs what is queued, then joins.
class Executor {
 public:
  Executor(int threads, size_t max_queued);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // False, and `task` is not run, when `max_queued` tasks wait already.
  [[nodiscard]] bool TryRun(std::function<void()> task);

 private:
  void Work();

  const size_t max_queued_;
  std::mutex mu_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spaid::server
