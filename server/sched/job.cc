#include "server/sched/job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/affinity.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

void Tell(const std::vector<std::shared_ptr<const std::function<void()>>>& watchers) {
  for (const auto& on_news : watchers) (*on_news)();
}

}  // namespace

absl::Status StopError(StopCause cause) {
  using absl::StatusCode;
  switch (cause) {
    case StopCause::kNone:
      break;
    case StopCause::kCancelled:
      return MakeError(StatusCode::kCancelled, reason::kCancelled, "the job was cancelled");
    case StopCause::kAbandoned:
      return MakeError(StatusCode::kCancelled, reason::kAbandoned,
                       "nobody waits for the job any more; ask for it with detach to have it go on "
                       "without its stream");
    case StopCause::kMaxQueue:
      return MakeError(StatusCode::kDeadlineExceeded, reason::kMaxQueue,
                       "the job waited in the queue for longer than its limits.max_queue");
    case StopCause::kMaxRun:
      return MakeError(StatusCode::kDeadlineExceeded, reason::kMaxRun,
                       "the job ran for longer than its limits.max_run");
    case StopCause::kDeadline:
      return MakeError(StatusCode::kDeadlineExceeded, reason::kDeadline,
                       "the deadline of the call passed before the job had ended");
    case StopCause::kDrain:
      return MakeError(StatusCode::kUnavailable, reason::kDraining,
                       "the server is shutting down; send the request again, to another one")
          .Retry(std::chrono::seconds(1));
    case StopCause::kHung:
      return MakeError(StatusCode::kUnavailable, reason::kDeviceLost,
                       "the device that ran the job hangs; send the request again, to another one");
  }
  return absl::OkStatus();
}

std::string_view StopCauseName(StopCause cause) {
  switch (cause) {
    case StopCause::kNone:
      break;
    case StopCause::kCancelled:
      return "cancelled";
    case StopCause::kAbandoned:
      return "abandoned";
    case StopCause::kMaxQueue:
      return "max_queue";
    case StopCause::kMaxRun:
      return "max_run";
    case StopCause::kDeadline:
      return "deadline";
    case StopCause::kDrain:
      return "drain";
    case StopCause::kHung:
      return "hung";
  }
  return "none";
}

std::string_view StageName(v1::Stage stage) {
  switch (stage) {
    case v1::STAGE_PLAN:
      return "plan";
    case v1::STAGE_BUILD:
      return "build";
    case v1::STAGE_ASSEMBLE:
      return "assemble";
    case v1::STAGE_SOLVE:
      return "solve";
    default:
      return "started";  // nothing was reported yet
  }
}

std::string_view JobStateName(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_QUEUED:
      return "queued";
    case v1::JOB_STATE_RUNNING:
      return "running";
    case v1::JOB_STATE_SUCCEEDED:
      return "succeeded";
    case v1::JOB_STATE_FAILED:
      return "failed";
    case v1::JOB_STATE_CANCELLED:
      return "cancelled";
    default:
      return "unspecified";
  }
}

v1::Priority ToProto(Priority priority) {
  switch (priority) {
    case Priority::kInteractive:
      return v1::PRIORITY_INTERACTIVE;
    case Priority::kNormal:
      return v1::PRIORITY_NORMAL;
    case Priority::kBulk:
      return v1::PRIORITY_BULK;
  }
  return v1::PRIORITY_UNSPECIFIED;
}

std::string_view JobKindName(v1::JobKind kind) {
  switch (kind) {
    case v1::JOB_KIND_BUILD:
      return "build";
    case v1::JOB_KIND_SOLVE:
      return "solve";
    default:
      return "unspecified";
  }
}

// --- Handles on a job ---

JobWaiter& JobWaiter::operator=(JobWaiter&& other) noexcept {
  if (this != &other) {
    Leave();
    job_ = std::exchange(other.job_, nullptr);
    priority_ = other.priority_;
  }
  return *this;
}

