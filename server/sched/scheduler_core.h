// The implementation of Scheduler, for scheduler.cc and device_loss.cc only.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/sched/job.h"
#include "server/sched/scheduler.h"

namespace spaid::server {

// Lock order: this class's, then a job's. Jobs call back without theirs.
class Scheduler::Core : public std::enable_shared_from_this<Scheduler::Core> {
 public:
  explicit Core(SchedulerOptions options)
      : options_(std::move(options)), dispatcher_(options_.dispatch), hang_watch_(options_.hang) {
    for (size_t d = 0; d < rooms().size(); ++d) {
      for (int slot = 0; slot < std::max(rooms()[d].slots, 1); ++slot) {
        workers_.push_back(
            std::make_unique<Worker>(*this, workers_.size(), d, static_cast<size_t>(slot)));
        workers_.back()->is_first = slot == 0;
      }
    }
    if (options_.prepare) preparing_ = rooms().size();
  }

  void StartThreads() {
    std::lock_guard lock(mutex_);
    for (const auto& worker : workers_) {
      threads_.emplace_back([this, own = worker.get()] { WorkLoop(*own); });
    }
    threads_.emplace_back([this] { KeepTime(); });
  }

  void StopThreads() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      for (const auto& worker : workers_) worker->wake.notify_one();
      timer_cv_.notify_one();
    }
    // Nobody starts another one any more.
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Submit(std::shared_ptr<Job> job, Work work, JobWork run);
  absl::Status AdmitDetached(const std::string& tenant) const {
    std::lock_guard lock(mutex_);
    return AdmitDetachedLocked(tenant);
  }
  std::optional<Place> Where(const Job& job);
  Load load() const;
  double WaitMs(const std::string& tenant);
  Jobs jobs(size_t max_queued);
  DeviceMask healthy() const {
    std::lock_guard lock(mutex_);
    return dispatcher_.healthy();
  }
  absl::Status DeviceStatus(size_t device) const {
    std::lock_guard lock(mutex_);
    return dispatcher_.DeviceStatus(device);
  }
  bool prepared() const {
    std::lock_guard lock(mutex_);
    return preparing_ == 0;
  }
  bool hangs() const {
    std::lock_guard lock(mutex_);
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const auto& worker) { return worker->hung; });
  }
  void StartDrain(TimePoint deadline);
  bool Drain(TimePoint deadline);
  void StopAll();

 private:
  struct Queued {
    std::shared_ptr<Job> job;
    JobWork run;
    int64_t told_position = 0;
    Place place;  // as of placed_
  };
  struct Taken {  // by a worker
    uint64_t id = 0;
    std::shared_ptr<Job> job;
    JobWork run;
    Assignment at;
    std::vector<size_t> devices;  // at.devices
  };
  // A thread that runs one job at a time, which may be paused.
  struct Worker : JobTurn {
    Worker(Core& its_core, size_t its_index, size_t its_device, size_t its_slot)
        : core(its_core), index(its_index), device(its_device), slot(its_slot) {}
    bool Over() const override {
      return core.others_wait_.load(std::memory_order_relaxed) && core.Now() >= turn_ends;
    }
    void Yield() override { core.Yield(*this); }
    void Expect(double more_ms) override { core.Expect(*this, more_ms); }

    Core& core;
    const size_t index, device, slot;  // where it works
    bool is_first = false;  // the first worker of its device; set before its thread begins
    std::condition_variable wake;
    std::optional<Taken> next;     // its next job
    std::shared_ptr<Job> running;  // null: idle
    uint64_t running_id = 0;
    std::vector<size_t> running_on;
    bool preparing = false;
    bool hung = false;     // it has not come back: its job has been ended without it
    bool paused = false;   // the running job
    bool no_slot = false;  // it has none: paused, or told to stop while it was
    // Set by whoever gives the turn, before the work has it.
    TimePoint turn_ends = TimePoint::max();
  };
  // A device that has just been lost, and the queued jobs that nothing else may run.
  struct Loss {
    size_t device = 0;
    absl::Status why;
    std::vector<Queued> orphans;
  };
  // A worker that hangs, and the jobs that this costs.
  struct Hang {
    std::vector<Loss> losses;
    std::vector<std::shared_ptr<Job>> jobs;
    absl::Status why;
    bool last_prepared = false;  // all devices are prepared now
  };
  struct News {  // a queue position worth telling
    std::shared_ptr<Job> job;
    Place place;
  };
  // A time at which a job may have to be told to stop: looked at again then.
  struct Alarm {
    TimePoint when;
    std::weak_ptr<Job> job;
    bool operator>(const Alarm& other) const { return when > other.when; }
  };

  const std::vector<DeviceRoom>& rooms() const { return options_.dispatch.devices; }
  TimePoint Now() const { return options_.clock->Now(); }
  bool IdleLocked() const {
    return queued_.empty() && finishing_ == 0 &&
           std::none_of(workers_.begin(), workers_.end(),
                        [](const auto& worker) { return worker->next || worker->running; });
  }
  void Prepare(Worker& worker);
  void DispatchLocked();
  void BeginLocked(const Dispatcher::Start& start);
  Worker* FreeWorkerLocked(size_t device, size_t slot);
  bool StartThreadLocked(Worker* worker);
  void Yield(Worker& worker);
  void Expect(Worker& worker, double more_ms);
  Worker* PausedLocked(const Job* job) const;
  void TellOthersLocked();
  absl::Status AdmitDetachedLocked(const std::string& tenant) const;
  void MovedLocked();
  std::vector<News> PlaceLocked();
  Jobs JobsLocked(size_t max_queued) const;
  static void Tell(const std::vector<News>& news) {
    for (const News& moved : news) {
      moved.job->ReportQueued(moved.place.position, moved.place.eta_ms);
    }
  }
  void SetAlarmLocked(const std::shared_ptr<Job>& job, std::optional<TimePoint> when);
  bool AwaitWorkLocked(Worker& worker, std::unique_lock<std::mutex>& lock);
  bool DeviceIdleLocked(size_t device) const;
  absl::Status Look(size_t device, size_t slot);
  absl::Status LookAfter(const Taken& taken, absl::Status status);
  void WatchLocked(Worker& worker, std::function<bool()> alive, double predicted_ms);
  std::vector<Hang> FindHungLocked();
  void EndHung(std::vector<Hang> hangs);
  void Lose(size_t device, const absl::Status& why);
  void LoseLocked(size_t device, const absl::Status& why, std::vector<Loss>* losses);
  void EndLosses(std::vector<Loss> losses);
  void OnChange(const Job* job);
  void OnStop(const Job* job, StopCause cause);
  void End(const std::shared_ptr<Job>& job, const absl::Status& status);
  void WorkLoop(Worker& worker);
  void KeepTime();

  const SchedulerOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable timer_cv_, idle_cv_;
  Dispatcher dispatcher_;
  HangWatch hang_watch_;
  TimePoint next_tick_ = TimePoint::max();  // for hang_watch_; max(): nothing is watched
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Queued> queued_;
  std::unordered_map<const Job*, uint64_t> ids_;  // queued jobs only
  std::vector<std::unique_ptr<Worker>> workers_;
  int64_t finishing_ = 0;  // jobs that left queued_ or a worker and are being ended
  size_t preparing_ = 0;   // devices that are not ready yet
  bool draining_ = false, stopping_ = false;
  TimePoint placed_{-std::chrono::hours(1)};  // when places were counted
  bool moved_ = false;                        // since then
  std::vector<News> untold_;                  // for the timekeeper to report
  std::vector<Alarm> alarms_;                 // a heap, the earliest on top
  size_t sweep_at_ = 1024;  // those of ended jobs are swept out when it has doubled
  std::atomic<bool> others_wait_{false};
  std::vector<std::thread> threads_;  // one a worker, and the timekeeper
};

}  // namespace spaid::server
