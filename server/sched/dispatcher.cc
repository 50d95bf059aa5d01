#include "server/sched/dispatcher.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

constexpr std::chrono::milliseconds kMinRetry{100}, kMaxRetry{60'000};
// The factor by which predictions may have been too long (kernels/engine/cost.h), and where jobs of
// the kind have corrected them. A deadline is refused only if that part would miss it.
constexpr double kTrusted = 5, kTrustedWhereLearned = 2;
// A job that may be paused has outrun its prediction when it has taken this many times as long.
constexpr double kOutrun = 2;
constexpr double kMostSlices = 40;  // in a first turn
// One tenant may have one in kPausedParts of the paused jobs, one in kPausedPartsOfSmall if the
// next one is small and holds little.
constexpr int kPausedParts = 16, kPausedPartsOfSmall = 4;
// Paused jobs may hold as much host memory as running ones again, those of one tenant one part in
// kPausedBytesParts of it; a job with less than one part in kUncountedParts is not counted.
constexpr int64_t kPausedBytesParts = 4, kUncountedParts = 256;
constexpr size_t kMostFound = 1024;  // places in a long queue that are kept for similar work
// Ids of work that is in the queue only to see where it would stand.
constexpr uint64_t kFirstProbe = std::numeric_limits<uint64_t>::max() - kMostFound;

std::chrono::milliseconds RetryAfter(double ms) {
  return std::clamp(std::chrono::milliseconds(static_cast<int64_t>(std::min(ms, 1e9))), kMinRetry,
                    kMaxRetry);
}

// Returns the value that is told apart under the name, or that of all others.
double& ValueOf(const std::string& name, std::map<std::string, double>* values) {
  const auto own = values->find(name);
  return own != values->end() ? own->second : (*values)[""];
}

}  // namespace

Dispatcher::Dispatcher(DispatcherOptions options)
    : options_(std::move(options)),
      healthy_(options_.devices.size() >= kMaxDevices ? kAnyDevice
                                                      : DeviceBit(options_.devices.size()) - 1),
      queue_(options_.tenant_weights),
      places_({.limits = {options_.max_queued},
               .rules = {.weights = options_.tenant_weights, .max_tenants = options_.max_tenants}}),
      predictions_(Predictions::kTenants, options_.tenant_weights) {
  for (const DeviceRoom& room : options_.devices) {
    Device& device = devices_.emplace_back();
    device.room = room;
    device.slots.resize(static_cast<size_t>(std::max(room.slots, 1)));
  }
}

bool Dispatcher::IsSmall(const Work& work, size_t device) const {
  const int64_t slot_bytes = devices_[device].room.slot_bytes;
  // A tenant that taught how short its jobs are may have a long one, which is not to be paused.
  const double least_ms = work.yields ? 0 : Predictions::UnlearnedMs(work) / kTrusted;
  return std::max(ExpectedMs(work, device), least_ms) <= options_.small_ms &&
         (slot_bytes <= 0 || work.device_bytes <= slot_bytes);
}

// Prefers the slot that has its data, even if the job seemed small when the data came there and no
// longer does, or the other way round: else a client's next rebuild would find no plan.
size_t Dispatcher::SlotFor(const Work& work, size_t device) const {
  const auto& slots = devices_[device].slots;
  const int64_t slot_bytes = devices_[device].room.slot_bytes;
  const bool fits = slot_bytes <= 0 || work.device_bytes <= slot_bytes;
  const bool small = IsSmall(work, device);
  size_t found = slots.size();
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slots[slot] != 0 || (slot > 0 && !fits)) continue;
    if (work.resident.In(device, slot)) return slot;
    if (slot == 0 || small) found = slot;
  }
  return found;
}

