// Runs tasks on a few threads that are too long for a reactor and too short for the job queue:
// validating, diagnosing and hashing a matrix that has arrived, counting the cost of a build.
//
//   Executor executor(2, 256);
//   const bool taken = executor.TryRun(tenant, [=] { ... }, [=](const absl::Status& e) { ... });
//   if (!taken) return Busy();
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "server/base/tenant_shares.h"

namespace spaid::server {

// Tenants, as far as they are told apart, take turns, each with what came first of its own, on
// `threads` threads at most: one more is there for the others, whose tasks are short while those of
// one may take minutes. Bounded. Thread-safe. The destructor runs what is queued, then joins.
class Executor {
 public:
  Executor(int threads, int64_t max_queued, ShareRules shares = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Queues `task`. Returns false, and runs nothing, if `max_queued` tasks wait already, or nearly
  // so many and the tenant has more than its share of them (TenantShares). `failed` runs on the
  // task's thread if `task` throws (Guarded).
  [[nodiscard]] bool TryRun(const std::string& tenant, std::function<void()> task,
                            std::function<void(const absl::Status&)> failed);
  int64_t queued() const;

 private:
  struct Task {
    TenantShares::Account account = nullptr;
    std::function<void()> run;
    std::function<void(const absl::Status&)> failed;
  };
  void Work();
  // Whose turn it is of those who have a thread to run on; turns_.end(): nobody's.
  std::deque<TenantShares::Account>::iterator NextLocked();

  const int threads_of_one_;
  mutable std::mutex mu_;
  std::condition_variable ready_;
  std::unordered_map<TenantShares::Account, std::deque<Task>> queues_;  // none is empty
  std::deque<TenantShares::Account> turns_;                             // those that have one
  std::unordered_map<TenantShares::Account, int> running_;              // tasks; none has none
  TenantShares places_;  // what is used: tasks that wait
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spaid::server
