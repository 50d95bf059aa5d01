// Decides which job runs where, and when: the whole policy of the scheduler, without threads,
// clocks or jobs. The caller tells the time, so that tests play thousands of jobs in virtual time.
//
//   Dispatcher dispatcher({.devices = {{.name = "cpu", .slots = 2}, {.name = "gpu:0"}}});
//   RETURN_IF_ERROR(dispatcher.Admit(work, /*left_ms=*/{}, now));
//   dispatcher.Push(work, now);
//   for (const Dispatcher::Start& start : dispatcher.Dispatch(now)) { ... begin start.id ... }
//   dispatcher.Finish(id, {.learn = true}, now);                      // then Dispatch again
//
// A device runs jobs side by side in its slots: jobs that are not small in the first one,
// small ones in the others and, if nothing else wants it, in the first. FairQueue chooses what
// comes next. A job that finds no memory is passed over by jobs that do; once that has gone on for
// `max_passed_over`, memory is kept for it.
//
// While other tenants have used a device lately, a tenant's small jobs leave one of the slots for
// small jobs free, so that an occasional user need not wait for a job of those who flood the queue.
//
// A solve that has outrun its prediction can be paused while others wait (Pause): it gives its
// slots back, keeps its memory, and queues for its next turn, a slice of time, in the same slot,
// behind its tenant's other jobs of its class. The number of such solves on a device, in all and
// per tenant, and the host memory they hold are bounded by not starting others of their kind.
//
// Predictions are corrected by what the tenant's jobs of the same kind took before (Predictions).
// The time that a job takes is charged to its tenant's share while it runs.
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
  int slots = 1;
  int64_t memory_bytes = 0;  // for all that runs on it at once; 0: not counted
  int64_t slot_bytes = 0;    // the part for a job in a slot other than the first; 0: not counted
};

