#include "server/sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/guard.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/sched/job.h"

namespace spaid::server {
namespace {

// Weight of a new measurement of actual over predicted time, in the logarithm: the ratios of one
// machine scatter by factors.
constexpr double kRatioWeight = 0.25;
constexpr double kMinPredictedMs = 0.1;  // under this, the measured ratio is overhead and noise
constexpr std::chrono::milliseconds kMinRetry{100}, kMaxRetry{60'000};

}  // namespace

// Lock order: this class's, then a job's. Jobs call back without theirs.
class Scheduler::Core : public std::enable_shared_from_this<Scheduler::Core> {
 public:
  explicit Core(SchedulerOptions options)
      : options_(std::move(options)),
        running_(options_.devices.size()),
        lost_(options_.devices.size()),
        healthy_(options_.devices.size() >= kMaxDevices ? kAnyDevice
                                                        : DeviceBit(options_.devices.size()) - 1),
        ratios_(options_.devices.size()) {}

  void StartThreads() {
    for (size_t i = 0; i < options_.devices.size(); ++i) {
      threads_.emplace_back([this, i] { Work(i); });
    }
    threads_.emplace_back([this] { KeepTime(); });
  }

  void StopThreads() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_cv_.notify_all();
    timer_cv_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Submit(std::shared_ptr<Job> job, const JobEstimate& estimate, JobWork work);
  std::optional<Place> Where(const Job& job) const;
  Load load() const;
  DeviceMask healthy() const {
    std::lock_guard lock(mutex_);
    return healthy_;
  }
  absl::Status DeviceStatus(size_t device) const {
    std::lock_guard lock(mutex_);
    return lost_.at(device);
  }
  void StartDrain(TimePoint deadline);
  bool Drain(TimePoint deadline);
  void StopAll();

 private:
  struct Queued {
    std::shared_ptr<Job> job;
    JobEstimate estimate;
    JobWork work;
    int64_t told_position;
  };
  struct Running {
    std::shared_ptr<Job> job;  // null: the worker is idle
    double predicted_ms = 0;
    TimePoint since;
    bool told_to_stop = false;
  };
  struct News {  // a queue position worth telling
    std::shared_ptr<Job> job;
    int64_t position;
    double eta_ms;
  };

  // Actual over predicted time on one device: of builds, of solves.
  struct Ratio {
    double value[2] = {1, 1};
    bool measured[2] = {false, false};
  };
  // When each device is through with what runs and with the jobs put on it, in milliseconds.
  struct Timeline {
    std::vector<double> free_at;
    // The device among `devices`, of which there is one, that is free first.
    size_t First(DeviceMask devices) const;
  };

  TimePoint Now() const { return options_.clock->Now(); }
  static size_t KindIndex(const Job& job) { return job.kind() == v1::JOB_KIND_SOLVE ? 1 : 0; }
  double CorrectedMs(const Job& job, double predicted_ms, size_t device) const {
    return std::max(predicted_ms, kMinPredictedMs) * ratios_[device].value[KindIndex(job)];
  }
  bool IdleLocked() const {
    return queue_.empty() && finishing_ == 0 &&
           std::none_of(running_.begin(), running_.end(), [](const Running& r) { return r.job; });
  }
  Timeline RunningLocked() const;
  // Puts a queued job where it will run; the milliseconds until it starts.
  double Put(const Queued& queued, Timeline* timeline) const;
  double EtaLocked(size_t ahead, DeviceMask devices) const;
  int64_t PositionLocked(size_t ahead, DeviceMask devices) const;
  absl::Status AdmitLocked(JobEstimate* estimate) const;
  std::vector<News> MovedUpLocked();
  std::deque<Queued>::iterator NextLocked(size_t worker);
  bool AwaitJobLocked(size_t worker, std::unique_lock<std::mutex>& lock);
  void Lose(size_t device, const absl::Status& why);
  void OnStop(const Job* job, StopCause cause);
  void End(const std::shared_ptr<Job>& job, const absl::Status& status);
  void Work(size_t worker);
  void Learn(size_t worker, const Job& job, double predicted_ms, std::chrono::nanoseconds took);
  void KeepTime();