void JobWaiter::Leave() {
  if (const auto job = std::exchange(job_, nullptr)) job->LeaveOne(priority_);
}

JobSubscription::JobSubscription(JobSubscription&& other) noexcept
    : job_(std::move(other.job_)), id_(std::exchange(other.id_, 0)) {}

JobSubscription& JobSubscription::operator=(JobSubscription&& other) noexcept {
  if (this != &other) {
    Cancel();
    job_ = std::move(other.job_);
    id_ = std::exchange(other.id_, 0);
  }
  return *this;
}

void JobSubscription::Cancel() {
  if (id_ == 0) return;
  if (const auto job = job_.lock()) job->Unsubscribe(id_);
  job_.reset();
  id_ = 0;
}

// --- The job ---

std::shared_ptr<Job> Job::Create(JobDescription description, JobLimits limits, const Clock& clock) {
  return std::shared_ptr<Job>(new Job(std::move(description), limits, clock));
}

Job::Job(JobDescription description, JobLimits limits, const Clock& clock)
    : name_(description.name.empty() ? NewHandle("jobs/", AffinityOf(description.matrix))
                                     : description.name),
      description_(std::move(description)),
      limits_(limits),
      clock_(clock),
      created_(clock.Now()),
      created_wall_(clock.WallNow()),
      preconditioner_(description_.preconditioner),
      log_(created_wall_, created_),
      priority_(description_.priority) {}

bool Job::EndedLocked() const {
  return state_ != v1::JOB_STATE_QUEUED && state_ != v1::JOB_STATE_RUNNING;
}

Job::Callbacks Job::NewsLocked() const {
  Callbacks callbacks;
  callbacks.reserve(watchers_.size());
  for (const Watcher& watcher : watchers_) callbacks.push_back(watcher.on_news);
  return callbacks;
}

std::optional<JobWaiter> Job::Attach(const AttachOptions& options) {
  std::function<void()> listener;
  const Priority priority = options.priority.value_or(description_.priority);
  {
    std::lock_guard lock(mutex_);
    if (EndedLocked() || stop_cause_ != StopCause::kNone) return std::nullopt;
    ++waiters_;
    ++waiters_of_[static_cast<size_t>(priority)];
    if (options.detach) detached_ = detached_as_[static_cast<size_t>(priority)] = true;
    if (!options.deadline) {
      patient_ = true;
    } else if (!deadline_ || *options.deadline > *deadline_) {
      deadline_ = options.deadline;
    }
    if (UpdatePriorityLocked()) listener = listener_;
  }
  if (listener) listener();
  return JobWaiter(shared_from_this(), priority);
}

bool Job::UpdatePriorityLocked() {
  for (size_t p = 0; p < kPriorities; ++p) {
    if (waiters_of_[p] == 0 && !detached_as_[p]) continue;
    const Priority before = std::exchange(priority_, static_cast<Priority>(p));
    return priority_ != before;
  }
  return false;
}

void Job::LeaveOne(Priority priority) {
  std::shared_ptr<const JobResult> result;  // dies after the lock is gone
  std::function<void()> listener;
  std::function<void(StopCause)> hook;
  {
    std::lock_guard lock(mutex_);
    --waiters_;
    --waiters_of_[static_cast<size_t>(priority)];
    if (EndedLocked()) {
      if (waiters_ == 0 && !KeepsResultLocked()) {
        result = std::move(result_);
        FulfilLocked();
      }
      return;
    }
    if (stop_cause_ != StopCause::kNone) return;
    if (waiters_ > 0 || detached_) {
      if (!UpdatePriorityLocked()) return;
    } else {
      // In the same breath: nobody can attach to a job that is about to be abandoned.
      StopLocked(StopCause::kAbandoned);
      hook = stop_hook_;
    }
    listener = listener_;
  }
  if (listener) listener();
  if (hook) hook(StopCause::kAbandoned);
}