absl::Status Dispatcher::Admit(Work* work, std::optional<double> left_ms, TimePoint now) {
  if ((work->devices & healthy_) == 0) {
    absl::Status why = absl::InternalError("a job that no device may run");
    for (size_t d = 0; d < devices_.size(); ++d) {
      if ((work->devices & DeviceBit(d)) != 0) why = devices_[d].lost;
    }
    work->devices = std::exchange(work->fallback, 0);
    if ((work->devices & healthy_) == 0) return why;
  }
  // Half of the backlog: by then half of the queue is free, so that those who were refused do not
  // come back all at once for a single place.
  const auto full = [&](const std::string& what, int64_t limit) -> absl::Status {
    const auto retry = RetryAfter(PlaceOf(*work, now).eta_ms / 2);
    return MakeError(absl::StatusCode::kResourceExhausted, reason::kQueueFull,
                     absl::StrCat(what, "; try again in ", retry.count(), " ms"))
        .Meta("limit", limit)
        .Retry(retry);
  };
  if (queued() >= options_.max_queued) {
    return full(absl::StrCat("the queue is full: it holds ", options_.max_queued,
                             " jobs (--max-queued-jobs)"),
                options_.max_queued);
  }
  const TenantShares::Account account = places_.Join(work->tenant);
  const bool admits = places_.Admits(account, 1);
  const int64_t own = QueuedOf(TenantShares::NameOf(account));
  places_.Leave(account);
  if (!admits) {
    return full(absl::StrCat("tenant '", work->tenant, "' has ", own,
                             " jobs in the queue, and the last of its ", options_.max_queued,
                             " places (--max-queued-jobs) are for tenants with less than their "
                             "share of them"),
                options_.max_queued);
  }
  if (options_.max_queued_per_tenant > 0 && own >= options_.max_queued_per_tenant) {
    return full(absl::StrCat("tenant '", work->tenant, "' has ", own,
                             " jobs in the queue, which is its limit "
                             "(--max-queued-jobs-per-tenant)"),
                options_.max_queued_per_tenant);
  }
  if (!left_ms) return absl::OkStatus();
  const double wait_ms = PlaceOf(*work, now).surely_ms;
  double run_ms = std::numeric_limits<double>::infinity();
  for (size_t d = 0; d < devices_.size(); ++d) {
    if ((work->devices & healthy_ & DeviceBit(d)) != 0) {
      run_ms = std::min(run_ms, SurelyTakenMs(*work, d));
    }
  }
  const double surely = 1 / (predictions_.Learned(*work) ? kTrustedWhereLearned : kTrusted);
  if (surely * (wait_ms + run_ms) <= *left_ms) return absl::OkStatus();
  ErrorBuilder error =
      MakeError(absl::StatusCode::kDeadlineExceeded, reason::kDeadlineInfeasible,
                absl::StrFormat("the job is predicted to wait %.3g ms and to run %.3g ms, and the "
                                "deadline of the call leaves %.3g ms; give it a later one, or "
                                "detach the job",
                                wait_ms, run_ms, *left_ms))
          .Meta("wait_ms", static_cast<int64_t>(wait_ms))
          .Meta("run_ms", static_cast<int64_t>(run_ms))
          .Meta("left_ms", static_cast<int64_t>(*left_ms));
  if (surely * run_ms <= *left_ms) error = std::move(error).Retry(RetryAfter(surely * wait_ms));
  return error;
}

void Dispatcher::Push(Work work, TimePoint now) {
  ChargeRunning(now);  // somebody who comes now has no claim to what was before
  const TenantShares::Account account = places_.Join(work.tenant);
  places_.Add(account, 1);
  account_of_[work.id] = account;
  work.tenant = TenantShares::NameOf(account);  // made-up names have one turn, too
  Enqueue(std::move(work));
}

void Dispatcher::Enqueue(Work work) {
  size_t first = 0;
  while (first + 1 < devices_.size() && (work.devices & healthy_ & DeviceBit(first)) == 0) ++first;
  work.cost_ms = ExpectedMs(work, first);
  work.small = IsSmall(work, first);
  queue_.Push(std::move(work));
}

void Dispatcher::Forget(uint64_t id) {
  places_.Add(account_of_.at(id), -1);
  if (passed_over_since_.erase(id) == 0) return;
  for (Device& device : devices_) {
    if (device.reserved_for == id) device.reserved_for = 0;
  }
  if (host_reserved_for_ == id) host_reserved_for_ = 0;
}