  const SchedulerOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable work_cv_, timer_cv_, idle_cv_;
  std::deque<Queued> queue_;
  std::vector<Running> running_;
  int64_t finishing_ = 0;  // jobs that left queue_ or running_ and are being ended
  bool draining_ = false, stopping_ = false;
  std::vector<absl::Status> lost_;  // of each device: OK while it works
  DeviceMask healthy_;
  std::vector<Ratio> ratios_;  // of each device
  std::vector<std::thread> threads_;
};

size_t Scheduler::Core::Timeline::First(DeviceMask devices) const {
  size_t first = free_at.size();
  for (size_t d = 0; d < free_at.size(); ++d) {
    if ((devices & DeviceBit(d)) == 0) continue;
    if (first == free_at.size() || free_at[d] < free_at[first]) first = d;
  }
  return first;
}

Scheduler::Core::Timeline Scheduler::Core::RunningLocked() const {
  const TimePoint now = Now();
  Timeline timeline{std::vector<double>(running_.size())};
  for (size_t d = 0; d < running_.size(); ++d) {
    const Running& running = running_[d];
    if (!running.job) continue;
    timeline.free_at[d] = std::max(
        0.0, CorrectedMs(*running.job, running.predicted_ms, d) - ToMs(now - running.since));
  }
  return timeline;
}

double Scheduler::Core::Put(const Queued& queued, Timeline* timeline) const {
  const size_t device = timeline->First(queued.estimate.devices & healthy_);
  if (device == timeline->free_at.size()) return 0;  // it is about to fail
  const double start = timeline->free_at[device];
  timeline->free_at[device] += CorrectedMs(*queued.job, queued.estimate.predicted_ms, device);
  return start;
}

// Time until a job for `devices` with `ahead` jobs before it starts: each goes to the device that
// is free first among its own.
double Scheduler::Core::EtaLocked(size_t ahead, DeviceMask devices) const {
  Timeline timeline = RunningLocked();
  for (size_t i = 0; i < ahead && i < queue_.size(); ++i) Put(queue_[i], &timeline);
  const size_t device = timeline.First(devices & healthy_);
  return device == timeline.free_at.size() ? 0 : timeline.free_at[device];
}

int64_t Scheduler::Core::PositionLocked(size_t ahead, DeviceMask devices) const {
  return std::count_if(
      queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(ahead),
      [&](const Queued& queued) { return (queued.estimate.devices & devices & healthy_) != 0; });
}

// Moves `estimate` to its fallback where its devices are lost.
absl::Status Scheduler::Core::AdmitLocked(JobEstimate* estimate) const {
  if (draining_) return StopError(StopCause::kDrain);
  if ((estimate->devices & healthy_) == 0) {
    const size_t wanted = Timeline{std::vector<double>(lost_.size())}.First(estimate->devices);
    estimate->devices = std::exchange(estimate->fallback, 0);
    if ((estimate->devices & healthy_) == 0) {
      return wanted < lost_.size() ? lost_[wanted]
                                   : absl::InternalError("a job that no device may run");
    }
  }
  if (static_cast<int64_t>(queue_.size()) < options_.max_queued) return absl::OkStatus();
  // Half of the backlog: by then half of the queue is free, so that those who were refused do not
  // come back all at once for a single place.
  const auto retry = std::clamp(std::chrono::milliseconds(static_cast<int64_t>(
                                    EtaLocked(queue_.size(), estimate->devices) / 2)),
                                kMinRetry, kMaxRetry);
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kQueueFull,
                   absl::StrCat("the queue holds ", queue_.size(),
                                " jobs, which is its limit (--max-queued-jobs); try again in ",
                                retry.count(), " ms"))
      .Meta("limit", options_.max_queued)
      .Retry(retry);
}

absl::Status Scheduler::Core::Submit(std::shared_ptr<Job> job, const JobEstimate& wanted,
                                     JobWork work) {
  JobEstimate estimate = wanted;
  absl::Status refused;
  int64_t position = 0;
  double eta_ms = 0;
  {
    std::lock_guard lock(mutex_);
    refused = AdmitLocked(&estimate);
    position = PositionLocked(queue_.size(), estimate.devices);
    eta_ms = EtaLocked(queue_.size(), estimate.devices);
  }
  if (options_.metrics) options_.metrics->JobSubmitted(JobKindName(job->kind()));
  if (refused.ok()) {
    // Before it is in the queue, so that this is its first event even where a worker takes it at
    // once.
    job->ReportQueued(position, eta_ms);
    job->SetStopListener([core = weak_from_this(), raw = job.get()](StopCause cause) {
      if (const auto alive = core.lock()) alive->OnStop(raw, cause);
    });
    std::lock_guard lock(mutex_);
    refused = AdmitLocked(&estimate);
    if (refused.ok()) queue_.push_back({job, estimate, std::move(work), position});
  }
  if (!refused.ok()) {
    const std::string why = ReasonOf(refused);
    if (options_.metrics) options_.metrics->JobRefused(JobKindName(job->kind()), why);
    Log(LogLevel::kWarning, "job_refused",
        {{"job", job->name()}, {"tenant", job->tenant()}, {"reason", why}});
    job->Finish(refused);
    return refused;
  }
  Log(LogLevel::kDebug, "job_queued",
      {{"job", job->name()},
       {"tenant", job->tenant()},
       {"kind", JobKindName(job->kind())},
       {"position", position},
       {"eta_ms", eta_ms},
       {"predicted_ms", estimate.predicted_ms}});
  work_cv_.notify_all();  // one of them may run it
  timer_cv_.notify_one();
  // Told to stop before the listener was set: nobody else takes it from the queue early.
  if (const StopCause cause = job->stop_cause(); cause != StopCause::kNone)
    OnStop(job.get(), cause);
  return absl::OkStatus();
}

// Takes a job that was told to stop out of the queue and ends it. One that a worker has taken
// already is the worker's to end.
void Scheduler::Core::OnStop(const Job* job, StopCause cause) {
  Queued taken;
  std::vector<News> news;
  {
    std::lock_guard lock(mutex_);
    const auto it = std::find_if(queue_.begin(), queue_.end(),
                                 [&](const Queued& queued) { return queued.job.get() == job; });
    if (it == queue_.end()) return;
    taken = std::move(*it);
    queue_.erase(it);
    ++finishing_;
    news = MovedUpLocked();
  }
  taken.work = nullptr;  // what it holds (right-hand sides, matrices) is free before anyone is told
  End(taken.job, StopError(cause));
  for (const News& moved : news) moved.job->ReportQueued(moved.position, moved.eta_ms);
}

// Ends a job that counts in finishing_.
void Scheduler::Core::End(const std::shared_ptr<Job>& job, const absl::Status& status) {
  if (job->Finish(status)) {
    const std::string why = status.ok() ? "" : ReasonOf(status);
    const double queue_s = ToMs(job->QueueTime()) / 1e3, run_s = ToMs(job->RunTime()) / 1e3;
    const auto state = JobStateName(job->state());
    if (options_.metrics) {
      options_.metrics->JobEnded(JobKindName(job->kind()), state, why, queue_s, run_s);
    }
    Log(status.ok() ? LogLevel::kInfo : LogLevel::kWarning, "job_ended",
        {{"job", job->name()},
         {"tenant", job->tenant()},
         {"kind", JobKindName(job->kind())},
         {"state", state},
         {"reason", why},
         {"queue_ms", queue_s * 1e3},
         {"run_ms", run_s * 1e3},
         {"matrix", job->matrix()},
         {"error", std::string(status.message())}});
    if (options_.on_ended) options_.on_ended(job);
  }
  std::lock_guard lock(mutex_);
  --finishing_;
  if (IdleLocked()) idle_cv_.notify_all();
}

// Positions are told again when they have halved: log2(position) events a job, however long the
// queue.
std::vector<Scheduler::Core::News> Scheduler::Core::MovedUpLocked() {
  std::vector<News> news;
  Timeline timeline = RunningLocked();
  std::vector<std::pair<DeviceMask, int64_t>> before;  // jobs by where they may run: few kinds
  for (Queued& queued : queue_) {
    const DeviceMask devices = queued.estimate.devices & healthy_;
    int64_t position = 0;
    auto own = before.end();
    for (auto it = before.begin(); it != before.end(); ++it) {
      if ((it->first & devices) != 0) position += it->second;
      if (it->first == devices) own = it;
    }
    if (own == before.end()) {
      before.emplace_back(devices, 1);
    } else {
      ++own->second;
    }
    const double eta_ms = Put(queued, &timeline);
    if (position <= queued.told_position / 2 && position < queued.told_position) {
      queued.told_position = position;
      news.push_back({queued.job, position, eta_ms});
    }
  }
  return news;
}

void Scheduler::Core::Learn(size_t worker, const Job& job, double predicted_ms,
                            std::chrono::nanoseconds took) {
  const size_t kind = KindIndex(job);
  Ratio& ratio = ratios_[worker];
  const double measured =
      std::clamp(ToMs(took) / std::max(predicted_ms, kMinPredictedMs), 1e-3, 1e3);
  double& value = ratio.value[kind];
  value = ratio.measured[kind] ? value * std::pow(measured / value, kRatioWeight) : measured;
  ratio.measured[kind] = true;
}

std::deque<Scheduler::Core::Queued>::iterator Scheduler::Core::NextLocked(size_t worker) {
  const DeviceMask own = DeviceBit(worker) & healthy_;
  return std::find_if(queue_.begin(), queue_.end(),
                      [own](const Queued& queued) { return (queued.estimate.devices & own) != 0; });
}

// Waits for a job that `worker` may run, and looks at its device now and then. False: there will be
// none.
bool Scheduler::Core::AwaitJobLocked(size_t worker, std::unique_lock<std::mutex>& lock) {
  TimePoint look = Now() + options_.probe_every;
  while (NextLocked(worker) == queue_.end()) {
    if (stopping_) return false;
    const bool looks = options_.probe && lost_[worker].ok();
    if (looks && Now() >= look) {
      lock.unlock();
      const absl::Status status = Guarded("the probe", [&] { return options_.probe(worker); });
      if (ReasonOf(status) == reason::kDeviceLost) Lose(worker, status);
      lock.lock();
      look = Now() + options_.probe_every;
      continue;
    }
    options_.clock->Wait(work_cv_, lock, looks ? std::optional(look) : std::nullopt);
  }
  return true;
}

void Scheduler::Core::Lose(size_t device, const absl::Status& why) {
  std::vector<Queued> orphans;
  std::vector<News> news;
  {
    std::lock_guard lock(mutex_);
    if (!lost_[device].ok()) return;
    lost_[device] = why;
    healthy_ &= ~DeviceBit(device);
    std::deque<Queued> kept;
    for (Queued& queued : queue_) {
      JobEstimate& estimate = queued.estimate;
      if ((estimate.devices & healthy_) == 0) {
        estimate.devices = std::exchange(estimate.fallback, 0);
      }
      const bool runs = (estimate.devices & healthy_) != 0;
      if (runs) {
        kept.push_back(std::move(queued));
      } else {
        orphans.push_back(std::move(queued));
      }
    }
    queue_ = std::move(kept);
    finishing_ += static_cast<int64_t>(orphans.size());
    news = MovedUpLocked();
  }
  Log(LogLevel::kError, "device_lost",
      {{"device", options_.devices[device]},
       {"queued_jobs_failed", static_cast<int64_t>(orphans.size())},
       {"error", std::string(why.message())}});
  if (options_.on_lost) options_.on_lost(device, why);
  work_cv_.notify_all();  // what it would have run may be another's now
  for (Queued& orphan : orphans) {
    orphan.work = nullptr;
    End(orphan.job, why);
  }
  for (const News& moved : news) moved.job->ReportQueued(moved.position, moved.eta_ms);
}

void Scheduler::Core::Work(size_t worker) {
  const std::string& device = options_.devices[worker];
  for (;;) {
    Queued taken;
    std::vector<News> news;
    {
      std::unique_lock lock(mutex_);
      if (!AwaitJobLocked(worker, lock)) return;
      const auto next = NextLocked(worker);
      taken = std::move(*next);
      queue_.erase(next);
      running_[worker] = {taken.job, taken.estimate.predicted_ms, Now(), false};
      news = MovedUpLocked();
    }
    for (const News& moved : news) moved.job->ReportQueued(moved.position, moved.eta_ms);

    absl::Status status;
    const bool started = taken.job->Start(device);
    if (started) {
      // Under the lock: the timekeeper may be between its look at this job and its wait.
      { std::lock_guard lock(mutex_); }
      timer_cv_.notify_one();
      status = Guarded("the job", [&] { return taken.work(*taken.job, device); });
      taken.job->SetStopHook(nullptr);
      // First, so that who learns of the job's end finds the device marked.
      if (ReasonOf(status) == reason::kDeviceLost) Lose(worker, status);
    }
    const StopCause cause = taken.job->stop_cause();
    if (!started || (!status.ok() && cause != StopCause::kNone)) status = StopError(cause);
    taken.work = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (started && status.ok() && cause == StopCause::kNone) {
        Learn(worker, *taken.job, taken.estimate.predicted_ms, taken.job->RunTime());
      }
      running_[worker] = {};
      ++finishing_;
    }
    End(taken.job, status);
  }
}

