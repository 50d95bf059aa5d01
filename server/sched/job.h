// Represents work that somebody may wait for: its state, its numbered events, how to stop it.
//
//   auto job = Job::Create({.tenant = t, .kind = v1::JOB_KIND_BUILD}, limits, clock);
//   JobWaiter waiter = *job->Attach({.detach = false});  // while it lives, somebody wants the job
//   scheduler.Submit(job, estimate, work);
//   JobSubscription news = job->Subscribe(1, [weak] { ... schedule a Read on the stream ... });
//   JobEvents events = job->Read(next, 64);              // whenever there is news; never blocks
//
// States: QUEUED -> RUNNING -> SUCCEEDED | FAILED | CANCELLED; QUEUED -> FAILED | CANCELLED.
// Thread-safe. No callback runs while a lock of the job is held.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/base/trace.h"
#include "server/sched/job_log.h"
#include "server/sched/priority.h"
#include "spaid/v1/job.pb.h"

namespace spaid::server {

class Job;

// The cause for which a job was told to stop; the first one wins.
enum class StopCause {
  kNone = 0,
  kCancelled,  // CancelJob
  kAbandoned,  // its last waiter left, and it was not detached
  kMaxQueue,
  kMaxRun,
  kDeadline,  // the latest of its waiters' deadlines
  kDrain,
  kHung,  // it shows no sign of life: its device is lost
};

// Returns the error with which a job that was stopped for this cause ends (OK for kNone).
absl::Status StopError(StopCause cause);

// Return names for logs and metrics: "queued", "build", "solve", "max_run".
std::string_view StageName(v1::Stage stage);
std::string_view StopCauseName(StopCause cause);
std::string_view JobStateName(v1::JobState state);
std::string_view JobKindName(v1::JobKind kind);
v1::Priority ToProto(Priority priority);

struct JobLimits {
  std::optional<std::chrono::nanoseconds> max_queue, max_run;
};

struct JobDescription {
  std::string tenant;
  v1::JobKind kind = v1::JOB_KIND_UNSPECIFIED;
  std::string matrix;          // handle
  std::string preconditioner;  // handle, if a solve names one
  Priority priority = Priority::kNormal;
  // For people, also when the matrix is gone.
  std::string what = {};   // "static-spai", "cg + jacobi"
  std::string label = {};  // the matrix's
  int64_t n = 0, nnz = 0;  // the matrix's
  std::string name = {};   // that an earlier daemon gave it, or its promise has; empty: a fresh one
  TracePtr trace = {};     // of the call that made it
};

// A promise to the client that the job will be done, by this process or a later one. Thread-safe;
// quick.
class JobPromise {
 public:
  virtual ~JobPromise() = default;
  // Nobody needs it any more. May be called more than once. A job that ends without this call, as
  // the process does, is still promised.
  virtual void Fulfilled() = 0;
};

// The base of results that jobs leave for their waiters (a solution, a stored preconditioner).
class JobResult {
 public:
  virtual ~JobResult() = default;
  virtual int64_t bytes() const { return 0; }  // held in the budget of right-hand sides
};

// Represents somebody who wants the job, with the priority with which they attached. When the last
// one dies, an unfinished job that is not detached is stopped (kAbandoned), and the result of an
// ended one is released, except a solve's that is kept for WatchJob (Job::Delivered). Movable; may
// outlive everything else.
class JobWaiter {
 public:
  JobWaiter() = default;
  ~JobWaiter() { Leave(); }
  JobWaiter(JobWaiter&& other) noexcept
      : job_(std::exchange(other.job_, nullptr)), priority_(other.priority_) {}
  JobWaiter& operator=(JobWaiter&& other) noexcept;
  void Leave();
  explicit operator bool() const { return job_ != nullptr; }

 private:
  friend class Job;
  JobWaiter(std::shared_ptr<Job> job, Priority priority)
      : job_(std::move(job)), priority_(priority) {}
  std::shared_ptr<Job> job_;
  Priority priority_ = Priority::kNormal;
};

// Ends a subscription when it dies. A callback that is running then finishes on its own thread, so
// it must own what it captures (shared_ptr or weak_ptr).
class JobSubscription {
 public:
  JobSubscription() = default;
  ~JobSubscription() { Cancel(); }
  JobSubscription(JobSubscription&& other) noexcept;
  JobSubscription& operator=(JobSubscription&& other) noexcept;
  void Cancel();

