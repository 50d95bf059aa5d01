// Runs jobs where and when Dispatcher says: the queue, one worker thread for each slot of a device,
// and one for each job that is paused.
//
//   Scheduler scheduler({.dispatch = {.devices = {{.name = "cpu"}, {.name = "gpu:0"}}}});
//   RETURN_IF_ERROR(scheduler.Submit(job, {.predicted_ms = 120, .devices = DeviceBit(1)},
//                                    [=](Job& j, const Assignment& at) { ... at.device ... }));
//
// A device is lost when work on it, or a probe of it (while it is idle, or after an unexpected
// error), says so, or when one of these hangs. It takes no more work, and queued jobs that nothing
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

// The turn of a running job in its slot. The work checks it at points where it can be interrupted.
class JobTurn {
 public:
  virtual ~JobTurn() = default;
  // Returns true if the job has had its time and somebody waits: it should Yield. Costs one relaxed
  // load, and a clock read if somebody waits.
  virtual bool Over() const = 0;
  // Leaves the slot to others; returns with the next turn, or when the job was told to stop. Called
  // on the thread that runs the work, which then holds nothing that others' work needs.
  virtual void Yield() = 0;
  // Says that the job, which was to be at its end about now, takes so much longer.
  virtual void Expect(double more_ms) = 0;
};

// Tells where a job runs, by names of SchedulerOptions::dispatch.devices.
struct Assignment {
  std::string device;
  size_t slot = 0;                        // jobs in other slots of the device run beside it
  std::vector<std::string> devices = {};  // all that it has, `device` first; several: split it
  JobTurn* turn = nullptr;                // borrowed; null: nobody interrupts it
};

// The work of a job. Runs on a worker thread of its device and honours the job's stop hook. The job
// ends with the status returned; a job that was told to stop ends with StopError(cause) unless that
// status is OK. UNAVAILABLE/DEVICE_LOST loses the device.
using JobWork = std::function<absl::Status(Job& job, const Assignment& at)>;

struct SchedulerOptions {
  DispatcherOptions dispatch;
  int64_t max_detached_per_tenant = 0;  // jobs, queued or running; 0: no limit of its own
  std::chrono::milliseconds stop_grace{
      30'000};                        // in Drain: for running work to notice that it must stop
  const Clock* clock = &RealClock();  // outlives the scheduler
  Metrics* metrics = nullptr;         // borrowed; may be null
  // Runs once for each device, at the start, on a worker's thread; no job starts before all have
  // returned. For measurements that would otherwise run beside somebody's job.
  // UNAVAILABLE/DEVICE_LOST loses the device, any other error is logged. Empty: nothing to do.
  std::function<absl::Status(size_t device)> prepare;
  std::function<void()> on_prepared;  // runs once they have returned; not if `prepare` is empty
  // Runs after a job that was queued has ended, on whichever thread ended it; not for refused ones.
  std::function<void(const std::shared_ptr<Job>&)> on_ended;
  // Checks a device, through one of its slots, on a worker's thread: once it has been idle for
  // `probe_every`, and after a job on it failed with INTERNAL, before it takes the next one.
  // UNAVAILABLE/DEVICE_LOST loses the device. Empty: no checks.
  std::function<absl::Status(size_t device, size_t slot)> probe;
  std::chrono::milliseconds probe_every{10'000};
  // How long jobs (by their predictions), prepare and probe (by the floor) may be silent before
  // their devices are lost.
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
    int64_t paused = 0;  // the part of `running` that is paused
    double eta_ms = 0;   // until the busiest device has run all present jobs
    bool draining = false;
    Dispatcher::ClassLoad classes[kPriorities];
    std::vector<Dispatcher::Ratio> ratios;
    std::map<std::string, double> taken_ms;  // as Dispatcher::TakenMs
  };

  struct RunningJob {
    std::shared_ptr<Job> job;
    double predicted_ms = 0;  // its whole run, corrected by what others took
  };
  struct QueuedJob {
    std::shared_ptr<Job> job;
    double predicted_ms = 0;
    Place place;  // in a long queue as it was up to PlacesLast() ago
  };
  struct Jobs {
    std::vector<RunningJob> running;  // paused ones, too
    std::vector<QueuedJob> queued;    // the first to start
  };

  explicit Scheduler(SchedulerOptions options);
  // Stops what is left (kDrain) and waits for the workers, also endlessly for one that hangs
  // (hangs()).
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues `job` (QUEUED, submitted once); tenant and priority of `work` are set from the job.
  // Errors, with which the job has then ended, too: those of Dispatcher::Admit;
  // UNAVAILABLE/DRAINING; those of AdmitDetached if it is detached. A job that was told to stop
  // before ends at once: OK.
  absl::Status Submit(std::shared_ptr<Job> job, Work work, JobWork run);

  // Returns RESOURCE_EXHAUSTED/TOO_MANY_DETACHED (limit) if the tenant has as many detached jobs
  // queued or running as it may have.
  absl::Status AdmitDetached(const std::string& tenant) const;

  // Returns the job's place; none if it is not queued. In a long queue the place is up to
  // Dispatcher::PlacesLast() old.
  std::optional<Place> Where(const Job& job) const;
  Load load() const;
  // Returns the wait of a small job that this tenant would send now, on the device that takes it
  // first.
  double WaitMs(const std::string& tenant) const;
  Jobs jobs(size_t max_queued) const;
  // Returns the devices that are not lost.
  DeviceMask healthy() const;
  // Returns OK, or the error by which the device was lost.
  absl::Status DeviceStatus(size_t device) const;
  // Returns true once all devices are prepared.
  bool prepared() const;
  // Returns true if a worker hangs and has not come back since: its thread cannot be joined.
  bool hangs() const;

  // Refuses every Submit from now on (UNAVAILABLE/DRAINING). Queued jobs that are not predicted to
  // start before `deadline` fail likewise at once; the others run. Thread-safe; may be called again
  // with another deadline.
  void StartDrain(TimePoint deadline);
  // Starts the drain and waits until nothing is queued or running; from `deadline` on stops what is
  // left (kDrain) and waits up to stop_grace for that. False: something is still running even so.
  bool Drain(TimePoint deadline);

 private:
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace spaid::server