void Scheduler::Core::KeepTime() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TimePoint now = Now();
    std::optional<TimePoint> next;
    std::vector<std::pair<std::shared_ptr<Job>, StopCause>> due;
    const auto consider = [&](const std::shared_ptr<Job>& job, TimePoint when, StopCause cause) {
      if (when <= now) {
        due.emplace_back(job, cause);
        return true;
      }
      if (!next || when < *next) next = when;
      return false;
    };
    for (const Queued& queued : queue_) {
      const Job& job = *queued.job;
      if (const auto limit = job.limits().max_queue) {
        if (consider(queued.job, job.created() + *limit, StopCause::kMaxQueue)) continue;
      }
      if (const auto deadline = job.deadline()) {
        consider(queued.job, *deadline, StopCause::kDeadline);
      }
    }
    for (Running& running : running_) {
      if (!running.job || running.told_to_stop) continue;
      const auto started = running.job->started();
      if (const auto limit = running.job->limits().max_run; limit && started) {
        if (consider(running.job, *started + *limit, StopCause::kMaxRun)) {
          running.told_to_stop = true;
          continue;
        }
      }
      if (const auto deadline = running.job->deadline()) {
        running.told_to_stop = consider(running.job, *deadline, StopCause::kDeadline);
      }
    }
    if (due.empty()) {
      options_.clock->Wait(timer_cv_, lock, next);
      continue;
    }
    lock.unlock();
    for (const auto& [job, cause] : due) job->RequestStop(cause);
    due.clear();
    lock.lock();
  }
}

