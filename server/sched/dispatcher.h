// Who runs where, and when: the whole of the scheduler's policy, without threads, clocks or jobs.
// The time is what the caller says it is, so that tests play thousands of jobs in virtual time.
//
//   Dispatcher dispatcher({.devices = {{.name = "cpu", .lanes = 2}, {.name = "gpu:0"}}});
//   RETURN_IF_ERROR(dispatcher.Admit(work, /*left_ms=*/{}, now));
//   dispatcher.Push(work, now);
//   for (const Dispatcher::Start& start : dispatcher.Dispatch(now)) { ... begin start.id ... }
//   dispatcher.Finish(id, {.learn = true}, now);                      // then Dispatch again
//
// A device takes jobs side by side in its lanes: what is not small in the first one, small ones in
// the others and, where nothing else wants it, there. What comes next is FairQueue's choice. A job
// that finds no room is passed over by those that do; once that has gone on for `max_passed_over`,
// room is kept for it.
//
// While others have been there lately, a tenant's small jobs leave one of the lanes that are there
// for small ones: who asks for little need not wait for one of those who flood the queue to end.
//
// A solve that has outrun its prediction can be paused while others wait (Pause): it gives its
// lanes back, keeps its memory, and queues for its next turn, a slice of time, in that lane, behind
// what its tenant has in its class. How many there are of those on a device, in all and of one
// tenant, and what they hold of the host's memory, is bounded by not starting others of their kind.
//
// Predictions are corrected by what its tenant's jobs of the same kind took before (Predictions).
// What a job takes is settled with its tenant's share while it runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/base/tenant_shares.h"
#include "server/sched/fair_queue.h"
#include "server/sched/predictions.h"

