#include "server/sched/scheduler.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/guard.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/sched/job.h"
#include "server/sched/scheduler_core.h"

namespace spaid::server {
namespace {

// For LogTrace; it lives as long as the job.
const std::string* TraceIdOf(const Job& job) {
  const TracePtr& trace = job.description().trace;
  return trace != nullptr ? &trace->id : nullptr;
}

// Nobody knows when one of a tenant's detached jobs ends.
constexpr std::chrono::milliseconds kDetachedRetry{10'000};

}  // namespace

absl::Status Scheduler::Core::Submit(std::shared_ptr<Job> job, Work work, JobWork run) {
  work.tenant = job->tenant();
  work.priority = job->priority();
  const auto admit = [&]() -> absl::Status {
    if (draining_) return StopError(StopCause::kDrain);
    const TimePoint now = Now();
    std::optional<double> left_ms;
    if (const auto deadline = job->deadline()) left_ms = ToMs(*deadline - now);
    if (job->detached()) RETURN_IF_ERROR(AdmitDetachedLocked(job->tenant()));
    return dispatcher_.Admit(&work, left_ms, now);
  };
  absl::Status refused;
  Place place;
  {
    std::lock_guard lock(mutex_);
    work.id = next_id_++;
    refused = admit();
    if (refused.ok()) place = dispatcher_.PlaceOf(work, Now());
  }
  if (options_.metrics) options_.metrics->JobSubmitted(JobKindName(job->kind()));
  if (refused.ok()) {
    // Before it is in the queue, so that this is its first event even where a worker takes it at
    // once.
    job->ReportQueued(place.position, place.eta_ms);
    job->SetListener([core = weak_from_this(), raw = job.get()] {
      if (const auto alive = core.lock()) alive->OnChange(raw);
    });
    const auto max_queue = job->limits().max_queue;
    std::lock_guard lock(mutex_);
    work.priority = job->priority();  // somebody may have joined it
    refused = admit();
    if (refused.ok()) {
      if (max_queue) SetAlarmLocked(job, job->created() + *max_queue);
      SetAlarmLocked(job, job->deadline());
      queued_[work.id] = {job, std::move(run), place.position, place};
      ids_[job.get()] = work.id;
      dispatcher_.Push(work, Now());
      MovedLocked();
      DispatchLocked();
    }
  }
  if (!refused.ok()) {
    const LogTrace lines(TraceIdOf(*job));
    const std::string why = ReasonOf(refused);
    if (options_.metrics) options_.metrics->JobRefused(JobKindName(job->kind()), why);
    Log(LogLevel::kWarning, "job_refused",
        {{"job", job->name()}, {"tenant", job->tenant()}, {"reason", why}});
    job->Finish(refused);
    return refused;
  }
  const LogTrace lines(TraceIdOf(*job));
  Log(LogLevel::kDebug, "job_queued",
      {{"job", job->name()},
       {"tenant", job->tenant()},
       {"kind", JobKindName(job->kind())},
       {"position", place.position},
       {"eta_ms", place.eta_ms},
       {"predicted_ms", work.predicted_ms}});
  // Told to stop before the listener was set: nobody else takes it from the queue early.
  if (const StopCause cause = job->stop_cause(); cause != StopCause::kNone)
    OnStop(job.get(), cause);
  return absl::OkStatus();
}

void Scheduler::Core::Prepare(Worker& worker) {
  {
    std::lock_guard lock(mutex_);
    worker.preparing = true;
    WatchLocked(worker, nullptr, 0);
  }
  const absl::Status status =
      Guarded("the preparation of the device", [&] { return options_.prepare(worker.device); });
  if (!status.ok()) {
    Log(LogLevel::kWarning, "device_not_prepared",
        {{"device", rooms()[worker.device].name}, {"error", std::string(status.message())}});
  }
  if (ReasonOf(status) == reason::kDeviceLost) Lose(worker.device, status);
  {
    std::lock_guard lock(mutex_);
    hang_watch_.End(worker.index);
    worker.hung = false;
    if (!std::exchange(worker.preparing, false)) return;  // nobody has waited for it
    if (--preparing_ > 0) return;
    DispatchLocked();
  }
  if (options_.on_prepared) options_.on_prepared();
}

absl::Status Scheduler::Core::AdmitDetachedLocked(const std::string& tenant) const {
  const int64_t limit = options_.max_detached_per_tenant;
  if (limit <= 0) return absl::OkStatus();
  int64_t detached = 0;
  const auto count = [&](const std::shared_ptr<Job>& job) {
    if (job && job->tenant() == tenant && job->detached()) ++detached;
  };
  for (const auto& [id, queued] : queued_) count(queued.job);
  for (const auto& worker : workers_) {
    count(worker->running);
    if (worker->next) count(worker->next->job);
  }
  if (detached < limit) return absl::OkStatus();
  return MakeError(
             absl::StatusCode::kResourceExhausted, reason::kTooManyDetached,
             absl::StrCat("tenant '", tenant, "' has ", detached,
                          " detached jobs queued or running, which is its limit "
                          "(--max-detached-jobs-per-tenant); wait for one to end, cancel one, "
                          "or stay with this one's stream"))
      .Meta("limit", limit)
      .Retry(kDetachedRetry);
}

// Hands what can start to the workers.
void Scheduler::Core::DispatchLocked() {
  if (!stopping_ && preparing_ == 0) {
    for (const Dispatcher::Start& start : dispatcher_.Dispatch(Now())) BeginLocked(start);
  }
  TellOthersLocked();
}

void Scheduler::Core::TellOthersLocked() {
  others_wait_.store(dispatcher_.queued() + dispatcher_.paused() > 0, std::memory_order_relaxed);
}

void Scheduler::Core::BeginLocked(const Dispatcher::Start& start) {
  MovedLocked();
  const TimePoint turn_ends = dispatcher_.TurnEnds(start.id).value_or(TimePoint::max());
  const auto it = queued_.find(start.id);
  if (it == queued_.end()) {  // it was paused
    const auto own = std::find_if(workers_.begin(), workers_.end(), [&](const auto& worker) {
      return worker->paused && worker->running_id == start.id;
    });
    (*own)->paused = (*own)->no_slot = false;
    (*own)->turn_ends = turn_ends;
    (*own)->wake.notify_one();
    return;
  }
  Taken taken{start.id, std::move(it->second.job), std::move(it->second.run), {}, start.devices};
  queued_.erase(it);
  ids_.erase(taken.job.get());
  taken.at.device = rooms()[start.devices[0]].name;
  taken.at.slot = start.slot;
  for (const size_t d : start.devices) taken.at.devices.push_back(rooms()[d].name);
  Worker* const worker = FreeWorkerLocked(start.devices[0], start.slot);
  if (turn_ends != TimePoint::max()) taken.at.turn = worker;
  worker->turn_ends = turn_ends;
  worker->next = std::move(taken);
  worker->wake.notify_one();
}

// The worker of the slot, else any of the device that is idle. There is one: Yield has seen to it.
Scheduler::Core::Worker* Scheduler::Core::FreeWorkerLocked(size_t device, size_t slot) {
  Worker* found = nullptr;
  for (const auto& worker : workers_) {
    if (worker->device != device || worker->next || worker->running) continue;
    if (found == nullptr || worker->slot == slot) found = worker.get();
  }
  return found;
}

bool Scheduler::Core::StartThreadLocked(Worker* worker) {
  try {
    threads_.emplace_back([this, worker] { WorkLoop(*worker); });
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// The job's thread waits with all that it holds; another one takes its place in the slot.
void Scheduler::Core::Expect(Worker& worker, double more_ms) {
  std::lock_guard lock(mutex_);
  dispatcher_.Expect(worker.running_id, more_ms, Now());
}

void Scheduler::Core::Yield(Worker& worker) {
  std::vector<News> news;
  {
    std::unique_lock lock(mutex_);
    if (worker.running == nullptr) return;  // it hung, and was ended without its work
    const Job& job = *worker.running;
    if (stopping_ || !dispatcher_.DeviceStatus(worker.device).ok() ||
        job.stop_cause() != StopCause::kNone) {
      return;
    }
    int spare = -std::max(rooms()[worker.device].slots, 1);
    for (const auto& other : workers_) {
      if (other->device == worker.device && !other->no_slot) ++spare;
    }
    if (spare < 1) {
      workers_.push_back(
          std::make_unique<Worker>(*this, workers_.size(), worker.device, worker.slot));
      if (!StartThreadLocked(workers_.back().get())) {
        workers_.pop_back();
        worker.turn_ends = Now() + options_.dispatch.slice;
        return;
      }
    }
    worker.paused = worker.no_slot = true;
    dispatcher_.Pause(worker.running_id, Now());
    MovedLocked();
    DispatchLocked();
    news = PlaceLocked();
    while (worker.paused && job.stop_cause() == StopCause::kNone) {
      if (!news.empty()) {
        lock.unlock();
        Tell(std::exchange(news, {}));
        lock.lock();
        continue;
      }
      options_.clock->Wait(worker.wake, lock, std::nullopt);
    }
    if (worker.paused) {  // it was told to stop
      worker.paused = false;
      worker.turn_ends = TimePoint::max();
      dispatcher_.GoOn(worker.running_id);
      DispatchLocked();
    }
  }
  Tell(news);
}

// Places in the queue are others now. Those of a long one are the timekeeper's to count.
void Scheduler::Core::MovedLocked() {
  if (!moved_ && dispatcher_.is_long()) timer_cv_.notify_one();
  moved_ = true;
}

// Counts places anew where that is due. Positions are told again when they have halved:
// log2(position) events a job, however long the queue.
std::vector<Scheduler::Core::News> Scheduler::Core::PlaceLocked() {
  std::vector<News> news;
  const TimePoint now = Now();
  if (dispatcher_.is_long() && now - placed_ < dispatcher_.PlacesLast()) return news;
  placed_ = now;
  moved_ = false;
  for (const auto& [id, place] : dispatcher_.Places(now)) {
    const auto it = queued_.find(id);
    if (it == queued_.end()) continue;  // it is paused
    Queued& queued = it->second;
    queued.place = place;
    if (place.position <= queued.told_position / 2 && place.position < queued.told_position) {
      queued.told_position = place.position;
      news.push_back({queued.job, place});
    }
  }
  return news;
}

void Scheduler::Core::SetAlarmLocked(const std::shared_ptr<Job>& job,
                                     std::optional<TimePoint> when) {
  if (!when) return;
  if (alarms_.empty() || *when < alarms_.front().when) timer_cv_.notify_one();
  alarms_.push_back({*when, job});
  std::push_heap(alarms_.begin(), alarms_.end(), std::greater<>());
  if (alarms_.size() < sweep_at_) return;
  std::erase_if(alarms_, [](const Alarm& alarm) {
    const auto own = alarm.job.lock();
    return !own || own->ended();
  });
  std::make_heap(alarms_.begin(), alarms_.end(), std::greater<>());
  sweep_at_ = std::max(sweep_at_, 2 * alarms_.size());
}

// Somebody who asks for a job, or leaves it, may change its class.
void Scheduler::Core::OnChange(const Job* job) {
  if (const StopCause cause = job->stop_cause(); cause != StopCause::kNone) {
    return OnStop(job, cause);
  }
  std::vector<News> news;
  {
    std::lock_guard lock(mutex_);
    const auto own = ids_.find(job);
    if (own == ids_.end()) {
      const Worker* const paused = PausedLocked(job);
      if (paused != nullptr) dispatcher_.SetPriority(paused->running_id, job->priority());
      return;
    }
    // Read under the lock: of changes that come side by side the last one counts.
    dispatcher_.SetPriority(own->second, job->priority());
    MovedLocked();
    DispatchLocked();
    news = PlaceLocked();
  }
  Tell(news);
}

// Null: it is not paused.
Scheduler::Core::Worker* Scheduler::Core::PausedLocked(const Job* job) const {
  for (const auto& worker : workers_) {
    if (worker->paused && worker->running.get() == job) return worker.get();
  }
  return nullptr;
}

// Takes a job that was told to stop out of the queue and ends it. One that a worker has taken
// already is the worker's to end.
void Scheduler::Core::OnStop(const Job* job, StopCause cause) {
  Queued taken;
  std::vector<News> news;
  {
    std::lock_guard lock(mutex_);
    const auto own = ids_.find(job);
    if (own == ids_.end()) {
      if (Worker* const paused = PausedLocked(job)) paused->wake.notify_one();
      return;
    }
    const auto it = queued_.find(own->second);
    taken = std::move(it->second);
    dispatcher_.Remove(own->second);
    queued_.erase(it);
    ids_.erase(own);
    ++finishing_;
    DispatchLocked();  // it may have been what others waited for
    news = PlaceLocked();
  }
  taken.run = nullptr;  // what it holds (right-hand sides, matrices) is free before anyone is told
  End(taken.job, StopError(cause));
  Tell(news);
}

// Ends a job that counts in finishing_.
void Scheduler::Core::End(const std::shared_ptr<Job>& job, const absl::Status& status) {
  if (job->Finish(status)) {
    const LogTrace lines(TraceIdOf(*job));
    const std::string why = status.ok() ? "" : ReasonOf(status);
    const double queue_s = ToMs(job->QueueTime()) / 1e3, run_s = ToMs(job->RunTime()) / 1e3;
    const auto state = JobStateName(job->state());
    if (options_.metrics) {
      options_.metrics->JobEnded(JobKindName(job->kind()), state, why, queue_s, run_s);
      if (const auto stop = job->stop()) {
        options_.metrics->JobStopped(stop->stage, stop->cause, ToMs(stop->took) / 1e3);
      }
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

bool Scheduler::Core::DeviceIdleLocked(size_t device) const {
  return std::none_of(workers_.begin(), workers_.end(), [device](const auto& worker) {
    return worker->device == device && (worker->next || worker->running);
  });
}

// Waits for something to do; the worker of a device's first slot looks at the device now and then.
// False: there will be nothing.
bool Scheduler::Core::AwaitWorkLocked(Worker& worker, std::unique_lock<std::mutex>& lock) {
  TimePoint look = Now() + options_.probe_every;
  while (!worker.next) {
    if (stopping_) return false;
    const bool looks =
        options_.probe && worker.is_first && dispatcher_.DeviceStatus(worker.device).ok();
    if (looks && Now() >= look) {
      if (DeviceIdleLocked(worker.device)) {
        WatchLocked(worker, nullptr, 0);
        lock.unlock();
        const absl::Status status = Look(worker.device, worker.slot);
        lock.lock();
        hang_watch_.End(worker.index);
        worker.hung = false;
      }
      look = Now() + options_.probe_every;
      continue;
    }
    options_.clock->Wait(worker.wake, lock, looks ? std::optional(look) : std::nullopt);
  }
  return true;
}

void Scheduler::Core::WorkLoop(Worker& worker) {
  if (options_.prepare && worker.is_first) Prepare(worker);
  for (;;) {
    Taken taken;
    std::vector<News> news;
    {
      std::unique_lock lock(mutex_);
      if (!AwaitWorkLocked(worker, lock)) return;
      taken = *std::exchange(worker.next, std::nullopt);
      worker.running = taken.job;
      worker.running_id = taken.id;
      worker.running_on = taken.devices;
      WatchLocked(
          // One that is paused need show none.
          worker, [&worker, job = taken.job] { return job->TakeSignOfLife() || worker.paused; },
          dispatcher_.PatienceMs(taken.id));
      news = PlaceLocked();
    }
    Tell(news);

    Job& job = *taken.job;
    absl::Status status;
    const bool started = job.Start(taken.at.devices);
    if (started) {
      if (const auto limit = job.limits().max_run; limit && job.started()) {
        std::lock_guard lock(mutex_);
        SetAlarmLocked(taken.job, *job.started() + *limit);
      }
      status = Guarded("the job", [&] { return taken.run(job, taken.at); });
      job.SetStopHook(nullptr);
      status = LookAfter(taken, std::move(status));
      // First, so that who learns of the job's end finds the device marked.
      if (ReasonOf(status) == reason::kDeviceLost) Lose(worker.device, status);
    }
    const StopCause cause = job.stop_cause();
    if (!started || (!status.ok() && cause != StopCause::kNone)) status = StopError(cause);
    taken.run = nullptr;
    bool hung = false;
    {
      std::lock_guard lock(mutex_);
      hang_watch_.End(worker.index);
      const bool whole = started && status.ok() && cause == StopCause::kNone;
      dispatcher_.Finish(
          taken.id, {.learn = whole, .iterations = static_cast<double>(job.iterations())}, Now());
      hung = std::exchange(worker.hung, false);
      worker.running = nullptr;
      worker.no_slot = false;
      if (!hung) ++finishing_;
      DispatchLocked();
    }
    if (!hung) End(taken.job, status);
  }
}

void Scheduler::Core::KeepTime() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TimePoint now = Now();
    std::vector<std::pair<std::shared_ptr<Job>, StopCause>> due;
    while (!alarms_.empty() && alarms_.front().when <= now) {
      const std::shared_ptr<Job> job = alarms_.front().job.lock();
      std::pop_heap(alarms_.begin(), alarms_.end(), std::greater<>());
      alarms_.pop_back();
      if (!job || job->ended()) continue;
      const auto started = job->started();
      const auto limit = started ? job->limits().max_run : job->limits().max_queue;
      const auto deadline = job->deadline();
      if (limit && (started ? *started : job->created()) + *limit <= now) {
        due.emplace_back(job, started ? StopCause::kMaxRun : StopCause::kMaxQueue);
      } else if (deadline && *deadline <= now) {
        due.emplace_back(job, StopCause::kDeadline);
      } else if (deadline) {
        SetAlarmLocked(job, deadline);  // a more patient waiter has come
      }
    }
    std::vector<News> news = std::exchange(untold_, {});
    std::vector<Hang> hangs = FindHungLocked();
    std::optional<TimePoint> next;
    if (next_tick_ != TimePoint::max()) next = next_tick_;
    if (!alarms_.empty() && (!next || alarms_.front().when < *next)) next = alarms_.front().when;
    if (moved_ && dispatcher_.is_long()) {
      if (now - placed_ >= dispatcher_.PlacesLast()) {
        for (News& more : PlaceLocked()) news.push_back(std::move(more));
      } else if (!next || placed_ + dispatcher_.PlacesLast() < *next) {
        next = placed_ + dispatcher_.PlacesLast();
      }
    }
    if (due.empty() && news.empty() && hangs.empty()) {
      options_.clock->Wait(timer_cv_, lock, next);
      continue;
    }
    lock.unlock();
    for (const auto& [job, cause] : due) job->RequestStop(cause);
    due.clear();
    Tell(news);
    EndHung(std::exchange(hangs, {}));
    lock.lock();
  }
}

std::optional<Scheduler::Place> Scheduler::Core::Where(const Job& job) {
  std::lock_guard lock(mutex_);
  if (!ids_.contains(&job)) return std::nullopt;
  // Who asks may hold what the watchers of these jobs want: the timekeeper tells them.
  for (News& news : PlaceLocked()) untold_.push_back(std::move(news));
  if (!untold_.empty()) timer_cv_.notify_one();
  return queued_.at(ids_.at(&job)).place;
}

Scheduler::Load Scheduler::Core::load() const {
  std::lock_guard lock(mutex_);
  Load load{.queued = dispatcher_.queued(),
            .running = dispatcher_.running(),
            .paused = dispatcher_.paused(),
            .eta_ms = dispatcher_.BacklogMs(Now()),
            .draining = draining_,
            .classes = {},
            .ratios = dispatcher_.Ratios(),
            .taken_ms = dispatcher_.TakenMs(Now())};
  for (size_t p = 0; p < kPriorities; ++p) {
    load.classes[p] = dispatcher_.LoadOf(static_cast<Priority>(p));
  }
  return load;
}

double Scheduler::Core::WaitMs(const std::string& tenant) {
  std::lock_guard lock(mutex_);
  return dispatcher_.PlaceOf({.tenant = tenant}, Now()).eta_ms;
}

Scheduler::Jobs Scheduler::Core::jobs(size_t max_queued) {
  std::vector<News> news;
  Jobs jobs = [&] {
    std::lock_guard lock(mutex_);
    news = PlaceLocked();
    return JobsLocked(max_queued);
  }();
  Tell(news);
  return jobs;
}

Scheduler::Jobs Scheduler::Core::JobsLocked(size_t max_queued) const {
  Jobs jobs;
  for (const auto& worker : workers_) {
    if (!worker->running) continue;
    jobs.running.push_back({worker->running, dispatcher_.PredictedMs(worker->running_id)});
  }
  std::vector<std::pair<uint64_t, const Queued*>> queued;
  queued.reserve(queued_.size());
  for (const auto& [id, entry] : queued_) queued.emplace_back(id, &entry);
  const size_t count = std::min(max_queued, queued.size());
  const auto sooner = [](const auto& a, const auto& b) {
    const Place &x = a.second->place, &y = b.second->place;
    return std::tie(x.eta_ms, x.position, a.first) < std::tie(y.eta_ms, y.position, b.first);
  };
  std::partial_sort(queued.begin(), queued.begin() + static_cast<std::ptrdiff_t>(count),
                    queued.end(), sooner);
  for (size_t k = 0; k < count; ++k) {
    const auto& [id, entry] = queued[k];
    jobs.queued.push_back({entry->job, dispatcher_.PredictedMs(id), entry->place});
  }
  return jobs;
}

void Scheduler::Core::StartDrain(TimePoint deadline) {
  std::vector<std::shared_ptr<Job>> late;
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
    const TimePoint now = Now();
    for (const auto& [id, place] : dispatcher_.Places(now)) {
      if (!queued_.contains(id)) continue;  // it is paused: it runs
      if (deadline <= now || Milliseconds(place.eta_ms) >= Milliseconds(deadline - now)) {
        late.push_back(queued_.at(id).job);
      }
    }
  }
  for (const auto& job : late) job->RequestStop(StopCause::kDrain);
}

void Scheduler::Core::StopAll() {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, queued] : queued_) jobs.push_back(queued.job);
    for (const auto& worker : workers_) {
      if (worker->next) jobs.push_back(worker->next->job);
      if (worker->running) jobs.push_back(worker->running);
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

absl::Status Scheduler::Submit(std::shared_ptr<Job> job, Work work, JobWork run) {
  return core_->Submit(std::move(job), std::move(work), std::move(run));
}
absl::Status Scheduler::AdmitDetached(const std::string& tenant) const {
  return core_->AdmitDetached(tenant);
}
std::optional<Scheduler::Place> Scheduler::Where(const Job& job) const { return core_->Where(job); }
Scheduler::Load Scheduler::load() const { return core_->load(); }
double Scheduler::WaitMs(const std::string& tenant) const { return core_->WaitMs(tenant); }
Scheduler::Jobs Scheduler::jobs(size_t max_queued) const { return core_->jobs(max_queued); }
DeviceMask Scheduler::healthy() const { return core_->healthy(); }
absl::Status Scheduler::DeviceStatus(size_t device) const { return core_->DeviceStatus(device); }
bool Scheduler::prepared() const { return core_->prepared(); }
bool Scheduler::hangs() const { return core_->hangs(); }
void Scheduler::StartDrain(TimePoint deadline) { core_->StartDrain(deadline); }
bool Scheduler::Drain(TimePoint deadline) { return core_->Drain(deadline); }

}  // namespace spaid::server