std::optional<Scheduler::Place> Scheduler::Core::Where(const Job& job) const {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < queue_.size(); ++i) {
    if (queue_[i].job.get() != &job) continue;
    const DeviceMask devices = queue_[i].estimate.devices;
    return Place{PositionLocked(i, devices), EtaLocked(i, devices)};
  }
  return std::nullopt;
}

Scheduler::Load Scheduler::Core::load() const {
  std::lock_guard lock(mutex_);
  Load load;
  load.queued = static_cast<int64_t>(queue_.size());
  load.running = std::count_if(running_.begin(), running_.end(),
                               [](const Running& r) { return r.job != nullptr; });
  Timeline timeline = RunningLocked();
  for (const Queued& queued : queue_) Put(queued, &timeline);
  for (size_t d = 0; d < timeline.free_at.size(); ++d) {
    if (lost_[d].ok()) load.eta_ms = std::max(load.eta_ms, timeline.free_at[d]);
  }
  load.draining = draining_;
  return load;
}

void Scheduler::Core::StartDrain(TimePoint deadline) {
  std::vector<std::shared_ptr<Job>> late;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    const TimePoint now = Now();
    Timeline timeline = RunningLocked();
    for (const Queued& queued : queue_) {
      const Milliseconds eta(Put(queued, &timeline));
      if (deadline <= now || eta >= Milliseconds(deadline - now)) late.push_back(queued.job);
    }
  }
  for (const auto& job : late) job->RequestStop(StopCause::kDrain);
}

