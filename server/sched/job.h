// A piece of work that somebody may wait for: its state, its numbered events, how to stop it.
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
#include "server/sched/job_log.h"
#include "server/sched/priority.h"
#include "spaid/v1/job.pb.h"

namespace spaid::server {

class Job;

// Why a job was told to stop; the first cause wins.
enum class StopCause {
  kNone = 0,
  kCancelled,  // CancelJob
  kAbandoned,  // its last waiter left, and it was not detached
  kMaxQueue,
  kMaxRun,
  kDeadline,  // of its most patient waiter
  kDrain,
  kHung,  // it shows no sign of life: its device is lost
};

// The error that a job stopped so ends with (OK for kNone).
absl::Status StopError(StopCause cause);

// Names in logs and metrics: "queued", "build", "solve", "max_run".
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
  std::string preconditioner;  // handle, of a solve that names one
  Priority priority = Priority::kNormal;
  // For people, who may see it when the matrix is gone.
  std::string what = {};   // "static-spai", "cg + jacobi"
  std::string label = {};  // of the matrix
  int64_t n = 0, nnz = 0;  // of the matrix
};

// What a job leaves behind for its waiters (a solution, a stored preconditioner). Derived by
// whoever makes the work.
class JobResult {
 public:
  virtual ~JobResult() = default;
  virtual int64_t bytes() const { return 0; }  // of the budget of right-hand sides
};

// Somebody wants the job, as urgently as the class says that they attached in. When the last of
// these dies, an unfinished job that is not detached is stopped (kAbandoned), and the result of an
// ended one is let go, but for a solve's that is kept for WatchJob (Job::Delivered). Movable; may
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

// Ends a subscription when it dies. A callback that is running then finishes on its own thread:
// what it captures must be owned (shared_ptr or weak_ptr).
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

// A piece of the log.
struct JobEvents {
  std::vector<v1::JobEvent> events;  // numbers from the one asked for, without gaps
  int64_t next = 1;                  // ask for this one next
  bool end = false;  // the finished event is among them or before: nothing will follow
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  struct AttachOptions {
    bool detach = false;                // the job goes on when nobody waits any more
    std::optional<TimePoint> deadline;  // of this waiter; the job's is the latest of its waiters'
    std::optional<Priority> priority = {};  // of this waiter; none: as the description says
  };

  // State QUEUED, a fresh name ("jobs/…"). `clock` outlives the job.
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
  // Nothing where the job has ended or been told to stop: the caller needs another job.
  std::optional<JobWaiter> Attach(const AttachOptions& options);
  // `on_news` runs after every change from which events >= `first_event` can be read, on the thread
  // that made the change, and once at once where there are some already. It must be quick and must
  // not wait. Several calls for one event, and calls with nothing new, may happen.
  JobSubscription Subscribe(int64_t first_event, std::function<void()> on_news);
  // Events from number `from` (1 or less: the first) on, at most `max_events`.
  JobEvents Read(int64_t from, size_t max_events) const;
  // An event without a number that says how things stand. `position` and `eta_ms` are the caller's
  // (Scheduler::Where).
  v1::JobEvent Heartbeat(int64_t position, double eta_ms) const;
  // The job as GetJob shows it; `brief`: as ListJobs does, with one outcome of up to 1024.
  v1::Job Snapshot(bool brief = false) const;
  // JobLog::Curve of what it has reported.
  std::vector<JobLog::CurvePoint> Curve(int32_t rhs, size_t max_points) const;
  v1::JobState state() const;
  bool ended() const;
  // The highest of those who wait, or have detached it; the description's where nobody has yet.
  // Stays what it was when the job ended.
  Priority priority() const;
  bool detached() const;
  // The sum over the right-hand sides, where there are outcomes; else 0.
  int64_t iterations() const;
  // Why it failed or was cancelled; OK while it has not ended, or when it succeeded.
  absl::Status error() const;
  StopCause stop_cause() const;
  // Of a job that has ended after it was told to stop: where it was then, and how long it took.
  struct Stop {
    std::string stage;  // "queued", "started", "plan", "build", "assemble", "solve"
    std::string cause;  // "cancelled", "abandoned", "max_queue", ...
    std::chrono::nanoseconds took;
  };
  std::optional<Stop> stop() const;
  std::string preconditioner() const;  // handle, of a build once it is there
  v1::Timings timings() const;
  // What the work left; null before the end, on failure, and once it was let go.
  std::shared_ptr<const JobResult> result() const;
  // What can be read of the result while the work goes on; null: nothing, or the job has ended.
  std::shared_ptr<const JobResult> partial() const;
  // The stream that asked for the job has given out its whole result. Until then a solve's is kept
  // beyond the last waiter; of a detached job it is kept even so.
  void Delivered();
  // Lets go of a result that is kept for nobody in particular. Null where there is none, or where
  // a waiter or a reader holds it.
  std::shared_ptr<const JobResult> DropResult();
  // Bytes that log and outcomes hold. For retention.
  int64_t bytes() const;

