// Makes one job of identical work in flight: later requests attach to it, and it is as urgent as
// the most urgent of them (Job::priority). The tenant of the first request pays for it; keys name
// the tenant, so that nobody pays for another.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "server/sched/job.h"

namespace spaid::server {

// Thread-safe.
class JobCoalescer {
 public:
  struct Ticket {
    std::shared_ptr<Job> job;  // null: `existing` said that there is nothing to do
    JobWaiter waiter;
    bool shared = false;  // attached to somebody else's job
  };

  // Attaches to the job in flight under `key`; else, if `existing` returns true (the result is
  // there already), returns a ticket without a job; else calls `submit`, which makes, attaches to
  // and submits a job. Requests of one key are served one at a time, so that no second job is made
  // between the look and the submission. Both callbacks run under a lock and must not call Join.
  absl::StatusOr<Ticket> Join(const std::string& key, const Job::AttachOptions& attach,
                              const std::function<bool()>& existing,
                              const std::function<absl::StatusOr<Ticket>()>& submit);

  // Returns the number of keys remembered: those in flight, and some of the past.
  size_t size() const {
    std::lock_guard lock(mutex_);
    return in_flight_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<Job>> in_flight_;
  size_t sweep_at_ = 64;  // entries of dead jobs are swept when the map has doubled
};

}  // namespace spaid::server