void Scheduler::Core::StopAll() {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    std::lock_guard lock(mutex_);
    for (const Queued& queued : queue_) jobs.push_back(queued.job);
    for (const Running& running : running_) {
      if (running.job) jobs.push_back(running.job);
    }
  }
  for (const auto& job : jobs) job->RequestStop(StopCause::kDrain);
}

bool Scheduler::Core::Drain(TimePoint deadline) {
  StartDrain(deadline);
  const auto wait_until = [&](TimePoint when) {
    std::unique_lock lock(mutex_);
    while (!IdleLocked() && Now() < when) options_.clock->Wait(idle_cv_, lock, when);
    return IdleLocked();
  };
  if (wait_until(deadline)) return true;
  StopAll();
  return wait_until(Now() + options_.stop_grace);
}

Scheduler::Scheduler(SchedulerOptions options) {
  core_ = std::make_shared<Core>(std::move(options));
  core_->StartThreads();
}

Scheduler::~Scheduler() {
  core_->StartDrain(TimePoint::min());
  core_->StopAll();
  core_->StopThreads();
}

absl::Status Scheduler::Submit(std::shared_ptr<Job> job, const JobEstimate& estimate,
                               JobWork work) {
  return core_->Submit(std::move(job), estimate, std::move(work));
}
std::optional<Scheduler::Place> Scheduler::Where(const Job& job) const { return core_->Where(job); }
Scheduler::Load Scheduler::load() const { return core_->load(); }
DeviceMask Scheduler::healthy() const { return core_->healthy(); }
absl::Status Scheduler::DeviceStatus(size_t device) const { return core_->DeviceStatus(device); }
void Scheduler::StartDrain(TimePoint deadline) { core_->StartDrain(deadline); }
bool Scheduler::Drain(TimePoint deadline) { return core_->Drain(deadline); }

}  // namespace spaid::server