bool Dispatcher::Remove(uint64_t id) {
  if (!queue_.Remove(id)) return false;
  Forget(id);
  places_.Leave(account_of_.extract(id).mapped());
  return true;
}

void Dispatcher::SetPriority(uint64_t id, Priority priority) {
  if (queue_.Find(id) == nullptr) return;
  queue_.SetPriority(id, priority);
  if (const auto it = running_.find(id); it != running_.end()) it->second.work.priority = priority;
}

int64_t Dispatcher::QueuedOf(const std::string& tenant) const {
  int64_t queued = queue_.QueuedOf(tenant);
  if (paused_ == 0 || queued == 0) return queued;
  for (const auto& [id, running] : running_) {
    if (running.slots.empty() && running.work.tenant == tenant && IsPaused(id)) --queued;
  }
  return queued;
}

// --- What can start ---

void Dispatcher::NoteVisit(const std::string& tenant, TimePoint now, Device* device) {
  if (device->last && device->last->tenant != tenant) device->other = std::move(device->last);
  device->last = {tenant, now};
}

// Slots that no long job holds are there for small ones. Work that is not small takes the first
// slot when its turn comes: nothing is left for others there.
bool Dispatcher::TakesOthersSlot(const Work& work, size_t d, TimePoint now) const {
  const Device& device = devices_[d];
  const std::optional<Visitor>& other =
      device.last && device.last->tenant != work.tenant ? device.last : device.other;
  if (!other || now - other->at > options_.keeps_slot || !IsSmall(work, d)) return false;
  size_t for_small = 0, own = 0;
  for (const uint64_t id : device.slots) {
    const Running* const running = id == 0 ? nullptr : &running_.at(id);
    if (running != nullptr && !running->small) continue;
    ++for_small;
    if (running != nullptr && running->work.tenant == work.tenant) ++own;
  }
  return for_small > 1 && own + 1 >= for_small;
}

// Whether there is memory for it, on the device and of the host. What is larger than all there is
// runs alone: the bounds of a single job are its sender's.
bool Dispatcher::FitsDevice(const Work& work, size_t d) const {
  const Device& device = devices_[d];
  return device.room.memory_bytes <= 0 || device.used_bytes == 0 ||
         device.used_bytes + work.device_bytes <= device.room.memory_bytes;
}

bool Dispatcher::FitsHost(const Work& work) const {
  return options_.host_bytes <= 0 || host_used_ == 0 ||
         host_used_ + work.host_bytes <= options_.host_bytes;
}

// Whether there would be room for it once all had ended that have not been paused: those that have
// may hold theirs for as long as their limits let them, and nobody waits so long for another.
bool Dispatcher::MayComeFree(const Work& work, size_t d) const {
  const Device& device = devices_[d];
  return device.paused_bytes == 0 || device.room.memory_bytes <= 0 ||
         device.paused_bytes + work.device_bytes <= device.room.memory_bytes;
}

// Whether it would not take room that is kept for a job that has been passed over for long.
bool Dispatcher::LeavesReserved(const Work& work, size_t d) const {
  const Device& device = devices_[d];
  if (const Work* const kept = queue_.Find(device.reserved_for);
      kept != nullptr && MayComeFree(*kept, d)) {
    if (kept->id == work.id) return true;
    if (SlotFor(work, d) == 0 && !IsSmall(*kept, d)) return false;
    if (device.room.memory_bytes > 0 && work.device_bytes > 0 &&
        device.used_bytes + work.device_bytes + kept->device_bytes > device.room.memory_bytes) {
      return false;
    }
  }
  const Work* const kept = queue_.Find(host_reserved_for_);
  return kept == nullptr || kept->id == work.id || work.host_bytes == 0 ||
         host_used_ + work.host_bytes + kept->host_bytes <= options_.host_bytes;
}

// The length of a running job's turn: what it says itself that it takes, and that again, within
// bounds. No longer for what its tenant has taught, who may have taught that all of its jobs take
// an hour.
double Dispatcher::TurnMs(const Running& running) const {
  const double slice_ms = ToMs(options_.slice);
  if (running.pauses > 0) return slice_ms;
  return std::clamp(kOutrun * SurelyTakenMs(running.work, running.devices[0]), slice_ms,
                    kMostSlices * slice_ms);
}