void Job::StopLocked(StopCause cause) {
  stop_cause_ = cause;
  stop_requested_ = clock_.Now();
  stop_stage_ = state_ == v1::JOB_STATE_QUEUED ? JobStateName(state_) : StageName(stage_);
}

std::optional<Job::Stop> Job::stop() const {
  std::lock_guard lock(mutex_);
  if (stop_cause_ == StopCause::kNone || !ended_) return std::nullopt;
  return Stop{std::string(stop_stage_), std::string(StopCauseName(stop_cause_)),
              *ended_ - stop_requested_};
}

bool Job::RequestStop(StopCause cause) {
  std::function<void()> listener;
  std::function<void(StopCause)> hook;
  {
    std::lock_guard lock(mutex_);
    if (EndedLocked() || stop_cause_ != StopCause::kNone) return false;
    StopLocked(cause);
    listener = listener_;
    hook = stop_hook_;
  }
  if (listener) listener();
  if (hook) hook(cause);
  return true;
}

void Job::SetStopHook(std::function<void(StopCause)> hook) {
  StopCause cause;
  {
    std::lock_guard lock(mutex_);
    stop_hook_ = hook;
    cause = stop_cause_;
  }
  if (hook && cause != StopCause::kNone) hook(cause);
}

bool Job::TakeSignOfLife() {
  std::lock_guard lock(mutex_);
  return std::exchange(reported_, false);
}