  // --- Stopping ---
  // Queued: ends at once. Running: the stop hook is told. False: it has ended, or was told before.
  bool RequestStop(StopCause cause);

  // --- For the work, on the worker's thread (or under it) ---
  // Called with the cause when a stop is requested; at once if that has happened. Empty: none.
  // After the call with an empty hook returns, the old hook may still be running on another thread.
  void SetStopHook(std::function<void(StopCause)> hook);
  void ReportProgress(v1::Stage stage, int64_t done, int64_t total);
  void ReportResidual(int32_t rhs, int32_t iteration, double relative_residual);
  void ReportQuality(v1::BuildQuality quality);
  void SetPreconditioner(std::string handle);
  void SetOutcomes(std::vector<v1::RhsOutcome> outcomes);
  void SetResult(std::shared_ptr<const JobResult> result);
  void SetPartial(std::shared_ptr<const JobResult> partial);
  void TellPartial();  // there is more of it: calls all who are subscribed
  void UpdateTimings(const std::function<void(v1::Timings&)>& update);

  // --- For the scheduler ---
  // Whether progress or a residual was reported since the last call.
  bool TakeSignOfLife();
  // Told when a stop is requested, before the hook, and when the priority has changed. Set once.
  void SetListener(std::function<void()> listener);
  void ReportQueued(int64_t position, double eta_ms);
  // QUEUED -> RUNNING. False: it has been told to stop; it must be finished instead.
  // `devices`: all that it is split over, the one that runs it first.
  bool Start(const std::vector<std::string>& devices);
  // Ends it: SUCCEEDED where OK (but CANCELLED where an outcome says so); CANCELLED for
  // code CANCELLED; else FAILED. False: it had ended before.
  bool Finish(const absl::Status& status);
  // The latest deadline of its waiters, unless it is detached or one of them has none.
  std::optional<TimePoint> deadline() const;
  std::optional<TimePoint> started() const;
  std::chrono::nanoseconds QueueTime() const;  // until now, where it still waits
  std::chrono::nanoseconds RunTime() const;    // 0: never started

 private:
  friend class JobWaiter;
  friend class JobSubscription;
  using Callbacks = std::vector<std::shared_ptr<const std::function<void()>>>;

  Job(JobDescription description, JobLimits limits, const Clock& clock);
  void LeaveOne(Priority priority);
  void Unsubscribe(uint64_t id);
  Callbacks NewsLocked() const;
  v1::Job SnapshotLocked(bool brief) const;
  bool EndedLocked() const;
  void StopLocked(StopCause cause);
  bool UpdatePriorityLocked();
  bool KeepsResultLocked() const;

  const std::string name_;
  const JobDescription description_;
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
  mutable JobLog log_;  // reading may close a batch of residuals

  int64_t waiters_ = 0;
  int64_t waiters_of_[kPriorities] = {};  // of them, by class
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
