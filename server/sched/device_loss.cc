// How the scheduler finds that a device is lost, or hangs, and what it does then.
#include <chrono>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/guard.h"
#include "server/base/log.h"
#include "server/base/status.h"
#include "server/sched/scheduler_core.h"

namespace spaid::server {

// Probes a device, which is lost where it says so.
absl::Status Scheduler::Core::Look(size_t device, size_t slot) {
  const absl::Status status = Guarded("the probe", [&] { return options_.probe(device, slot); });
  if (ReasonOf(status) == reason::kDeviceLost) Lose(device, status);
  return status;
}

// Returns the final status of a job. After an unexpected error, which a dead device may have
// caused, its devices are probed before any of them takes the next job.
absl::Status Scheduler::Core::LookAfter(const Taken& taken, absl::Status status) {
  if (status.code() != absl::StatusCode::kInternal || !options_.probe) return status;
  const auto hold = [&](bool held) {
    std::lock_guard lock(mutex_);
    for (const size_t d : taken.devices) held ? dispatcher_.Hold(d) : dispatcher_.Release(d);
    if (!held) DispatchLocked();
  };
  hold(true);
  for (const size_t d : taken.devices) {
    const absl::Status found = Look(d, d == taken.devices[0] ? taken.at.slot : 0);
    Log(LogLevel::kWarning, "device_probed",
        {{"device", rooms()[d].name},
         {"after", taken.job->name()},
         {"error", std::string(status.message())},
         {"found", found.ok() ? "it works" : std::string(found.message())}});
    if (ReasonOf(found) == reason::kDeviceLost) status = found;
  }
  hold(false);
  return status;
}

void Scheduler::Core::WatchLocked(Worker& worker, std::function<bool()> alive,
                                  double predicted_ms) {
  if (!hang_watch_.on()) return;
  const TimePoint now = Now();
  hang_watch_.Begin(worker.index, std::move(alive), predicted_ms, now);
  if (next_tick_ != TimePoint::max()) return;
  next_tick_ = now + hang_watch_.tick();
  timer_cv_.notify_one();
}

// Takes from workers that hang what they were to do. A job that runs stays in the dispatcher's
// books, since it goes on holding what they count, until its worker comes back, if ever.
std::vector<Scheduler::Core::Hang> Scheduler::Core::FindHungLocked() {
  std::vector<Hang> hangs;
  const TimePoint now = Now();
  if (now < next_tick_) return hangs;
  for (const HangWatch::Hung& found : hang_watch_.Tick(now)) {
    Worker& worker = *workers_[found.thread];
    Hang& hang = hangs.emplace_back();
    // All tenants are told this: not whose job.
    const char* const what = worker.running     ? "a job"
                             : worker.preparing ? "the measurement of the device"
                                                : "a probe of the device";
    hang.why = MakeError(
        absl::StatusCode::kUnavailable, reason::kDeviceLost,
        absl::StrCat(rooms()[worker.device].name, " hung: ", what, " showed no sign of life for ",
                     std::chrono::duration_cast<std::chrono::milliseconds>(found.silent).count(),
                     " ms (--hang-limit, --hang-floor); send the request again to another server, "
                     "and restart this one"));
    worker.hung = true;
    // Nobody can tell which of the devices that share a job it waits for.
    std::vector<size_t> devices = {worker.device};
    if (worker.running) devices = worker.running_on;
    for (const size_t d : devices) LoseLocked(d, hang.why, &hang.losses);
    hang.last_prepared = std::exchange(worker.preparing, false) && --preparing_ == 0;
    if (worker.running) hang.jobs.push_back(std::exchange(worker.running, nullptr));
    if (worker.next) {
      dispatcher_.Finish(worker.next->id, {}, now);
      hang.jobs.push_back(std::exchange(worker.next, std::nullopt)->job);
    }
    finishing_ += static_cast<int64_t>(hang.jobs.size());
  }
  next_tick_ = hang_watch_.watching() ? now + hang_watch_.tick() : TimePoint::max();
  return hangs;
}

void Scheduler::Core::EndHung(std::vector<Hang> hangs) {
  for (Hang& hang : hangs) {
    EndLosses(std::move(hang.losses));
    if (hang.last_prepared) {
      {
        std::lock_guard lock(mutex_);
        DispatchLocked();
      }
      if (options_.on_prepared) options_.on_prepared();
    }
    for (const auto& job : hang.jobs) {
      job->RequestStop(StopCause::kHung);  // should its worker come back
      const StopCause cause = job->stop_cause();
      End(job, cause == StopCause::kHung ? hang.why : StopError(cause));
    }
  }
}

void Scheduler::Core::LoseLocked(size_t device, const absl::Status& why,
                                 std::vector<Loss>* losses) {
  if (!dispatcher_.DeviceStatus(device).ok()) return;
  Loss& loss = losses->emplace_back(Loss{device, why, {}});
  for (const uint64_t id : dispatcher_.Lose(device, why)) {
    const auto it = queued_.find(id);
    ids_.erase(it->second.job.get());
    loss.orphans.push_back(std::move(it->second));
    queued_.erase(it);
  }
  finishing_ += static_cast<int64_t>(loss.orphans.size());
  for (const auto& worker : workers_) {
    if (worker->device != device || !worker->paused) continue;
    worker->paused = false;  // it will find out
    worker->wake.notify_one();
  }
}

void Scheduler::Core::EndLosses(std::vector<Loss> losses) {
  for (Loss& loss : losses) {
    Log(LogLevel::kError, "device_lost",
        {{"device", rooms()[loss.device].name},
         {"queued_jobs_failed", static_cast<int64_t>(loss.orphans.size())},
         {"error", std::string(loss.why.message())}});
    if (options_.on_lost) options_.on_lost(loss.device, loss.why);
    std::vector<News> news;
    {
      std::lock_guard lock(mutex_);
      DispatchLocked();  // what it would have run may be another's now
      news = PlaceLocked();
    }
    for (Queued& orphan : loss.orphans) {
      orphan.run = nullptr;
      End(orphan.job, loss.why);
    }
    Tell(news);
  }
}

void Scheduler::Core::Lose(size_t device, const absl::Status& why) {
  std::vector<Loss> losses;
  {
    std::lock_guard lock(mutex_);
    LoseLocked(device, why, &losses);
  }
  EndLosses(std::move(losses));
}

}  // namespace spaid::server
