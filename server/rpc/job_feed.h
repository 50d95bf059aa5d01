// Reads a job's events for a stream: one at a time, each once, with a heartbeat when nothing
// happens.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>

#include "server/sched/job.h"
#include "spaid/v1/job.pb.h"

namespace spaid::server {

class Scheduler;

// Thread-compatible: its stream's mutex guards it. Hold on to what `Take...` returns until the
// mutex is released: letting a waiter go runs other streams' callbacks.
class JobFeed {
 public:
  using Clock = std::chrono::steady_clock;

  // Keeps the job wanted and the stream notified.
  struct Ties {
    JobWaiter waiter;
    JobSubscription subscription;
  };

  // Follows `job` from event `first_event` (>= 1) on.
  void Follow(std::shared_ptr<Job> job, Ties ties, int64_t first_event);
  const std::shared_ptr<Job>& job() const { return job_; }
  bool following() const { return job_ != nullptr; }
  // Returns true if the finished event was given out, or came before the first one asked for.
  bool ended() const { return ended_; }

  // Reads the next event; false: there is none now.
  bool Next(const Scheduler& scheduler, v1::JobEvent* event);
  // Makes a heartbeat due if the last event is older than `interval`. True: Next has one.
  bool Tick(Clock::time_point now, std::chrono::milliseconds interval);

  Ties TakeTies() { return std::move(ties_); }

 private:
  std::shared_ptr<Job> job_;
  Ties ties_;
  std::deque<v1::JobEvent> pending_;
  int64_t next_ = 1;
  bool ended_ = false, end_read_ = false, heartbeat_due_ = false;
  Clock::time_point last_{};
};

}  // namespace spaid::server