void Job::SetListener(std::function<void()> listener) {
  std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

JobSubscription Job::Subscribe(int64_t first_event, std::function<void()> on_news) {
  auto callback = std::make_shared<const std::function<void()>>(std::move(on_news));
  bool now;
  uint64_t id;
  {
    std::lock_guard lock(mutex_);
    id = next_watcher_++;
    watchers_.push_back({id, callback});
    now = EndedLocked() || log_.size() >= first_event;
  }
  if (now) (*callback)();
  return JobSubscription(weak_from_this(), id);
}

void Job::Unsubscribe(uint64_t id) {
  std::shared_ptr<const std::function<void()>> dropped;  // what it captures dies after the lock
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(watchers_.begin(), watchers_.end(),
                               [&](const Watcher& w) { return w.id == id; });
  if (it == watchers_.end()) return;
  dropped = std::move(it->on_news);
  watchers_.erase(it);
}

JobEvents Job::Read(int64_t from, size_t max_events) const {
  std::lock_guard lock(mutex_);
  // Residuals that came long ago and wait for company are shown to whoever looks.
  if (!EndedLocked()) log_.Flush(clock_.Now(), /*only_if_due=*/true);
  JobEvents result;
  result.next = std::max<int64_t>(from, 1);
  while (result.next <= log_.size() && result.events.size() < max_events) {
    result.events.push_back(log_.Get(result.next++));
    v1::JobEvent& event = result.events.back();
    if (event.has_progress()) event.mutable_progress()->set_device(devices_[0]);
  }
  result.end = EndedLocked() && result.next > log_.size();
  return result;
}

v1::JobEvent Job::Heartbeat(int64_t position, double eta_ms) const {
  v1::JobEvent event;
  SetTime(clock_.WallNow(), event.mutable_time());
  auto* heartbeat = event.mutable_heartbeat();
  std::lock_guard lock(mutex_);
  heartbeat->set_state(state_);
  if (state_ == v1::JOB_STATE_QUEUED) {
    heartbeat->set_position(position);
    heartbeat->set_eta_ms(eta_ms);
  }
  return event;
}

v1::Job Job::SnapshotLocked(bool brief) const {
  v1::Job job;
  job.set_name(name_);
  job.set_kind(description_.kind);
  job.set_state(state_);
  job.set_detached(detached_);
  SetTime(created_wall_, job.mutable_create_time());
  if (started_wall_) SetTime(*started_wall_, job.mutable_start_time());
  if (ended_wall_) SetTime(*ended_wall_, job.mutable_end_time());
  job.set_matrix(description_.matrix);
  if (description_.trace != nullptr) job.set_trace_id(description_.trace->id);
  job.set_preconditioner(preconditioner_);
  if (!devices_.empty()) job.set_device(devices_[0]);
  if (devices_.size() > 1) job.mutable_devices()->Assign(devices_.begin(), devices_.end());
  job.set_priority(ToProto(priority_));
  job.set_stage(stage_);
  job.set_done(done_);
  job.set_total(total_);
  if (!error_.ok()) {
    job.mutable_error()->set_code(static_cast<int32_t>(error_.code()));
    job.mutable_error()->set_reason(ReasonOf(error_));
    job.mutable_error()->set_message(std::string(error_.message()));
  }
  job.set_outcome_count(static_cast<int64_t>(outcomes_.size()));
  if (!brief) {
    job.mutable_outcomes()->Assign(outcomes_.begin(), outcomes_.end());
  } else if (!outcomes_.empty()) {
    const auto failed = std::find_if(
        outcomes_.begin(), outcomes_.end(),
        [](const v1::RhsOutcome& outcome) { return outcome.outcome() != v1::OUTCOME_CONVERGED; });
    *job.add_outcomes() = failed != outcomes_.end() ? *failed : outcomes_.front();
  }
  job.set_event_count(log_.size());
  return job;
}

v1::Job Job::Snapshot(bool brief) const {
  std::lock_guard lock(mutex_);
  return SnapshotLocked(brief);
}

std::vector<JobLog::CurvePoint> Job::Curve(int32_t rhs, size_t max_points) const {
  std::lock_guard lock(mutex_);
  return log_.Curve(rhs, max_points);
}

std::vector<JobLog::Mark> Job::Marks(size_t max_marks) const {
  std::lock_guard lock(mutex_);
  return log_.Marks(max_marks);
}

Job::Times Job::times() const {
  std::lock_guard lock(mutex_);
  return {created_wall_, started_wall_, ended_wall_};
}

v1::JobState Job::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

bool Job::ended() const {
  std::lock_guard lock(mutex_);
  return EndedLocked();
}

Priority Job::priority() const {
  std::lock_guard lock(mutex_);
  return priority_;
}

bool Job::detached() const {
  std::lock_guard lock(mutex_);
  return detached_;
}

int64_t Job::iterations() const {
  std::lock_guard lock(mutex_);
  int64_t iterations = 0;
  for (const v1::RhsOutcome& outcome : outcomes_) iterations += outcome.iterations();
  return iterations;
}

absl::Status Job::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

StopCause Job::stop_cause() const {
  std::lock_guard lock(mutex_);
  return stop_cause_;
}

std::string Job::preconditioner() const {
  std::lock_guard lock(mutex_);
  return preconditioner_;
}

v1::Timings Job::timings() const {
  std::lock_guard lock(mutex_);
  return timings_;
}

std::shared_ptr<const JobResult> Job::result() const {
  std::lock_guard lock(mutex_);
  return EndedLocked() ? result_ : nullptr;
}

std::shared_ptr<const JobResult> Job::partial() const {
  std::lock_guard lock(mutex_);
  return partial_;
}

// A build's result is under its handle, and would be held in the store by a job that keeps it.
bool Job::KeepsResultLocked() const {
  return description_.kind == v1::JOB_KIND_SOLVE && (detached_ || !delivered_);
}

void Job::Delivered() {
  std::lock_guard lock(mutex_);
  delivered_ = true;
  FulfilLocked();
}

void Job::FulfilLocked() {
  if (promise_ != nullptr && stop_cause_ != StopCause::kDrain) {
    std::exchange(promise_, nullptr)->Fulfilled();
  }
}

void Job::Fulfil() {
  std::lock_guard lock(mutex_);
  FulfilLocked();
}

void Job::SetPromise(std::shared_ptr<JobPromise> promise) {
  std::lock_guard lock(mutex_);
  promise_ = std::move(promise);
  if (EndedLocked() && (result_ == nullptr || description_.kind == v1::JOB_KIND_BUILD)) {
    FulfilLocked();
  }
}

bool Job::promised() const {
  std::lock_guard lock(mutex_);
  return promise_ != nullptr;
}

std::shared_ptr<const JobResult> Job::DropResult() {
  std::lock_guard lock(mutex_);
  if (!EndedLocked() || waiters_ > 0 || result_.use_count() > 1) return nullptr;
  if (result_ != nullptr) FulfilLocked();
  return std::move(result_);
}

int64_t Job::bytes() const {
  std::lock_guard lock(mutex_);
  size_t bytes =
      sizeof(Job) + description_.label.size() + outcomes_.capacity() * sizeof(v1::RhsOutcome);
  for (const v1::RhsOutcome& outcome : outcomes_) {
    bytes += outcome.SpaceUsedLong() - sizeof(v1::RhsOutcome);
  }
  return static_cast<int64_t>(bytes) + log_.bytes();
}

// --- What the work reports ---

void Job::ReportQueued(int64_t position, double eta_ms) {
  Callbacks news;
  {
    std::lock_guard lock(mutex_);
    if (state_ != v1::JOB_STATE_QUEUED) return;
    v1::JobEvent event;
    event.mutable_queued()->set_job(name_);
    event.mutable_queued()->set_position(position);
    event.mutable_queued()->set_eta_ms(eta_ms);
    log_.Add(clock_.Now(), std::move(event));
    news = NewsLocked();
  }
  Tell(news);
}

bool Job::Start(const std::vector<std::string>& devices) {
  Callbacks news;
  {
    std::lock_guard lock(mutex_);
    if (state_ != v1::JOB_STATE_QUEUED || stop_cause_ != StopCause::kNone) return false;
    state_ = v1::JOB_STATE_RUNNING;
    started_ = clock_.Now();
    started_wall_ = clock_.WallNow();
    devices_ = devices;
    timings_.set_queue_ms(ToMs(*started_ - created_));
    v1::JobEvent event;
    event.mutable_started()->set_device(devices_[0]);
    event.mutable_started()->set_queue_ms(timings_.queue_ms());
    log_.Add(*started_, std::move(event));
    news = NewsLocked();
  }
  Tell(news);
  return true;
}

void Job::ReportProgress(v1::Stage stage, int64_t done, int64_t total) {
  Callbacks news;
  {
    std::lock_guard lock(mutex_);
    if (state_ != v1::JOB_STATE_RUNNING) return;
    reported_ = true;
    if (stage < stage_ || (stage == stage_ && done < done_)) return;
    stage_ = stage;
    done_ = done;
    total_ = total;
    if (log_.Progress(clock_.Now(), stage, done, total)) news = NewsLocked();
  }
  Tell(news);
}

void Job::ReportResidual(int32_t rhs, int32_t iteration, double relative_residual) {
  Callbacks news;
  {
    std::lock_guard lock(mutex_);
    if (state_ != v1::JOB_STATE_RUNNING) return;
    reported_ = true;
    if (log_.Residual(clock_.Now(), rhs, iteration, relative_residual)) news = NewsLocked();
  }
  Tell(news);
}

void Job::ReportQuality(v1::BuildQuality quality) {
  v1::JobEvent event;
  *event.mutable_quality() = std::move(quality);
  Report(std::move(event));
}

void Job::ReportRung(v1::Rung rung) {
  v1::JobEvent event;
  *event.mutable_rung() = std::move(rung);
  Report(std::move(event));
}

void Job::Report(v1::JobEvent event) {
  Callbacks news;
  {
    std::lock_guard lock(mutex_);
    if (state_ != v1::JOB_STATE_RUNNING) return;
    log_.Add(clock_.Now(), std::move(event));
    news = NewsLocked();
  }
  Tell(news);
}

void Job::SetWhat(std::string what) {
  std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

std::string Job::what() const {
  std::lock_guard lock(mutex_);
  return what_.empty() ? description_.what : what_;
}

void Job::SetPreconditioner(std::string handle) {
  std::lock_guard lock(mutex_);
  preconditioner_ = std::move(handle);
}

void Job::SetOutcomes(std::vector<v1::RhsOutcome> outcomes) {
  std::lock_guard lock(mutex_);
  if (EndedLocked()) return;  // it hung, and comes back late
  outcomes_ = std::move(outcomes);
}

void Job::SetResult(std::shared_ptr<const JobResult> result) {
  std::lock_guard lock(mutex_);
  if (EndedLocked()) return;
  std::swap(result_, result);
}

void Job::SetPartial(std::shared_ptr<const JobResult> partial) {
  std::lock_guard lock(mutex_);
  if (EndedLocked()) return;
  std::swap(partial_, partial);
}

void Job::TellPartial() {
  Callbacks news;
  {
    std::lock_guard lock(mutex_);
    news = NewsLocked();
  }
  Tell(news);
}

void Job::UpdateTimings(const std::function<void(v1::Timings&)>& update) {
  std::lock_guard lock(mutex_);
  if (EndedLocked()) return;
  update(timings_);
}

bool Job::Finish(const absl::Status& status) {
  Callbacks news;
  std::shared_ptr<const JobResult> result, partial;
  std::function<void()> listener;  // what they capture dies after the lock
  std::function<void(StopCause)> hook;
  {
    std::lock_guard lock(mutex_);
    if (EndedLocked()) return false;
    partial = std::move(partial_);
    error_ = status;
    if (status.ok()) {
      const bool cut_short = std::any_of(
          outcomes_.begin(), outcomes_.end(),
          [](const v1::RhsOutcome& outcome) { return outcome.outcome() == v1::OUTCOME_CANCELLED; });
      state_ = cut_short ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_SUCCEEDED;
    } else {
      state_ = status.code() == absl::StatusCode::kCancelled ? v1::JOB_STATE_CANCELLED
                                                             : v1::JOB_STATE_FAILED;
    }
    ended_ = clock_.Now();
    ended_wall_ = clock_.WallNow();
    if (!started_) timings_.set_queue_ms(ToMs(*ended_ - created_));
    timings_.set_total_ms(ToMs(*ended_ - created_));
    log_.Flush(*ended_, /*only_if_due=*/false);
    v1::JobEvent event;
    auto* finished = event.mutable_finished();
    *finished->mutable_job() = SnapshotLocked(/*brief=*/false);
    finished->mutable_job()->set_event_count(log_.size() + 1);
    *finished->mutable_timings() = timings_;
    log_.Add(*ended_, std::move(event));
    if (!status.ok() || (waiters_ == 0 && !KeepsResultLocked())) result = std::move(result_);
    const bool solved =
        state_ == v1::JOB_STATE_SUCCEEDED && description_.kind == v1::JOB_KIND_SOLVE;
    if (!solved || result_ == nullptr) FulfilLocked();
    listener = std::exchange(listener_, nullptr);
    hook = std::exchange(stop_hook_, nullptr);
    news = NewsLocked();
  }
  Tell(news);
  return true;
}

std::optional<TimePoint> Job::deadline() const {
  std::lock_guard lock(mutex_);
  if (detached_ || patient_) return std::nullopt;
  return deadline_;
}

std::optional<TimePoint> Job::started() const {
  std::lock_guard lock(mutex_);
  return started_;
}

std::chrono::nanoseconds Job::QueueTime() const {
  std::lock_guard lock(mutex_);
  if (started_) return *started_ - created_;
  return (ended_ ? *ended_ : clock_.Now()) - created_;
}

std::chrono::nanoseconds Job::RunTime() const {
  std::lock_guard lock(mutex_);
  if (!started_) return std::chrono::nanoseconds(0);
  return (ended_ ? *ended_ : clock_.Now()) - *started_;
}

}  // namespace spaid::server
