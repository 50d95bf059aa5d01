#include "server/sched/dispatcher.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

// Weight of a new measurement of actual over predicted time, in the logarithm: the ratios of one
// machine scatter by factors.
constexpr double kRatioWeight = 0.25;
constexpr double kMinPredictedMs = 0.1;  // under this, the measured ratio is overhead and noise
constexpr std::chrono::milliseconds kMinRetry{100}, kMaxRetry{60'000};
// A deadline is refused only where so much of what is predicted would miss it.
constexpr double kSurelyTaken = 0.5;
constexpr int64_t kKnownJobs = 4;  // that make a ratio trustworthy

std::chrono::milliseconds RetryAfter(double ms) {
  return std::clamp(std::chrono::milliseconds(static_cast<int64_t>(std::min(ms, 1e9))), kMinRetry,
                    kMaxRetry);
}

}  // namespace

Dispatcher::Dispatcher(DispatcherOptions options)
    : options_(std::move(options)),
      healthy_(options_.devices.size() >= kMaxDevices ? kAnyDevice
                                                      : DeviceBit(options_.devices.size()) - 1),
      queue_(options_.tenant_weights) {
  for (const DeviceRoom& room : options_.devices) {
    Device& device = devices_.emplace_back();
    device.room = room;
    device.lanes.resize(static_cast<size_t>(std::max(room.lanes, 1)));
  }
}

size_t Dispatcher::Kind::SizeOf(double predicted_ms) {
  constexpr int kSmallest = -2;  // 4^-2 ms, under kMinPredictedMs
  const int octave = std::ilogb(std::max(predicted_ms, kMinPredictedMs));
  const int size = (octave - (octave & 1)) / 2 - kSmallest;
  return static_cast<size_t>(std::clamp(size, 0, static_cast<int>(kSizes) - 1));
}

void Dispatcher::Learned::Add(double measured) {
  ++jobs;
  // Of few jobs the mean: the first one often has to wait for what is only done once.
  value *= std::pow(measured / value, std::max(kRatioWeight, 1 / static_cast<double>(jobs)));
}

Dispatcher::Learned Dispatcher::LearnedOf(const Work& work, size_t device) const {
  const auto& kinds = devices_[device].kinds;
  const auto it = kinds.find(work.what);
  if (it == kinds.end()) return {};
  const Learned& of_size = it->second.of_size[Kind::SizeOf(work.predicted_ms)];
  return of_size.jobs > 0 ? of_size : it->second.all;
}

double Dispatcher::ExpectedMs(const Work& work, size_t device) const {
  return std::max(work.predicted_ms, kMinPredictedMs) * LearnedOf(work, device).value;
}

bool Dispatcher::IsSmall(const Work& work, size_t device) const {
  const int64_t lane_bytes = devices_[device].room.lane_bytes;
  return ExpectedMs(work, device) <= options_.small_ms &&
         (lane_bytes <= 0 || work.device_bytes <= lane_bytes);
}

// Where its data is, first of all, though it may have seemed small when that came there, and does
// so no more, or the other way round: else a client's next rebuild would find no plan.
size_t Dispatcher::LaneFor(const Work& work, size_t device) const {
  const auto& lanes = devices_[device].lanes;
  const int64_t lane_bytes = devices_[device].room.lane_bytes;
  const bool fits = lane_bytes <= 0 || work.device_bytes <= lane_bytes;
  const bool small = IsSmall(work, device);
  size_t found = lanes.size();
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane] != 0 || (lane > 0 && !fits)) continue;
    if (work.resident.In(device, lane)) return lane;
    if (lane == 0 || small) found = lane;
  }
  return found;
}