// Expects a job that has outrun its prediction to take as long again as it has outrun it.
double Dispatcher::RemainingMs(const Running& running, size_t device, TimePoint now,
                               bool surely) const {
  double expected =
      running.expected_ms > 0 ? running.expected_ms : ExpectedMs(running.work, device);
  const double turn_ms = ToMs(now - running.since), ran_ms = running.ran_ms + turn_ms;
  if (surely) {
    expected = std::min(expected, Predictions::UnlearnedMs(running.work));
    if (ran_ms > expected) return 0;
  }
  const double left_ms = std::abs(expected - ran_ms);
  if (!running.work.yields || options_.max_paused <= 0) return left_ms;
  return std::min(left_ms, std::max(0.0, TurnMs(running) - turn_ms));
}

// Until the device has a slot for it; 0: it has.
double Dispatcher::FreeInMs(size_t d, const Work& work, TimePoint now) const {
  const auto& slots = devices_[d].slots;
  const size_t count = IsSmall(work, d) ? slots.size() : 1;
  double least = std::numeric_limits<double>::infinity();
  for (size_t slot = 0; slot < count; ++slot) {
    const uint64_t id = slots[slot];
    least = std::min(least, id == 0 ? 0.0 : RemainingMs(running_.at(id), d, now));
  }
  return least;
}

// Not where its data would have to be moved to, if the device that has it is free before that were
// done.
bool Dispatcher::WantsHere(const Work& work, size_t device, TimePoint now) const {
  const DeviceMask there = work.resident.devices & work.devices & healthy_;
  if (there == 0 || (there & DeviceBit(device)) != 0) return true;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if ((there & DeviceBit(d)) != 0 && FreeInMs(d, work, now) <= work.move_ms) return false;
  }
  return true;
}

void Dispatcher::NotePassedOver(const Work& work, size_t d, TimePoint now) {
  const TimePoint since = passed_over_since_.try_emplace(work.id, now).first->second;
  if (now - since < options_.max_passed_over) return;
  Device& device = devices_[d];
  if (device.reserved_for == 0 && !FitsDevice(work, d) && MayComeFree(work, d)) {
    device.reserved_for = work.id;
  }
  if (host_reserved_for_ == 0 && !FitsHost(work)) host_reserved_for_ = work.id;
}

std::optional<Dispatcher::Start> Dispatcher::StartOn(size_t d, TimePoint now) {
  // A job that waits for its own slot waits for its turn, and is not passed over.
  const auto may_start = [&](const Work& work) {
    if ((work.devices & DeviceBit(d)) == 0) return Pass::kNoneLikeIt;
    if (work.slot >= 0) {
      return devices_[d].slots[static_cast<size_t>(work.slot)] == 0 ? Pass::kYes
                                                                    : Pass::kNoneLikeIt;
    }
    if (SlotFor(work, d) == devices_[d].slots.size()) return Pass::kNoneLikeIt;
    if (TakesOthersSlot(work, d, now)) return Pass::kNoneLikeIt;
    if (!MayPauseMore(work, d)) return Pass::kNo;
    return WantsHere(work, d, now) ? Pass::kYes : Pass::kNo;
  };
  const Work* const head = queue_.Peek(may_start);
  if (head == nullptr) return std::nullopt;
  if (head->slot < 0 && !Fits(*head, d)) NotePassedOver(*head, d, now);
  std::optional<Work> work = queue_.Take([&](const Work& queued) {
    const Pass pass = may_start(queued);
    if (pass != Pass::kYes || queued.slot >= 0) return pass;  // it has its memory
    return Fits(queued, d) && LeavesReserved(queued, d) ? Pass::kYes : Pass::kNo;
  });
  if (!work) return std::nullopt;
  const uint64_t id = work->id;
  if (work->slot >= 0) {
    --paused_;
    Running& again = running_.at(id);
    Begin(again, {static_cast<size_t>(work->slot)}, now);
    again.charged_ms = work->cost_ms;
    return Start{id, again.devices, again.slots[0]};
  }
  Forget(id);
  Running running;
  running.work = *std::move(work);
  running.devices = {d};
  if (running.work.max_devices > 1 && !IsSmall(running.work, d)) AddIdleDevices(&running);
  running.split = running.devices.size() > 1;
  running.expected_ms = ExpectedMs(running.work, d) / static_cast<double>(running.devices.size());
  running.small = IsSmall(running.work, d);
  running.charged_ms = running.work.cost_ms;
  TellApart(running.work.tenant);
  std::vector<size_t> slots;
  for (const size_t e : running.devices) {
    slots.push_back(SlotFor(running.work, e));
    devices_[e].used_bytes += running.work.device_bytes;
  }
  host_used_ += running.work.host_bytes;
  Begin(running, slots, now);
  Start start{id, running.devices, running.slots[0]};
  running_.emplace(id, std::move(running));
  return start;
}

