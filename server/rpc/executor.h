// A few threads for what is too long for a reactor and too short for the job queue: validating,
// diagnosing and hashing a matrix that has arrived, counting the cost of a build.
//
//   Executor executor(2, 256);
//   if (!executor.TryRun(tenant, [=] { ... }, [=](const absl::Status& error) { ... })) return
//   Busy();
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace spaid::server {

// Tenants take turns, each with what came first of its own; bounded. Thread-safe. The destructor
// runs what is queued, then joins.
class Executor {
 public:
  Executor(int threads, size_t max_queued);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // False, and nothing is run, when `max_queued` tasks wait already. `failed` runs, on the task's
  // thread, where `task` throws (Guarded).
  [[nodiscard]] bool TryRun(const std::string& tenant, std::function<void()> task,
                            std::function<void(const absl::Status&)> failed);
  int64_t queued() const;

 private:
  struct Task {
    std::function<void()> run;
    std::function<void(const absl::Status&)> failed;
  };
  void Work();

  const size_t max_queued_;
  mutable std::mutex mu_;
  std::condition_variable ready_;
  std::map<std::string, std::deque<Task>> queues_;  // by tenant; none is empty
  std::deque<std::string> turns_;                   // the tenants that have one
  size_t queued_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spaid::server