// What a deadline is held against: no more than was predicted until a few jobs have taken more.
double Dispatcher::SurelyTakenMs(const Work& work, size_t device) const {
  const bool known = LearnedOf(work, device).jobs >= kKnownJobs;
  const double expected_ms = ExpectedMs(work, device);
  return known ? expected_ms : std::min(expected_ms, std::max(work.predicted_ms, kMinPredictedMs));
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
    return full(
        absl::StrCat("the queue holds ", queued(), " jobs, which is its limit (--max-queued-jobs)"),
        options_.max_queued);
  }
  if (options_.max_queued_per_tenant > 0 &&
      queue_.QueuedOf(work->tenant) >= options_.max_queued_per_tenant) {
    return full(absl::StrCat("tenant '", work->tenant, "' has ", queue_.QueuedOf(work->tenant),
                             " jobs in the queue, which is its limit "
                             "(--max-queued-jobs-per-tenant)"),
                options_.max_queued_per_tenant);
  }
  if (!left_ms) return absl::OkStatus();
  const double wait_ms = PlaceOf(*work, now).eta_ms;
  double run_ms = std::numeric_limits<double>::infinity();
  for (size_t d = 0; d < devices_.size(); ++d) {
    if ((work->devices & healthy_ & DeviceBit(d)) != 0) {
      run_ms = std::min(run_ms, SurelyTakenMs(*work, d));
    }
  }
  if (kSurelyTaken * (wait_ms + run_ms) <= *left_ms) return absl::OkStatus();
  ErrorBuilder error =
      MakeError(absl::StatusCode::kDeadlineExceeded, reason::kDeadlineInfeasible,
                absl::StrFormat("the job is predicted to wait %.3g ms and to run %.3g ms, and the "
                                "deadline of the call leaves %.3g ms; give it a later one, or "
                                "detach the job",
                                wait_ms, run_ms, *left_ms))
          .Meta("wait_ms", static_cast<int64_t>(wait_ms))
          .Meta("run_ms", static_cast<int64_t>(run_ms))
          .Meta("left_ms", static_cast<int64_t>(*left_ms));
  if (kSurelyTaken * run_ms <= *left_ms) error = std::move(error).Retry(RetryAfter(wait_ms / 2));
  return error;
}

void Dispatcher::Push(Work work) {
  size_t first = 0;
  while (first + 1 < devices_.size() && (work.devices & healthy_ & DeviceBit(first)) == 0) ++first;
  work.cost_ms = ExpectedMs(work, first);
  work.small = IsSmall(work, first);
  queue_.Push(std::move(work));
}

void Dispatcher::Forget(uint64_t id) {
  if (passed_over_since_.erase(id) == 0) return;
  for (Device& device : devices_) {
    if (device.reserved_for == id) device.reserved_for = 0;
  }
  if (host_reserved_for_ == id) host_reserved_for_ = 0;
}

bool Dispatcher::Remove(uint64_t id) {
  if (!queue_.Remove(id)) return false;
  Forget(id);
  return true;
}

void Dispatcher::SetPriority(uint64_t id, Priority priority) {
  if (queue_.Find(id) != nullptr) queue_.SetPriority(id, priority);
}

// --- What can start ---

void Dispatcher::NoteVisit(const std::string& tenant, TimePoint now, Device* device) {
  if (device->last && device->last->tenant != tenant) device->other = std::move(device->last);
  device->last = {tenant, now};
}