 private:
  friend class Job;
  JobSubscription(std::weak_ptr<Job> job, uint64_t id) : job_(std::move(job)), id_(id) {}
  std::weak_ptr<Job> job_;
  uint64_t id_ = 0;
};

// A range of the log.
struct JobEvents {
  std::vector<v1::JobEvent> events;  // numbers from the one asked for, without gaps
  int64_t next = 1;                  // the number to ask for next
  bool end = false;  // the finished event is among them or before: nothing will follow
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  struct AttachOptions {
    bool detach = false;                    // the job goes on when nobody waits any more
    std::optional<TimePoint> deadline;      // this waiter's; the job's is the latest of them
    std::optional<Priority> priority = {};  // this waiter's; none: the description's
  };

  // Makes a job in state QUEUED with a fresh name ("jobs/…", with the affinity of its matrix).
  // `clock` outlives the job.
  static std::shared_ptr<Job> Create(JobDescription description, JobLimits limits,
                                     const Clock& clock);

  const std::string& name() const { return name_; }
  const std::string& tenant() const { return description_.tenant; }
  v1::JobKind kind() const { return description_.kind; }
  const JobDescription& description() const { return description_; }
  const std::string& matrix() const { return description_.matrix; }
  const JobLimits& limits() const { return limits_; }
  TimePoint created() const { return created_; }

  // --- Waiting ---
  // Adds a waiter; nullopt if the job has ended or been told to stop: the caller needs another job.
  std::optional<JobWaiter> Attach(const AttachOptions& options);
  // Calls `on_news` after every change that makes events >= `first_event` readable, on the thread
  // that made the change, and at once if there are some already. It must be quick and must not
  // wait. Several calls for one event, and calls with nothing new, may happen.
  JobSubscription Subscribe(int64_t first_event, std::function<void()> on_news);
  // Reads events from number `from` (1 or less: the first) on, at most `max_events`.
  JobEvents Read(int64_t from, size_t max_events) const;
  // Makes an event without a number that tells the current state. `position` and `eta_ms` are the
  // caller's (Scheduler::Where).
  v1::JobEvent Heartbeat(int64_t position, double eta_ms) const;
  // Returns the job as GetJob shows it; `brief`: as ListJobs does, with one outcome of up to 1024.
  v1::Job Snapshot(bool brief = false) const;
  // Returns JobLog::Curve of the residuals reported.
  std::vector<JobLog::CurvePoint> Curve(int32_t rhs, size_t max_points) const;
  // Returns JobLog::Marks of the residuals reported.
  std::vector<JobLog::Mark> Marks(size_t max_marks) const;
  // Returns when it was made, has started and has ended, as far as that has happened.
  struct Times {
    WallTime created;
    std::optional<WallTime> started, ended;
  };
  Times times() const;
  v1::JobState state() const;
  bool ended() const;
  // Returns the highest priority of those who wait, or have detached it; the description's while
  // nobody has. Unchanged after the job's end.
  Priority priority() const;
  bool detached() const;
  // Returns the iterations of all right-hand sides, once there are outcomes; else 0.
  int64_t iterations() const;
  // Returns the error with which it failed or was cancelled; OK if it has not ended or succeeded.
  absl::Status error() const;
  StopCause stop_cause() const;
  // How a job ended after it was told to stop: the stage it was in, and the time until its end.
  struct Stop {
    std::string stage;  // "queued", "started", "plan", "build", "assemble", "solve"
    std::string cause;  // "cancelled", "abandoned", "max_queue", ...
    std::chrono::nanoseconds took;
  };
  std::optional<Stop> stop() const;
  std::string preconditioner() const;  // a build's handle, once it exists
  v1::Timings timings() const;
  // Returns the result; null before the end, on failure, and once it was released.
  std::shared_ptr<const JobResult> result() const;
  // Returns the part of the result that can be read while the work goes on; null: there is none, or
  // the job has ended.
  std::shared_ptr<const JobResult> partial() const;
  // Keeps a promise until it is fulfilled: a build has ended, a solution was fetched (Delivered,
  // Fulfil) or is not kept any more, or the job has failed otherwise than by the end of the process
  // (kDrain). Call once.
  void SetPromise(std::shared_ptr<JobPromise> promise);
  bool promised() const;
  void Fulfil();
  // Notes that the stream that asked for the job has sent its whole result. Until then a solve's
  // result is kept beyond the last waiter; a detached job's is kept even afterwards.
  void Delivered();
  // Releases and returns a result that is kept for nobody in particular; null: there is none, or a
  // waiter or a reader holds it.
  std::shared_ptr<const JobResult> DropResult();
  // Returns the bytes that log and outcomes hold, for retention.
  int64_t bytes() const;

  // --- Stopping ---
  // Tells the job to stop: a queued one ends at once, a running one gets the stop hook called.
  // False: it has ended, or was told before.
  bool RequestStop(StopCause cause);