struct DispatcherOptions {
  std::vector<DeviceRoom> devices = {{.name = "cpu"}};  // at most kMaxDevices
  int64_t max_queued = 1024;
  int64_t max_queued_per_tenant = 0;  // 0: no limit of its own
  int64_t host_bytes = 0;             // for all that runs at once on all devices; 0: not counted
  double small_ms = 20;  // a job predicted at most this on one device, within slot_bytes, is small
  std::chrono::milliseconds max_passed_over{5'000};
  std::chrono::milliseconds keeps_slot{5'000};  // for other tenants, after their last job
  // A job that can be paused may be once it has run for twice its prediction, and for this long;
  // then again after turns of this length.
  std::chrono::milliseconds slice{250};
  // The most jobs of a device that were paused and are not done. At this number, and at a 16th of
  // it for one tenant (a quarter for small jobs), no further job of that tenant that may have to be
  // paused is started, except its first. 0: none is ever paused.
  int max_paused = 128;
  std::map<std::string, double> tenant_weights = {};  // over 0; a tenant without one has 1
  int64_t max_tenants = ShareRules().max_tenants;     // told apart in sharing the queue's places
};

// Not thread-safe.
class Dispatcher {
 public:
  struct Start {
    uint64_t id = 0;
    std::vector<size_t> devices;  // the first one's slot runs it; several if it may be split
    size_t slot = 0;              // on the first device
  };
  struct Place {
    int64_t position = 0;  // jobs ahead that may run on its devices
    double eta_ms = 0;     // predicted time until it starts
    double surely_ms = 0;  // the same if no job takes longer than its own prediction
  };
  // The ratio of measured to predicted time of one kind of work on one device: the tenants' median.
  struct Ratio {
    std::string device, what;
    double value = 1;
    int64_t jobs = 0;
  };

  explicit Dispatcher(DispatcherOptions options);

  // Decides if `work` may be queued; moves it to its fallback if its devices are lost. `left_ms`:
  // time until its deadline. Errors: UNAVAILABLE/DEVICE_LOST if no device is left for it;
  // RESOURCE_EXHAUSTED/QUEUE_FULL (limit), with a retry delay computed from what is queued and
  // running, if the queue is full, or its last places are for tenants with less than their share of
  // them (TenantShares: whoever was admitted is not thrown out for another);
  // DEADLINE_EXCEEDED/DEADLINE_INFEASIBLE if even a fifth of the predicted wait and run would be
  // too long, or half of it where jobs of the tenant and kind were measured (with a retry delay if
  // the wait is what is too long). That uses the jobs' own predictions: nobody is refused because
  // of what others' jobs taught.
  absl::Status Admit(Work* work, std::optional<double> left_ms, TimePoint now);
  // Returns the place that the work would have; in a long queue as found for similar work up to
  // PlacesLast() ago.
  Place PlaceOf(const Work& work, TimePoint now);
  void Push(Work work, TimePoint now);
  // Removes a job from the queue; false: it is not there.
  bool Remove(uint64_t id);
  // Moves a queued job to another class, which pays for it. Ignores any other id.
  void SetPriority(uint64_t id, Priority priority);

  // Returns all jobs that can start now, or go on.
  std::vector<Start> Dispatch(TimePoint now);
  struct Ended {
    bool learn = false;     // the job did all of the work that was predicted
    double iterations = 0;  // made by a solve
  };
  // Ends a job that was started.
  void Finish(uint64_t id, const Ended& ended, TimePoint now);

  // Returns when a running job's turn is over, after which it is paused if others wait; none:
  // never.
  std::optional<TimePoint> TurnEnds(uint64_t id) const;
  // A running job is expected to take so much longer from now on.
  void Expect(uint64_t id, double more_ms, TimePoint now);
  // Takes back the slots of a running job whose turn is over; Dispatch starts it again in its next
  // turn.
  void Pause(uint64_t id, TimePoint now);
  // Lets a paused job that was told to stop go on without a slot, to its near end.
  void GoOn(uint64_t id);
  bool IsPaused(uint64_t id) const;

  // Keeps the device from taking further jobs, while it is being probed, until as many calls of
  // Release.
  void Hold(size_t device) { ++devices_.at(device).held; }
  void Release(size_t device) { --devices_.at(device).held; }
  // Marks the device as lost: it takes no more work. Returns the ids of queued jobs that nothing
  // else may run, which leave the queue. Paused ones go on (GoOn), and will find out.
  std::vector<uint64_t> Lose(size_t device, const absl::Status& why);
  const absl::Status& DeviceStatus(size_t device) const { return devices_.at(device).lost; }
  DeviceMask healthy() const { return healthy_; }

  // Tells if the queue is so long that places in it are recomputed only now and then: after 10 us
  // per queued job, several times what that takes, and at least 10 ms.
  bool is_long() const { return queue_.size() > kLongQueue; }
  std::chrono::microseconds PlacesLast() const {
    return std::max(std::chrono::microseconds{10'000}, queued() * std::chrono::microseconds{10});
  }

  // Returns the place of every queued job, in about the order in which they will start. O(q log q)
  // for a queue of q jobs.
  std::vector<std::pair<uint64_t, Place>> Places(TimePoint now) const;
  double BacklogMs(TimePoint now) const;  // until the busiest device has run all present jobs
  int64_t queued() const { return static_cast<int64_t>(queue_.size()) - paused_; }  // never begun
  int64_t paused() const { return paused_; }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  struct ClassLoad {
    int64_t queued = 0;
    double predicted_ms = 0;  // device time
  };
  ClassLoad LoadOf(Priority priority) const;
  // Returns the predicted time of a job, corrected for the device on which it runs, or would be
  // quickest if it is queued; 0 for any other id.
  double PredictedMs(uint64_t id) const;
  // The time a running job may take before anybody wonders: no less for what its tenant has taught.
  double PatienceMs(uint64_t id) const;
  std::vector<Ratio> Ratios() const;
  // Returns the device time that jobs have taken since the start by tenant, in milliseconds; "": of
  // tenants beyond the first max_tenants that have no weight of their own.
  std::map<std::string, double> TakenMs(TimePoint now) const;

 private:
  static constexpr size_t kLongQueue = 64;
  struct Running {
    Work work;
    std::vector<size_t> devices;
    std::vector<size_t> slots;  // one on each device; none while it is paused
    double expected_ms = 0;
    bool small = false;     // as known when it started
    TimePoint since;        // start of this turn
    double ran_ms = 0;      // in earlier turns
    double charged_ms = 0;  // in this turn, on all devices
    double metered_ms = 0;  // the part of this turn that is in taken_ms_
    bool split = false;     // over several devices
    int pauses = 0;
  };
  // A tenant that had a job on a device, and when: the last one, and the last other one before.
  struct Visitor {
    std::string tenant;
    TimePoint at;
  };
  struct Device {
    DeviceRoom room;
    absl::Status lost;
    std::vector<uint64_t> slots;  // the running job; 0: free
    int64_t used_bytes = 0;
    int held = 0;
    uint64_t reserved_for = 0;  // a queued job that has been passed over for long
    // Jobs that have been paused, and are not through: by tenant, in all, what they hold.
    std::map<std::string, int> paused_of;
    int paused = 0;
    int64_t paused_bytes = 0;
    std::optional<Visitor> last, other;
  };
  // The times, in milliseconds from now, at which each slot of each device has finished its jobs.
  using Timeline = std::vector<std::vector<double>>;

  bool IsHealthy(size_t device) const { return (healthy_ & DeviceBit(device)) != 0; }
  double ExpectedMs(const Work& work, size_t device) const {
    return predictions_.ExpectedMs(work, device);
  }
  // Returns the time that a deadline is checked against: at most the work's own prediction.
  double SurelyTakenMs(const Work& work, size_t device) const {
    return std::min(ExpectedMs(work, device), Predictions::UnlearnedMs(work));
  }
  bool IsSmall(const Work& work, size_t device) const;
  // Returns a free slot that the work may take; if there is none, the number of slots.
  size_t SlotFor(const Work& work, size_t device) const;
  // Returns true if the work would take the slot that its tenant must leave to others.
  bool TakesOthersSlot(const Work& work, size_t device, TimePoint now) const;
  static void NoteVisit(const std::string& tenant, TimePoint now, Device* device);
  bool FitsDevice(const Work& work, size_t device) const;
  bool FitsHost(const Work& work) const;
  bool Fits(const Work& work, size_t device) const {
    return FitsDevice(work, device) && FitsHost(work);
  }
  bool LeavesReserved(const Work& work, size_t device) const;
  bool WantsHere(const Work& work, size_t device, TimePoint now) const;
  double FreeInMs(size_t device, const Work& work, TimePoint now) const;
  // Returns the time until the slot of a running job is free. `surely`: see Place.
  double RemainingMs(const Running& running, size_t device, TimePoint now,
                     bool surely = false) const;
  double TurnMs(const Running& running) const;
  bool MayComeFree(const Work& work, size_t device) const;
  bool MayPauseMore(const Work& work, size_t device) const;
  void Begin(Running& running, const std::vector<size_t>& slots, TimePoint now);
  void ChargeTurn(Running& running, TimePoint now);
  void TellApart(const std::string& tenant);
  static double TurnTakenMs(const Running& running, TimePoint now);
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
  std::unordered_map<uint64_t, TenantShares::Account> account_of_;  // by id, queued or running
  Predictions predictions_;
  std::map<std::string, double> taken_ms_;         // as TakenMs, but for what runs now
  std::unordered_map<uint64_t, Running> running_;  // paused ones, too
  int64_t paused_ = 0;                             // the paused ones, which are in the queue
  // Bytes of host memory in use, and the part that paused jobs hold.
  int64_t host_used_ = 0, host_paused_ = 0;
  std::map<std::string, int64_t> host_paused_of_;  // by tenant
  uint64_t host_reserved_for_ = 0;
  std::unordered_map<uint64_t, TimePoint> passed_over_since_;
  // A place found for work like `like`; `asked`: since places were last computed together.
  struct Found {
    Work like;
    Place place;
    bool known = false, asked = false;
  };
  // Places found by PlaceOf in a long queue, by tenant; "": any tenant that the queue does not
  // know.
  std::map<std::tuple<std::string, Priority, DeviceMask>, Found> found_;
  TimePoint found_at_{};
};

}  // namespace spaid::server
