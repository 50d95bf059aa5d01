// The queue and its workers: runs jobs where and when Dispatcher says. One worker thread a lane of
// a device.
//
//   Scheduler scheduler({.dispatch = {.devices = {{.name = "cpu"}, {.name = "gpu:0"}}}});
//   RETURN_IF_ERROR(scheduler.Submit(job, {.predicted_ms = 120, .devices = DeviceBit(1)},
//                                    [=](Job& j, const Assignment& at) { ... at.device ... }));
//
// A device is lost when work on it, or a look at it while it is idle, says so: it takes no more
// work, and queued jobs that nothing else can run fail with the same error.
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

namespace spaid::server {

class Job;
class Metrics;

// Where a job runs: names of SchedulerOptions::dispatch.devices.
struct Assignment {
  std::string device;
  size_t lane = 0;                        // of the device: jobs of other lanes run beside
  std::vector<std::string> devices = {};  // all that it has, `device` first; several: split it
};

// Runs on a worker's thread of the device it is given. Honours the job's stop hook. The job ends
// with the status returned; a job that was told to stop ends with StopError(cause) unless this is
// OK. UNAVAILABLE/DEVICE_LOST loses the device.
using JobWork = std::function<absl::Status(Job& job, const Assignment& at)>;

struct SchedulerOptions {
  DispatcherOptions dispatch;
  std::chrono::milliseconds stop_grace{
      30'000};                        // Drain: for running work to notice that it must stop
  const Clock* clock = &RealClock();  // outlives the scheduler
  Metrics* metrics = nullptr;         // borrowed; may be null
  // Runs once for each device, at the start, on a worker's thread; no job starts before all have
  // come back: for what would else be measured amid somebody's job. Empty: there is nothing.
  std::function<void(size_t device)> prepare;
  // Runs after a job that was queued has ended, on whichever thread ended it; not for refused ones.
  std::function<void(const std::shared_ptr<Job>&)> on_ended;
  // A look at a device that has been idle for `probe_every`, on a worker's thread:
  // UNAVAILABLE/DEVICE_LOST loses the device. Empty: nobody looks.
  std::function<absl::Status(size_t device)> probe;
  std::chrono::milliseconds probe_every{10'000};
  // Runs once for each device that is lost, before the jobs that it costs end.
  std::function<void(size_t device, const absl::Status& why)> on_lost;
};

// Thread-safe.
class Scheduler {
 public:
  using Place = Dispatcher::Place;
  struct Load {
    int64_t queued = 0, running = 0;
    double eta_ms = 0;  // estimated wait of a job sent now, for the busiest device
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
    std::vector<RunningJob> running;  // as many as there are lanes, at the most
    std::vector<QueuedJob> queued;    // those that start first
  };

  explicit Scheduler(SchedulerOptions options);
  // Stops what is left (kDrain) and waits for the workers.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues `job` (QUEUED, submitted once); of `work`, tenant and priority are the job's. Errors,
  // after which the job has ended with them too: those of Dispatcher::Admit; UNAVAILABLE/DRAINING.
  // A job that was told to stop before ends at once: OK.
  absl::Status Submit(std::shared_ptr<Job> job, Work work, JobWork run);

  // Nothing where the job is not queued. Of a long queue as it was up to Dispatcher::PlacesLast()
  // ago.
  std::optional<Place> Where(const Job& job) const;
  Load load() const;
  Jobs jobs(size_t max_queued) const;
  // The devices that are not lost.
  DeviceMask healthy() const;
  // OK, or what the device was lost by.
  absl::Status DeviceStatus(size_t device) const;

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