// In those slots of its devices.
void Dispatcher::Begin(Running& running, const std::vector<size_t>& slots, TimePoint now) {
  running.slots = slots;
  running.since = now;
  running.metered_ms = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    Device& device = devices_[running.devices[i]];
    device.slots[slots[i]] = running.work.id;
    NoteVisit(running.work.tenant, now, &device);
  }
}

// --- What runs ---

// Whether one more that may have to be paused may be started there. Always the first one of a
// tenant: what others have there is not its fault.
bool Dispatcher::MayPauseMore(const Work& work, size_t d) const {
  const Device& device = devices_[d];
  if (!work.yields || options_.max_paused <= 0) return true;
  const int64_t host = options_.host_bytes;
  if (host_paused_ > 0 && work.host_bytes > host / kUncountedParts && host > 0) {
    if (host_paused_ + work.host_bytes > host) return false;
    const auto held = host_paused_of_.find(work.tenant);
    if (held != host_paused_of_.end() &&
        held->second + work.host_bytes > host / kPausedBytesParts) {
      return false;
    }
  }
  const auto own = device.paused_of.find(work.tenant);
  if (own == device.paused_of.end()) return true;
  const int parts = IsSmall(work, d) ? kPausedPartsOfSmall : kPausedParts;
  return device.paused < options_.max_paused &&
         own->second < std::max(1, options_.max_paused / parts);
}

// On all its devices, in this turn.
double Dispatcher::TurnTakenMs(const Running& running, TimePoint now) {
  return ToMs(now - running.since) * static_cast<double>(running.devices.size());
}

// Gives the tenant a time of its own, if it may have one.
void Dispatcher::TellApart(const std::string& tenant) {
  const size_t most = options_.tenant_weights.size() + static_cast<size_t>(options_.max_tenants);
  if (options_.tenant_weights.contains(tenant) || taken_ms_.size() < most) {
    taken_ms_.try_emplace(tenant, 0);
  }
}

// Charges its tenant with what it has taken beyond what was charged already.
void Dispatcher::ChargeTurn(Running& running, TimePoint now) {
  const double took_ms = TurnTakenMs(running, now);
  queue_.Settle(running.work, took_ms - running.charged_ms);
  running.charged_ms = took_ms;
  ValueOf(running.work.tenant, &taken_ms_) += took_ms - std::exchange(running.metered_ms, took_ms);
}

std::map<std::string, double> Dispatcher::TakenMs(TimePoint now) const {
  std::map<std::string, double> taken_ms = taken_ms_;
  for (const auto& [id, running] : running_) {
    if (running.slots.empty()) continue;
    ValueOf(running.work.tenant, &taken_ms) += TurnTakenMs(running, now) - running.metered_ms;
  }
  return taken_ms;
}

void Dispatcher::ChargeRunning(TimePoint now) {
  for (auto& [id, running] : running_) {
    if (running.slots.empty()) continue;
    if (TurnTakenMs(running, now) > running.charged_ms) ChargeTurn(running, now);
  }
}