  // --- For the work, on the worker's thread (or under it) ---
  // Sets a hook that is called with the cause when a stop is requested; at once if that has
  // happened. Empty: none. The old hook may still be running on another thread when this returns.
  void SetStopHook(std::function<void(StopCause)> hook);
  void ReportProgress(v1::Stage stage, int64_t done, int64_t total);
  void ReportResidual(int32_t rhs, int32_t iteration, double relative_residual);
  void ReportQuality(v1::BuildQuality quality);
  void ReportRung(v1::Rung rung);
  // Says what it is at, in place of description().what.
  void SetWhat(std::string what);
  std::string what() const;
  void SetPreconditioner(std::string handle);
  void SetOutcomes(std::vector<v1::RhsOutcome> outcomes);
  void SetResult(std::shared_ptr<const JobResult> result);
  void SetPartial(std::shared_ptr<const JobResult> partial);
  void TellPartial();  // calls all subscribers: more of the partial result can be read
  void UpdateTimings(const std::function<void(v1::Timings&)>& update);

  // --- For the scheduler ---
  // Returns true if progress or a residual was reported since the last call.
  bool TakeSignOfLife();
  // Sets a callback for stop requests, before the stop hook, and changes of the priority. Call
  // once.
  void SetListener(std::function<void()> listener);
  void ReportQueued(int64_t position, double eta_ms);
  // Changes QUEUED to RUNNING. False: it has been told to stop and must be finished instead.
  // `devices`: all that it is split over, first the one that runs it.
  bool Start(const std::vector<std::string>& devices);
  // Ends the job: SUCCEEDED if OK (but CANCELLED if an outcome says so); CANCELLED for code
  // CANCELLED; else FAILED. False: it had ended before.
  bool Finish(const absl::Status& status);
  // Returns the latest deadline of its waiters; none if it is detached or a waiter has none.
  std::optional<TimePoint> deadline() const;
  std::optional<TimePoint> started() const;
  std::chrono::nanoseconds QueueTime() const;  // until now if it still waits
  std::chrono::nanoseconds RunTime() const;    // 0: never started

 private:
  friend class JobWaiter;
  friend class JobSubscription;
  using Callbacks = std::vector<std::shared_ptr<const std::function<void()>>>;

  Job(JobDescription description, JobLimits limits, const Clock& clock);
  void Report(v1::JobEvent event);  // while it runs
  void LeaveOne(Priority priority);
  void Unsubscribe(uint64_t id);
  Callbacks NewsLocked() const;
  v1::Job SnapshotLocked(bool brief) const;
  bool EndedLocked() const;
  void StopLocked(StopCause cause);
  bool UpdatePriorityLocked();
  bool KeepsResultLocked() const;
  void FulfilLocked();

  const std::string name_;
  const JobDescription description_;
  std::string what_;  // empty: as described
  const JobLimits limits_;
  const Clock& clock_;
  const TimePoint created_;
  const WallTime created_wall_;

  mutable std::mutex mutex_;
  v1::JobState state_ = v1::JOB_STATE_QUEUED;
  StopCause stop_cause_ = StopCause::kNone;
  TimePoint stop_requested_;  // where there is a cause
  std::string_view stop_stage_;
  std::optional<TimePoint> started_, ended_;
  std::optional<WallTime> started_wall_, ended_wall_;
  std::vector<std::string> devices_;
  std::string preconditioner_;
  v1::Stage stage_ = v1::STAGE_UNSPECIFIED;
  int64_t done_ = 0, total_ = 0;
  absl::Status error_;
  std::vector<v1::RhsOutcome> outcomes_;
  v1::Timings timings_;
  std::shared_ptr<const JobResult> result_, partial_;
  std::shared_ptr<JobPromise> promise_;  // null: none, or fulfilled
  mutable JobLog log_;                   // reading may close a batch of residuals

  int64_t waiters_ = 0;
  int64_t waiters_of_[kPriorities] = {};  // by class
  bool detached_as_[kPriorities] = {};
  Priority priority_;
  bool detached_ = false, delivered_ = false;
  bool patient_ = false;  // some waiter has no deadline
  std::optional<TimePoint> deadline_;
  std::function<void()> listener_;
  std::function<void(StopCause)> stop_hook_;
  bool reported_ = false;  // since TakeSignOfLife

  struct Watcher {
    uint64_t id;
    std::shared_ptr<const std::function<void()>> on_news;
  };
  std::vector<Watcher> watchers_;
  uint64_t next_watcher_ = 1;
};

}  // namespace spaid::server
