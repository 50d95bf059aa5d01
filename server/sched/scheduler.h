// Admission, the queue, the workers. One worker per device; each takes the first job in the queue
// that may run on its device.
//
//   Scheduler scheduler({.devices = {"cpu", "gpu:0"}, .max_queued = 256});
//   RETURN_IF_ERROR(scheduler.Submit(job, {.predicted_ms = 120, .devices = DeviceBit(1)},
//                                    [=](Job& j, const std::string& device) { ... }));
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

namespace spaid::server {

class Job;
class Metrics;

// Devices that a job may run on: bit i is SchedulerOptions::devices[i].
using DeviceMask = uint64_t;
inline constexpr DeviceMask kAnyDevice = ~DeviceMask{0};
inline constexpr size_t kMaxDevices = 64;
constexpr DeviceMask DeviceBit(size_t device) { return DeviceMask{1} << device; }

// What a job will take, as far as one knows, and where it may run.
struct JobEstimate {
  double predicted_ms = 0;
  int64_t host_bytes = 0;
  int64_t device_bytes = 0;  // within the limit of a device that it may run on
  DeviceMask devices = kAnyDevice;
  DeviceMask fallback = 0;  // once all of `devices` are lost
};

// Runs on a worker's thread of the device it is given. Honours the job's stop hook. The job ends
// with the status returned; a job that was told to stop ends with StopError(cause) unless this is
// OK. UNAVAILABLE/DEVICE_LOST loses the device.
using JobWork = std::function<absl::Status(Job& job, const std::string& device)>;

struct SchedulerOptions {
  std::vector<std::string> devices = {"cpu"};  // one worker thread each; at most kMaxDevices
  int64_t max_queued = 1024;
  std::chrono::milliseconds stop_grace{
      30'000};                        // Drain: for running work to notice that it must stop
  const Clock* clock = &RealClock();  // outlives the scheduler
  Metrics* metrics = nullptr;         // borrowed; may be null
  // Runs after a job that was queued has ended, on whichever thread ended it; not for refused ones.
  std::function<void(const std::shared_ptr<Job>&)> on_ended;
  // A look at the device of a worker that has been idle for `probe_every`, on that worker's thread:
  // UNAVAILABLE/DEVICE_LOST loses the device. Empty: nobody looks.
  std::function<absl::Status(size_t device)> probe;
  std::chrono::milliseconds probe_every{10'000};
  // Runs once for each device that is lost, before the jobs that it costs end.
  std::function<void(size_t device, const absl::Status& why)> on_lost;
};

// Thread-safe.
class Scheduler {
 public:
  struct Place {
    int64_t position = 0;  // jobs ahead in the queue that may run on its devices
    double eta_ms = 0;     // estimated time to start
  };
  struct Load {
    int64_t queued = 0, running = 0;
    double eta_ms = 0;  // estimated wait of a job sent now, for the busiest device
    bool draining = false;
  };

  explicit Scheduler(SchedulerOptions options);
  // Stops what is left (kDrain) and waits for the workers.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues `job` (QUEUED, submitted once). Errors, after which the job has ended with them too:
  // RESOURCE_EXHAUSTED/QUEUE_FULL with a retry delay computed from the predicted time of what is
  // queued and running; UNAVAILABLE/DRAINING; UNAVAILABLE/DEVICE_LOST where no device is left that
  // may run it. A job that was told to stop before ends at once: OK.
  absl::Status Submit(std::shared_ptr<Job> job, const JobEstimate& estimate, JobWork work);

  // Nothing where the job is not queued.
  std::optional<Place> Where(const Job& job) const;
  Load load() const;
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