// Gives its slots back, if it has any.
void Dispatcher::Leave(Running& running, TimePoint now) {
  for (size_t i = 0; i < running.slots.size(); ++i) {
    Device& device = devices_[running.devices[i]];
    device.slots[running.slots[i]] = 0;
    NoteVisit(running.work.tenant, now, &device);
  }
  if (running.slots.empty()) return;
  running.ran_ms += ToMs(now - running.since);
  ChargeTurn(running, now);
  running.slots.clear();
}

std::optional<TimePoint> Dispatcher::TurnEnds(uint64_t id) const {
  const auto it = running_.find(id);
  if (it == running_.end() || !it->second.work.yields || options_.max_paused <= 0) return {};
  return it->second.since +
         std::chrono::duration_cast<TimePoint::duration>(Milliseconds(TurnMs(it->second)));
}

void Dispatcher::Expect(uint64_t id, double more_ms, TimePoint now) {
  const auto it = running_.find(id);
  if (it == running_.end()) return;
  Running& running = it->second;
  running.expected_ms = running.ran_ms + ToMs(now - running.since) + more_ms;
}

void Dispatcher::Pause(uint64_t id, TimePoint now) {
  Running& running = running_.at(id);
  Work again = running.work;
  again.slot = static_cast<int>(running.slots[0]);
  const size_t own = running.devices[0];
  Leave(running, now);
  // It was split over other devices for its build only.
  for (size_t i = 1; i < running.devices.size(); ++i) {
    devices_[running.devices[i]].used_bytes -= running.work.device_bytes;
  }
  running.devices.resize(1);
  if (running.pauses++ == 0) {
    Device& device = devices_[own];
    ++device.paused;
    ++device.paused_of[running.work.tenant];
    device.paused_bytes += running.work.device_bytes;
    host_used_ -= running.work.host_bytes;
    host_paused_ += running.work.host_bytes;
    if (running.work.host_bytes > 0) {
      host_paused_of_[running.work.tenant] += running.work.host_bytes;
    }
  }
  again.devices = DeviceBit(own);
  again.fallback = 0;
  again.small = running.small;
  again.cost_ms = ToMs(options_.slice);
  queue_.PushAgain(std::move(again));
  ++paused_;
}

void Dispatcher::GoOn(uint64_t id) {
  if (IsPaused(id) && queue_.Remove(id)) --paused_;
}

bool Dispatcher::IsPaused(uint64_t id) const {
  const Work* const queued = queue_.Find(id);
  return queued != nullptr && queued->slot >= 0;
}

// Those that are idle, and that nobody in the queue has a use for.
void Dispatcher::AddIdleDevices(Running* running) const {
  for (size_t e = 0; e < devices_.size(); ++e) {
    if (static_cast<int>(running->devices.size()) >= running->work.max_devices) return;
    const Device& device = devices_[e];
    const DeviceMask bit = DeviceBit(e);
    if (e == running->devices[0] || (running->work.devices & healthy_ & bit) == 0) continue;
    const bool idle =
        std::all_of(device.slots.begin(), device.slots.end(), [](uint64_t id) { return id == 0; });
    if (!idle || device.held > 0 || device.reserved_for != 0) continue;
    const auto may_run = [bit](const Work& queued) {
      return (queued.devices & bit) != 0 ? Pass::kYes : Pass::kNoneLikeIt;
    };
    if (queue_.Peek(may_run) != nullptr) continue;
    running->devices.push_back(e);
  }
}

std::vector<Dispatcher::Start> Dispatcher::Dispatch(TimePoint now) {
  std::vector<Start> starts;
  if (queue_.size() > 0) ChargeRunning(now);
  std::vector<std::pair<size_t, size_t>> order;  // busy slots, device: the idlest first
  while (queue_.size() > 0) {
    order.clear();
    for (size_t d = 0; d < devices_.size(); ++d) {
      if (!IsHealthy(d) || devices_[d].held > 0) continue;
      const auto& slots = devices_[d].slots;
      const auto busy = static_cast<size_t>(
          std::count_if(slots.begin(), slots.end(), [](uint64_t id) { return id != 0; }));
      if (busy < slots.size()) order.emplace_back(busy, d);
    }
    std::sort(order.begin(), order.end());
    std::optional<Start> start;
    for (const auto& [busy, d] : order) {
      start = StartOn(d, now);
      if (start) break;
    }
    if (!start) break;
    starts.push_back(*std::move(start));
  }
  return starts;
}