namespace spaid::server {

struct DeviceRoom {
  std::string name;
  int lanes = 1;
  int64_t memory_bytes = 0;  // of what runs on it at once; 0: not counted
  int64_t lane_bytes = 0;    // of it, that a job may take in a lane but the first; 0: not counted
};

struct DispatcherOptions {
  std::vector<DeviceRoom> devices = {{.name = "cpu"}};  // at most kMaxDevices
  int64_t max_queued = 1024;
  int64_t max_queued_per_tenant = 0;  // 0: no limit of its own
  int64_t host_bytes = 0;             // of what runs at once, all devices; 0: not counted
  double small_ms = 20;  // predicted for one device: a job up to this, and a lane's bytes, is small
  std::chrono::milliseconds max_passed_over{5'000};
  std::chrono::milliseconds keeps_lane{5'000};  // for the others, after the last job of theirs
  // A job that can be paused may be once it has run for twice its prediction, and for this long;
  // then again after turns of this length.
  std::chrono::milliseconds slice{250};
  // Jobs of a device that have been paused and are not through yet: at so many, and at a 16th of it
  // of one tenant (of small jobs a quarter), no other of that tenant that may have to be is
  // started, but for its first. 0: none is ever paused.
  int max_paused = 128;
  std::map<std::string, double> tenant_weights = {};  // over 0; 1 where there is none
  int64_t max_tenants = ShareRules().max_tenants;     // ShareRules: of the places in the queue
};

// Not thread-safe.
class Dispatcher {
 public:
  struct Start {
    uint64_t id = 0;
    std::vector<size_t> devices;  // the first one's lane runs it; more where it may be split
    size_t lane = 0;              // of the first
  };
  struct Place {
    int64_t position = 0;  // jobs ahead that may run on its devices
    double eta_ms = 0;     // until it starts, as far as one knows
    double surely_ms = 0;  // the same, where no job takes longer than it says itself
  };
  // Measured over predicted time of one kind of work on one device: the median over the tenants.
  struct Ratio {
    std::string device, what;
    double value = 1;
    int64_t jobs = 0;
  };

  explicit Dispatcher(DispatcherOptions options);

  // Whether `work` may be queued; where its devices are lost, it is moved to its fallback.
  // `left_ms`: until its deadline. Errors: UNAVAILABLE/DEVICE_LOST where no device is left for it;
  // RESOURCE_EXHAUSTED/QUEUE_FULL (limit) with a retry delay computed from what is queued and
  // running, where the queue is full, or its last places are for tenants with less than their share
  // of them (TenantShares): who was let in is not thrown out again for another;
  // DEADLINE_EXCEEDED/DEADLINE_INFEASIBLE where even half of the predicted wait and run would be
  // too long (with a retry delay where the wait is what is too long): as the jobs say themselves,
  // for nobody is refused by what others' jobs taught.
  absl::Status Admit(Work* work, std::optional<double> left_ms, TimePoint now);
  // Where it would stand. Of a long queue what was found for the like up to PlacesLast() ago.
  Place PlaceOf(const Work& work, TimePoint now);
  void Push(Work work, TimePoint now);
  // Out of the queue; false: it is not there.
  bool Remove(uint64_t id);
  // Moves a queued job to another class, which pays for it. Any other id: nothing.
  void SetPriority(uint64_t id, Priority priority);

  // All that can start now, or go on.
  std::vector<Start> Dispatch(TimePoint now);
  struct Ended {
    bool learn = false;     // after doing all that was predicted
    double iterations = 0;  // that a solve made
  };
  // A job that was started has ended.
  void Finish(uint64_t id, const Ended& ended, TimePoint now);

  // When a running job's turn is over, so that it is to be paused where others wait; none: never.
  std::optional<TimePoint> TurnEnds(uint64_t id) const;
  // A running job whose turn is over gives its lanes back; Dispatch starts it again when its next
  // turn comes.
  void Pause(uint64_t id, TimePoint now);
  // A paused job goes on without a lane, to its end, which is near: it was told to stop.
  void GoOn(uint64_t id);
  bool IsPaused(uint64_t id) const;

  // The device takes no further job until Release, once for each Hold: it is being looked at.
  void Hold(size_t device) { ++devices_.at(device).held; }
  void Release(size_t device) { --devices_.at(device).held; }
  // The device takes no more work. Queued jobs that nothing else may run leave the queue: their
  // ids. Paused ones go on (GoOn), and will find out.
  std::vector<uint64_t> Lose(size_t device, const absl::Status& why);
  const absl::Status& DeviceStatus(size_t device) const { return devices_.at(device).lost; }
  DeviceMask healthy() const { return healthy_; }

  // A queue so long that places in it are counted anew only now and then: after 10 us for each
  // queued job, several times what the counting takes, and 10 ms at the least.
  bool is_long() const { return queue_.size() > kLongQueue; }
  std::chrono::microseconds PlacesLast() const {
    return std::max(std::chrono::microseconds{10'000}, queued() * std::chrono::microseconds{10});
  }

  // Of every queued job, in about the order in which they will start. O(q log q) for a queue of q.
  std::vector<std::pair<uint64_t, Place>> Places(TimePoint now) const;
  double BacklogMs(TimePoint now) const;  // until the busiest device has run all that is there
  int64_t queued() const { return static_cast<int64_t>(queue_.size()) - paused_; }  // never begun
  int64_t paused() const { return paused_; }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  struct ClassLoad {
    int64_t queued = 0;
    double predicted_ms = 0;  // of devices' time
  };
  ClassLoad LoadOf(Priority priority) const;
  // The predicted time of a job that is queued or runs, as corrected where it runs, or where it
  // would take the least; of any other 0.
  double PredictedMs(uint64_t id) const;
  // What a running job may take before anybody wonders: no less for what its tenant has taught.
  double PatienceMs(uint64_t id) const;
  std::vector<Ratio> Ratios() const;

 private:
  static constexpr size_t kLongQueue = 64;
  struct Running {
    Work work;
    std::vector<size_t> devices;
    std::vector<size_t> lanes;  // of each of them; none while it is paused
    double expected_ms = 0;
    bool small = false;     // as was known when it started
    TimePoint since;        // of this turn
    double ran_ms = 0;      // in turns before
    double charged_ms = 0;  // of all devices, in this turn
    bool split = false;     // over several devices
    int pauses = 0;
  };
  // Who had a job on a device last, and who was the last before that other than that.
  struct Visitor {
    std::string tenant;
    TimePoint at;
  };
  struct Device {
    DeviceRoom room;
    absl::Status lost;
    std::vector<uint64_t> lanes;  // the running job; 0: free
    int64_t used_bytes = 0;
    int held = 0;
    uint64_t reserved_for = 0;  // a queued job that has been passed over for long
    // Jobs that have been paused, and are not through: by tenant, in all, what they hold.
    std::map<std::string, int> paused_of;
    int paused = 0;
    int64_t paused_bytes = 0;
    std::optional<Visitor> last, other;
  };
  // When each device's lanes are through with what was put there, in milliseconds from now.
  using Timeline = std::vector<std::vector<double>>;

  bool IsHealthy(size_t device) const { return (healthy_ & DeviceBit(device)) != 0; }
  double ExpectedMs(const Work& work, size_t device) const {
    return predictions_.ExpectedMs(work, device);
  }
  // What a deadline is held against: no more than the work says itself.
  double SurelyTakenMs(const Work& work, size_t device) const {
    return std::min(ExpectedMs(work, device), Predictions::UnlearnedMs(work));
  }
  bool IsSmall(const Work& work, size_t device) const;
  // A free one that it may take; none: the number of lanes.
  size_t LaneFor(const Work& work, size_t device) const;
  // Whether it would take the lane that its tenant leaves to others.
  bool TakesOthersLane(const Work& work, size_t device, TimePoint now) const;
  static void NoteVisit(const std::string& tenant, TimePoint now, Device* device);
  bool FitsDevice(const Work& work, size_t device) const;
  bool FitsHost(const Work& work) const;
  bool Fits(const Work& work, size_t device) const {
    return FitsDevice(work, device) && FitsHost(work);
  }
  bool LeavesReserved(const Work& work, size_t device) const;
  bool WantsHere(const Work& work, size_t device, TimePoint now) const;
  double FreeInMs(size_t device, const Work& work, TimePoint now) const;
  // Until the lane of a running job is free. `surely`: see Place.
  double RemainingMs(const Running& running, size_t device, TimePoint now,
                     bool surely = false) const;
  double TurnMs(const Running& running) const;
  bool MayComeFree(const Work& work, size_t device) const;
  bool MayPauseMore(const Work& work, size_t device) const;
  void Begin(Running& running, const std::vector<size_t>& lanes, TimePoint now);
  void ChargeTurn(Running& running, TimePoint now);
  void ChargeRunning(TimePoint now);
  void Leave(Running& running, TimePoint now);
  int64_t QueuedOf(const std::string& tenant) const;
  void Enqueue(Work work);
  std::optional<Start> StartOn(size_t device, TimePoint now);
  void AddIdleDevices(Running* running) const;
  void NotePassedOver(const Work& work, size_t device, TimePoint now);
  void Forget(uint64_t id);  // its place in the queue, and since when it was passed over
  Timeline RunningTimeline(TimePoint now, bool surely) const;
  double Put(const Work& work, bool surely, Timeline* timeline) const;

  const DispatcherOptions options_;
  std::vector<Device> devices_;
  DeviceMask healthy_;
  FairQueue queue_;
  TenantShares places_;                                             // in the queue
  std::unordered_map<uint64_t, TenantShares::Account> account_of_;  // of what is queued or runs
  Predictions predictions_;
  std::unordered_map<uint64_t, Running> running_;  // paused ones, too
  int64_t paused_ = 0;                             // of these, in the queue
  // Bytes of the host's memory; what paused jobs hold is counted apart.
  int64_t host_used_ = 0, host_paused_ = 0;
  std::map<std::string, int64_t> host_paused_of_;  // by tenant
  uint64_t host_reserved_for_ = 0;
  std::unordered_map<uint64_t, TimePoint> passed_over_since_;
  // A place that was looked for, of `like`; `asked` for since the like were looked for together.
  struct Found {
    Work like;
    Place place;
    bool known = false, asked = false;
  };
  // By PlaceOf, in a long queue: of a tenant; empty: of any that the queue does not know.
  std::map<std::tuple<std::string, Priority, DeviceMask>, Found> found_;
  TimePoint found_at_{};
};

}  // namespace spaid::server