// Lanes that no long job holds are there for small ones. Work that is not small takes the first
// lane when its turn comes: nothing is left for others there.
bool Dispatcher::TakesOthersLane(const Work& work, size_t d, TimePoint now) const {
  const Device& device = devices_[d];
  const std::optional<Visitor>& other =
      device.last && device.last->tenant != work.tenant ? device.last : device.other;
  if (!other || now - other->at > options_.keeps_lane || !IsSmall(work, d)) return false;
  size_t for_small = 0, own = 0;
  for (const uint64_t id : device.lanes) {
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

// Whether it would not take room that is kept for a job that has been passed over for long.
bool Dispatcher::LeavesReserved(const Work& work, size_t d) const {
  const Device& device = devices_[d];
  if (const Work* const kept = queue_.Find(device.reserved_for); kept != nullptr) {
    if (kept->id == work.id) return true;
    if (LaneFor(work, d) == 0 && !IsSmall(*kept, d)) return false;
    if (device.room.memory_bytes > 0 && work.device_bytes > 0 &&
        device.used_bytes + work.device_bytes + kept->device_bytes > device.room.memory_bytes) {
      return false;
    }
  }
  const Work* const kept = queue_.Find(host_reserved_for_);
  return kept == nullptr || kept->id == work.id || work.host_bytes == 0 ||
         host_used_ + work.host_bytes + kept->host_bytes <= options_.host_bytes;
}

double Dispatcher::RemainingMs(const Running& running, size_t device, TimePoint now) const {
  const double expected =
      running.expected_ms > 0 ? running.expected_ms : ExpectedMs(running.work, device);
  return std::max(0.0, expected - ToMs(now - running.since));
}

// Until the device has a lane for it; 0: it has.
double Dispatcher::FreeInMs(size_t d, const Work& work, TimePoint now) const {
  const auto& lanes = devices_[d].lanes;
  const size_t count = IsSmall(work, d) ? lanes.size() : 1;
  double least = std::numeric_limits<double>::infinity();
  for (size_t lane = 0; lane < count; ++lane) {
    const uint64_t id = lanes[lane];
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
  if (device.reserved_for == 0 && !FitsDevice(work, d)) device.reserved_for = work.id;
  if (host_reserved_for_ == 0 && !FitsHost(work)) host_reserved_for_ = work.id;
}

std::optional<Dispatcher::Start> Dispatcher::StartOn(size_t d, TimePoint now) {
  // What waits for a lane waits for its turn, and is not passed over.
  const auto may_start = [&](const Work& work) {
    if ((work.devices & DeviceBit(d)) == 0 || LaneFor(work, d) == devices_[d].lanes.size()) {
      return Pass::kNoneLikeIt;
    }
    if (TakesOthersLane(work, d, now)) return Pass::kNoneLikeIt;
    return WantsHere(work, d, now) ? Pass::kYes : Pass::kNo;
  };
  const Work* const head = queue_.Peek(may_start);
  if (head == nullptr) return std::nullopt;
  if (!Fits(*head, d)) NotePassedOver(*head, d, now);
  std::optional<Work> work = queue_.Take([&](const Work& queued) {
    const Pass pass = may_start(queued);
    if (pass != Pass::kYes) return pass;
    return Fits(queued, d) && LeavesReserved(queued, d) ? Pass::kYes : Pass::kNo;
  });
  if (!work) return std::nullopt;
  Forget(work->id);

  Running running{.work = *std::move(work),
                  .devices = {d},
                  .lanes = {},
                  .expected_ms = 0,
                  .small = false,
                  .since = now};
  if (running.work.max_devices > 1 && !IsSmall(running.work, d)) AddIdleDevices(&running);
  const uint64_t id = running.work.id;
  running.expected_ms = ExpectedMs(running.work, d) / static_cast<double>(running.devices.size());
  running.small = IsSmall(running.work, d);
  for (const size_t e : running.devices) {
    Device& device = devices_[e];
    running.lanes.push_back(LaneFor(running.work, e));
    device.lanes[running.lanes.back()] = id;
    device.used_bytes += running.work.device_bytes;
    NoteVisit(running.work.tenant, now, &device);
  }
  host_used_ += running.work.host_bytes;
  Start start{id, running.devices, running.lanes[0]};
  running_.emplace(id, std::move(running));
  return start;
}

// Those that are idle, and that nobody in the queue has a use for.
void Dispatcher::AddIdleDevices(Running* running) const {
  for (size_t e = 0; e < devices_.size(); ++e) {
    if (static_cast<int>(running->devices.size()) >= running->work.max_devices) return;
    const Device& device = devices_[e];
    const DeviceMask bit = DeviceBit(e);
    if (e == running->devices[0] || (running->work.devices & healthy_ & bit) == 0) continue;
    const bool idle =
        std::all_of(device.lanes.begin(), device.lanes.end(), [](uint64_t id) { return id == 0; });
    if (!idle || device.reserved_for != 0) continue;
    const auto may_run = [bit](const Work& queued) {
      return (queued.devices & bit) != 0 ? Pass::kYes : Pass::kNoneLikeIt;
    };
    if (queue_.Peek(may_run) != nullptr) continue;
    running->devices.push_back(e);
  }
}

std::vector<Dispatcher::Start> Dispatcher::Dispatch(TimePoint now) {
  std::vector<Start> starts;
  std::vector<std::pair<size_t, size_t>> order;  // busy lanes, device: the idlest first
  while (queue_.size() > 0) {
    order.clear();
    for (size_t d = 0; d < devices_.size(); ++d) {
      if (!IsHealthy(d)) continue;
      const auto& lanes = devices_[d].lanes;
      const auto busy = static_cast<size_t>(
          std::count_if(lanes.begin(), lanes.end(), [](uint64_t id) { return id != 0; }));
      if (busy < lanes.size()) order.emplace_back(busy, d);
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

void Dispatcher::Finish(uint64_t id, bool learn, TimePoint now) {
  const auto it = running_.find(id);
  if (it == running_.end()) return;
  const Running running = std::move(it->second);
  running_.erase(it);
  for (size_t i = 0; i < running.devices.size(); ++i) {
    Device& device = devices_[running.devices[i]];
    device.lanes[running.lanes[i]] = 0;
    device.used_bytes -= running.work.device_bytes;
    NoteVisit(running.work.tenant, now, &device);
  }
  host_used_ -= running.work.host_bytes;
  const double took_ms = ToMs(now - running.since);
  const auto count = static_cast<double>(running.devices.size());
  queue_.Settle(running.work, took_ms * count - running.work.cost_ms);
  if (!learn || running.devices.size() > 1) return;
  const double measured =
      std::clamp(took_ms / std::max(running.work.predicted_ms, kMinPredictedMs), 1e-3, 1e3);
  Kind& kind = devices_[running.devices[0]].kinds[running.work.what];
  kind.all.Add(measured);
  kind.of_size[Kind::SizeOf(running.work.predicted_ms)].Add(measured);
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
    if ((queue_.Find(id)->fallback & healthy_) != 0) {
      queue_.FallBack(id);
    } else {
      Remove(id);
      orphans.push_back(id);
    }
  }
  return orphans;
}

// --- What is to be expected ---

Dispatcher::Timeline Dispatcher::RunningTimeline(TimePoint now) const {
  Timeline timeline;
  for (size_t d = 0; d < devices_.size(); ++d) {
    std::vector<double>& free_at = timeline.emplace_back();
    for (const uint64_t id : devices_[d].lanes) {
      free_at.push_back(id == 0 ? 0 : RemainingMs(running_.at(id), d, now));
    }
  }
  return timeline;
}

// Puts a job where it will run first; the milliseconds until it starts.
double Dispatcher::Put(const Work& work, Timeline* timeline) const {
  double* best = nullptr;
  double run_ms = 0;
  for (size_t d = 0; d < devices_.size(); ++d) {
    if ((work.devices & healthy_ & DeviceBit(d)) == 0) continue;
    std::vector<double>& free_at = (*timeline)[d];
    const auto first =
        IsSmall(work, d) ? std::min_element(free_at.begin(), free_at.end()) : free_at.begin();
    if (best == nullptr || *first < *best) {
      best = &*first;
      run_ms = ExpectedMs(work, d);
    }
  }
  if (best == nullptr) return 0;  // it is about to fail
  const double start = *best;
  *best += run_ms;
  return start;
}

std::vector<std::pair<uint64_t, Dispatcher::Place>> Dispatcher::Places(TimePoint now) const {
  std::vector<std::pair<uint64_t, Place>> places;
  places.reserve(queue_.size());
  Timeline timeline = RunningTimeline(now);
  std::vector<std::pair<DeviceMask, int64_t>> before;  // jobs by where they may run: few kinds
  for (const Work* work : queue_.Order()) {
    const DeviceMask devices = work->devices & healthy_;
    Place place;
    auto own = before.end();
    for (auto it = before.begin(); it != before.end(); ++it) {
      if ((it->first & devices) != 0) place.position += it->second;
      if (it->first == devices) own = it;
    }
    if (own == before.end()) {
      before.emplace_back(devices, 1);
    } else {
      ++own->second;
    }
    place.eta_ms = Put(*work, &timeline);
    places.emplace_back(work->id, place);
  }
  return places;
}

Dispatcher::Place Dispatcher::PlaceOf(const Work& work, TimePoint now) {
  const std::pair key(work.priority, work.devices);
  if (!is_long()) {
    found_.clear();
  } else if (const auto it = found_.find(key);
             it != found_.end() && now - it->second.at < PlacesLast()) {
    return it->second.place;
  }
  constexpr uint64_t kProbe = std::numeric_limits<uint64_t>::max();
  Work probe = work;
  probe.id = kProbe;
  Push(std::move(probe));
  Place place;
  for (const auto& [id, of_id] : Places(now)) {
    if (id == kProbe) place = of_id;
  }
  queue_.Remove(kProbe);
  if (is_long()) found_[key] = {place, now};
  return place;
}

double Dispatcher::BacklogMs(TimePoint now) const {
  Timeline timeline = RunningTimeline(now);
  for (const Work* work : queue_.Order()) Put(*work, &timeline);
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
    if (work.priority != priority) return;
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

std::vector<Dispatcher::Ratio> Dispatcher::Ratios() const {
  std::vector<Ratio> ratios;
  for (const Device& device : devices_) {
    for (const auto& [what, kind] : device.kinds) {
      ratios.push_back({device.room.name, what, kind.all.value, kind.all.jobs});
    }
  }
  return ratios;
}

}  // namespace spaid::server