void Dispatcher::Finish(uint64_t id, const Ended& ended, TimePoint now) {
  const auto it = running_.find(id);
  if (it == running_.end()) return;
  GoOn(id);
  places_.Leave(account_of_.extract(id).mapped());
  Running running = std::move(it->second);
  running_.erase(it);
  Leave(running, now);
  for (const size_t d : running.devices) devices_[d].used_bytes -= running.work.device_bytes;
  if (running.pauses == 0) {
    host_used_ -= running.work.host_bytes;
  } else {
    Device& device = devices_[running.devices[0]];
    --device.paused;
    if (const auto own = device.paused_of.find(running.work.tenant); --own->second == 0) {
      device.paused_of.erase(own);
    }
    device.paused_bytes -= running.work.device_bytes;
    host_paused_ -= running.work.host_bytes;
    if (const auto held = host_paused_of_.find(running.work.tenant);
        held != host_paused_of_.end() && (held->second -= running.work.host_bytes) == 0) {
      host_paused_of_.erase(held);
    }
  }
  if (!ended.learn || running.split) return;
  predictions_.Learn(running.work, running.devices[0], running.ran_ms, ended.iterations);
}

std::vector<uint64_t> Dispatcher::Lose(size_t device, const absl::Status& why) {
  std::vector<uint64_t> orphans;
  if (!devices_[device].lost.ok()) return orphans;
  devices_[device].lost = why;
  healthy_ &= ~DeviceBit(device);
  std::vector<uint64_t> without;
  for (const Work* work : queue_.Order()) {
    if ((work->devices & healthy_) == 0) without.push_back(work->id);
  }
  for (const uint64_t id : without) {
    if (IsPaused(id)) {
      GoOn(id);
    } else if ((queue_.Find(id)->fallback & healthy_) != 0) {
      queue_.FallBack(id);
    } else {
      Remove(id);
      orphans.push_back(id);
    }
  }
  return orphans;
}

// --- What is to be expected ---

Dispatcher::Timeline Dispatcher::RunningTimeline(TimePoint now, bool surely) const {
  Timeline timeline;
  for (size_t d = 0; d < devices_.size(); ++d) {
    std::vector<double>& free_at = timeline.emplace_back();
    for (const uint64_t id : devices_[d].slots) {
      free_at.push_back(id == 0 ? 0 : RemainingMs(running_.at(id), d, now, surely));
    }
  }
  return timeline;
}

// Puts a job where it will run first; the milliseconds until it starts.
double Dispatcher::Put(const Work& work, bool surely, Timeline* timeline) const {
  const bool stays = work.id < kFirstProbe;
  if (work.slot >= 0) {
    const auto device = static_cast<size_t>(std::countr_zero(work.devices));
    double& own = (*timeline)[device][static_cast<size_t>(work.slot)];
    return std::exchange(own, own + work.cost_ms);
  }
  double* best = nullptr;
  double run_ms = 0;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if ((work.devices & healthy_ & DeviceBit(d)) == 0) continue;
    std::vector<double>& free_at = (*timeline)[d];
    const auto first =
        IsSmall(work, d) ? std::min_element(free_at.begin(), free_at.end()) : free_at.begin();
    if (best == nullptr || *first < *best) {
      best = &*first;
      run_ms = surely ? SurelyTakenMs(work, d) : ExpectedMs(work, d);
    }
  }
  if (best == nullptr) return 0;  // it is about to fail
  const double start = *best;
  if (stays) *best += run_ms;
  return start;
}

