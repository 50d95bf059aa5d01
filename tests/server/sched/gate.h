// Work that waits until a test lets it go, and says when it has begun.
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/status/status.h"
#include "server/sched/job.h"
#include "server/sched/scheduler.h"

namespace spaid::server {

class Gate {
 public:
  // A job's work: begins, then waits for Open or for a stop.
  JobWork Work() {
    return [this](Job& job, const Assignment&) -> absl::Status {
      job.SetStopHook([this](StopCause) {
        std::lock_guard lock(mutex_);
        stopped_ = true;
        cv_.notify_all();
      });
      std::unique_lock lock(mutex_);
      begun_ = true;
      cv_.notify_all();
      cv_.wait(lock, [this] { return open_ || stopped_; });
      return stopped_ ? absl::CancelledError("stopped") : absl::OkStatus();
    };
  }
  void AwaitBegun() {
    std::unique_lock lock(mutex_);
    cv_.wait(lock, [this] { return begun_; });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    cv_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable cv_;
  bool begun_ = false, open_ = false, stopped_ = false;
};

// Waits until the job has ended.
inline void AwaitEnd(const std::shared_ptr<Job>& job) {
  struct Bell {
    std::mutex mutex;
    std::condition_variable cv;
    bool rung = false;
  };
  auto bell = std::make_shared<Bell>();
  JobSubscription news = job->Subscribe(1, [bell] {
    std::lock_guard lock(bell->mutex);
    bell->rung = true;
    bell->cv.notify_all();
  });
  std::unique_lock lock(bell->mutex);
  while (!job->ended()) {
    bell->cv.wait(lock, [&] { return bell->rung; });
    bell->rung = false;
  }
}

}  // namespace spaid::server
