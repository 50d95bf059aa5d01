// The queue and its workers: runs jobs where and when Dispatcher says. One worker thread a lane of
// a device, and one for each job that is paused.
//
//   Scheduler scheduler({.dispatch = {.devices = {{.name = "cpu"}, {.name = "gpu:0"}}}});
//   RETURN_IF_ERROR(scheduler.Submit(job, {.predicted_ms = 120, .devices = DeviceBit(1)},
//                                    [=](Job& j, const Assignment& at) { ... at.device ... }));
//
// A device is lost when work on it, or a look at it while it is idle or after an error that nobody
// expected, says so, or when any of them hangs: it takes no more work, and queued jobs that nothing
// else can run fail with the same error.
//
// Knows nothing of gRPC, CUDA or numerics.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/sched/dispatcher.h"
#include "server/sched/hang_watch.h"

namespace spaid::server {

class Job;
class Metrics;

// A running job's turn in its lane. Its work looks at it where it can be interrupted.
class JobTurn {
 public:
  virtual ~JobTurn() = default;
  // It has had its time, and somebody waits: it should Yield. Costs one relaxed load, and a clock
  // read where somebody waits.
  virtual bool Over() const = 0;
  // Leaves the lane to others; comes back with the next turn, or when the job was told to stop. On
  // the thread that runs the work, which holds nothing then that others' work needs.
  virtual void Yield() = 0;
};

// Where a job runs: names of SchedulerOptions::dispatch.devices.
struct Assignment {
  std::string device;
  size_t lane = 0;                        // of the device: jobs of other lanes run beside
  std::vector<std::string> devices = {};  // all that it has, `device` first; several: split it
  JobTurn* turn = nullptr;                // borrowed; null: nobody interrupts it
};

// Runs on a worker's thread of the device it is given. Honours the job's stop hook. The job ends
// with the status returned; a job that was told to stop ends with StopError(cause) unless this is
// OK. UNAVAILABLE/DEVICE_LOST loses the device.
using JobWork = std::function<absl::Status(Job& job, const Assignment& at)>;

struct SchedulerOptions {
  DispatcherOptions dispatch;
  int64_t max_detached_per_tenant = 0;  // jobs, queued or running; 0: no limit of its own
  std::chrono::milliseconds stop_grace{
      30'000};                        // Drain: for running work to notice that it must stop
  const Clock* clock = &RealClock();  // outlives the scheduler
  Metrics* metrics = nullptr;         // borrowed; may be null
  // Runs once for each device, at the start, on a worker's thread; no job starts before all have
  // come back: for what would else be measured amid somebody's job. UNAVAILABLE/DEVICE_LOST loses
  // the device, any other error is logged. Empty: there is nothing.
  std::function<absl::Status(size_t device)> prepare;
  std::function<void()> on_prepared;  // runs once they have come back; not where there is nothing
  // Runs after a job that was queued has ended, on whichever thread ended it; not for refused ones.
  std::function<void(const std::shared_ptr<Job>&)> on_ended;
  // A look at a device, by way of one of its lanes, on a worker's thread: once it has been idle for
  // `probe_every`, and where a job on it failed with INTERNAL, before it takes the next one.
  // UNAVAILABLE/DEVICE_LOST loses the device. Empty: nobody looks.
  std::function<absl::Status(size_t device, size_t lane)> probe;
  std::chrono::milliseconds probe_every{10'000};
  // Jobs, by their predictions, and prepare and probe, by the floor, may be silent for so long;
  // then their devices are lost.
  HangLimits hang = {};
  // Runs once for each device that is lost, before the jobs that it costs end.
  std::function<void(size_t device, const absl::Status& why)> on_lost;
};

// Thread-safe.
class Scheduler {
 public:
  using Place = Dispatcher::Place;
  struct Load {
    int64_t queued = 0, running = 0;
    int64_t paused = 0;  // of those that run
    double eta_ms = 0;   // until all that is there now has run, on the busiest device
    bool draining = false;
    Dispatcher::ClassLoad classes[kPriorities];
    std::vector<Dispatcher::Ratio> ratios;
  };

  struct RunningJob {
    std::shared_ptr<Job> job;
    double predicted_ms = 0;  // of its whole run, as corrected by what others took
  };
  struct QueuedJob {
    std::shared_ptr<Job> job;
    double predicted_ms = 0;
    Place place;  // of a long queue as it was up to PlacesLast() ago
  };
  struct Jobs {
    std::vector<RunningJob> running;  // paused ones, too
    std::vector<QueuedJob> queued;    // those that start first
  };

  explicit Scheduler(SchedulerOptions options);
  // Stops what is left (kDrain) and waits for the workers: for one that hangs (hangs()) without
  // end.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues `job` (QUEUED, submitted once); of `work`, tenant and priority are the job's. Errors,
  // after which the job has ended with them too: those of Dispatcher::Admit; UNAVAILABLE/DRAINING;
  // those of AdmitDetached, where it is detached.
  // A job that was told to stop before ends at once: OK.
  absl::Status Submit(std::shared_ptr<Job> job, Work work, JobWork run);

  // RESOURCE_EXHAUSTED/TOO_MANY_DETACHED (limit) where the tenant has as many detached jobs queued
  // or running as it may have.
  absl::Status AdmitDetached(const std::string& tenant) const;

  // Nothing where the job is not queued. Of a long queue as it was up to Dispatcher::PlacesLast()
  // ago.
  std::optional<Place> Where(const Job& job) const;
  Load load() const;
  // The wait of a small job that this tenant would send now, on the device that takes it first.
  double WaitMs(const std::string& tenant) const;
  Jobs jobs(size_t max_queued) const;
  // The devices that are not lost.
  DeviceMask healthy() const;
  // OK, or what the device was lost by.
  absl::Status DeviceStatus(size_t device) const;
  // All devices are prepared.
  bool prepared() const;
  // A worker hangs, and has not come back since: its thread cannot be joined.
  bool hangs() const;

  // From now on every Submit is refused (UNAVAILABLE/DRAINING). Queued jobs that cannot start
  // before `deadline`, as far as one knows, fail so at once; the others run. Thread-safe; may be
  // called again with another deadline.
  void StartDrain(TimePoint deadline);
  // StartDrain, then waits until nothing is queued or running; from `deadline` on stops what is
  // left (kDrain) and waits up to stop_grace for that. False: something is still running even so.
  bool Drain(TimePoint deadline);

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace spaid::server
