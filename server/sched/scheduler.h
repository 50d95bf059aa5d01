// Admission, the queue, the workers. FIFO over one worker per device.
//
//   Scheduler scheduler({.devices = {"cpu"}, .max_queued = 256, .clock = &RealClock()});
//   RETURN_IF_ERROR(scheduler.Submit(job, {.predicted_ms = 120, .host_bytes = 1 << 30},
//                                    [=](Job& j) { return Build(j, ...); }));
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

// What a job will take, as far as one knows.
struct JobEstimate {
  double predicted_ms = 0;
  int64_t host_bytes = 0;
  int64_t device_bytes = 0;
};

// Runs on a worker's thread of the device it is given. Honours the job's stop hook. The job ends
// with the status returned; a job that was told to stop ends with StopError(cause) unless this is
// OK.
using JobWork = std::function<absl::Status(Job& job, const std::string& device)>;

struct SchedulerOptions {
  std::vector<std::string> devices = {"cpu"};  // one worker thread each
  int64_t max_queued = 1024;
  std::chrono::milliseconds stop_grace{
      30'000};                        // Drain: for running work to notice that it must stop
  const Clock* clock = &RealClock();  // outlives the scheduler
  Metrics* metrics = nullptr;         // borrowed; may be null
  // Runs after a job that was queued has ended, on whichever thread ended it; not for refused ones.
  std::function<void(const std::shared_ptr<Job>&)> on_ended;
};

// Thread-safe.
class Scheduler {
 public:
  struct Place {
    int64_t position = 0;  // jobs ahead in the queue
    double eta_ms = 0;     // estimated time to start
  };
  struct Load {
    int64_t queued = 0, running = 0;
    double eta_ms = 0;  // estimated wait of a job sent now
    bool draining = false;
  };

  explicit Scheduler(SchedulerOptions options);
  // Stops what is left (kDrain) and waits for the workers.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues `job` (QUEUED, submitted once). Errors, after which the job has ended with them too:
  // RESOURCE_EXHAUSTED/QUEUE_FULL with a retry delay computed from the predicted time of what is
  // queued and running; UNAVAILABLE/DRAINING. A job that was told to stop before ends at once: OK.
  absl::Status Submit(std::shared_ptr<Job> job, const JobEstimate& estimate, JobWork work);

  // Nothing where the job is not queued.
  std::optional<Place> Where(const Job& job) const;
  Load load() const;

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