std::vector<std::pair<uint64_t, Dispatcher::Place>> Dispatcher::Places(TimePoint now) const {
  std::vector<std::pair<uint64_t, Place>> places;
  places.reserve(queue_.size());
  Timeline timeline = RunningTimeline(now, false), surely = RunningTimeline(now, true);
  std::vector<std::pair<DeviceMask, int64_t>> before;  // jobs by where they may run: few kinds
  for (const Work* work : queue_.Order()) {
    const DeviceMask devices = work->devices & healthy_;
    Place place;
    auto own = before.end();
    for (auto it = before.begin(); it != before.end(); ++it) {
      if ((it->first & devices) != 0) place.position += it->second;
      if (it->first == devices) own = it;
    }
    const int64_t one = work->id < kFirstProbe ? 1 : 0;
    if (own == before.end()) {
      before.emplace_back(devices, one);
    } else {
      own->second += one;
    }
    place.eta_ms = Put(*work, false, &timeline);
    place.surely_ms = Put(*work, true, &surely);
    places.emplace_back(work->id, place);
  }
  return places;
}

Dispatcher::Place Dispatcher::PlaceOf(const Work& work, TimePoint now) {
  // Those of whom the queue knows nothing stand alike.
  const bool known = queue_.Knows(work.tenant) || options_.tenant_weights.contains(work.tenant);
  const std::tuple key(known ? work.tenant : std::string(), work.priority, work.devices);
  if (!is_long()) {
    found_.clear();
  } else if (now - found_at_ >= PlacesLast()) {
    // All anew that were asked for since, at once.
    std::erase_if(found_, [](const auto& found) { return !found.second.asked; });
    for (auto& [of, found] : found_) found.known = false;
    found_at_ = now;
  }
  if (found_.size() >= kMostFound) found_.clear();
  Found& own = found_[key];
  if (!own.known) {
    own.like = work;
    own.like.tenant = std::get<0>(key);
    std::vector<Found*> asked;
    for (auto& [of, found] : found_) {
      if (found.known) continue;
      Work probe = found.like;
      probe.id = kFirstProbe + asked.size();
      Enqueue(std::move(probe));
      asked.push_back(&found);
    }
    for (const auto& [id, place] : Places(now)) {
      if (id >= kFirstProbe) asked[id - kFirstProbe]->place = place;
    }
    for (size_t k = 0; k < asked.size(); ++k) {
      queue_.Remove(kFirstProbe + k);
      asked[k]->known = true;
      asked[k]->asked = false;
    }
  }
  own.asked = true;
  return own.place;
}

double Dispatcher::BacklogMs(TimePoint now) const {
  Timeline timeline = RunningTimeline(now, false);
  for (const Work* work : queue_.Order()) Put(*work, false, &timeline);
  double most = 0;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (!IsHealthy(d)) continue;
    most = std::max(most, timeline[d][0]);
  }
  return most;
}

Dispatcher::ClassLoad Dispatcher::LoadOf(Priority priority) const {
  ClassLoad load;
  queue_.ForEach([&](const Work& work) {
    if (work.priority != priority || work.slot >= 0) return;
    ++load.queued;
    load.predicted_ms += work.cost_ms;
  });
  return load;
}

double Dispatcher::PredictedMs(uint64_t id) const {
  if (const auto it = running_.find(id); it != running_.end()) return it->second.expected_ms;
  const Work* const work = queue_.Find(id);
  if (work == nullptr) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (IsHealthy(d) && (work->devices & DeviceBit(d)) != 0) {
      least = std::min(least, ExpectedMs(*work, d));
    }
  }
  return std::isfinite(least) ? least : work->predicted_ms;
}

double Dispatcher::PatienceMs(uint64_t id) const {
  const auto it = running_.find(id);
  const double predicted_ms = PredictedMs(id);
  return it == running_.end() ? predicted_ms
                              : std::max(predicted_ms, Predictions::UnlearnedMs(it->second.work));
}

std::vector<Dispatcher::Ratio> Dispatcher::Ratios() const {
  std::vector<Ratio> ratios;
  for (Predictions::Ratio& of : predictions_.Ratios()) {
    ratios.push_back({devices_[of.device].room.name, std::move(of.what), of.value, of.jobs});
  }
  return ratios;
}

}  // namespace spaid::server
