// Who runs where, and when: the whole of the scheduler's policy, without threads, clocks or jobs.
// The time is what the caller says it is, so that tests play thousands of jobs in virtual time.
//
//   Dispatcher dispatcher({.devices = {{.name = "cpu", .lanes = 2}, {.name = "gpu:0"}}});
//   RETURN_IF_ERROR(dispatcher.Admit(work, /*left_ms=*/{}, now));
//   dispatcher.Push(work, now);
//   for (const Dispatcher::Start& start : dispatcher.Dispatch(now)) { ... begin start.id ... }
//   dispatcher.Finish(id, took_ms, now);                              // then Dispatch again
//
// A device takes jobs side by side in its lanes: what is not small in the first one, small ones in
// the others and, where nothing else wants it, there. What comes next is FairQueue's choice. A job
// that finds no room is passed over by those that do; once that has gone on for `max_passed_over`,
// room is kept for it.
//
// While others have been there lately, a tenant's small jobs leave one of the lanes that are there
// for small ones: who asks for little need not wait for one of those who flood the queue to end.
//
// Predictions are corrected by what jobs of the same kind took on the same device before, of about
// the same size where there were such. What a job took in the end is settled with its tenant's
// share.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/sched/fair_queue.h"

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
  std::map<std::string, double> tenant_weights = {};  // over 0; 1 where there is none
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
  };
  // Measured over predicted time of one kind of work on one device.
  struct Ratio {
    std::string device, what;
    double value = 1;
    int64_t jobs = 0;
  };

  explicit Dispatcher(DispatcherOptions options);

  // Whether `work` may be queued; where its devices are lost, it is moved to its fallback.
  // `left_ms`: until its deadline. Errors: UNAVAILABLE/DEVICE_LOST where no device is left for it;
  // RESOURCE_EXHAUSTED/QUEUE_FULL (limit) with a retry delay computed from what is queued and
  // running; DEADLINE_EXCEEDED/DEADLINE_INFEASIBLE where even half of the predicted wait and run
  // would be too long (with a retry delay where the wait is what is too long).
  absl::Status Admit(Work* work, std::optional<double> left_ms, TimePoint now);
  // Where it would stand. Of a long queue what was found for the like up to PlacesLast() ago.
  Place PlaceOf(const Work& work, TimePoint now);
  void Push(Work work);
  // Out of the queue; false: it is not there.
  bool Remove(uint64_t id);
  // Moves a queued job to another class, which pays for it. Any other id: nothing.
  void SetPriority(uint64_t id, Priority priority);

  // All that can start now.
  std::vector<Start> Dispatch(TimePoint now);
  // A job that was started has ended; `learn`: after doing all that was predicted.
  void Finish(uint64_t id, bool learn, TimePoint now);

  // The device takes no more work. Queued jobs that nothing else may run leave the queue: their
  // ids.
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
  double BacklogMs(TimePoint now) const;  // of the busiest device: estimated wait of a job sent now
  int64_t queued() const { return static_cast<int64_t>(queue_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  struct ClassLoad {
    int64_t queued = 0;
    double predicted_ms = 0;  // of devices' time
  };
  ClassLoad LoadOf(Priority priority) const;
  // The predicted time of a job that is queued or runs, as corrected where it runs, or where it
  // would take the least; 0: of no other.
  double PredictedMs(uint64_t id) const;
  std::vector<Ratio> Ratios() const;

 private:
  static constexpr size_t kLongQueue = 64;
  struct Running {
    Work work;
    std::vector<size_t> devices;
    std::vector<size_t> lanes;  // of each of them
    double expected_ms = 0;
    bool small = false;  // as was known when it started
    TimePoint since;
  };
  struct Learned {
    double value = 1;  // measured over predicted time
    int64_t jobs = 0;
    void Add(double measured);
  };
  // Of one kind of work. What is wrong with the prediction of a short job is often something else
  // than with that of a long one.
  struct Kind {
    static constexpr size_t kSizes = 16;
    static size_t SizeOf(double predicted_ms);  // by factors of four
    Learned all;
    std::array<Learned, kSizes> of_size;
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
    uint64_t reserved_for = 0;  // a queued job that has been passed over for long
    std::map<std::string, Kind> kinds;
    std::optional<Visitor> last, other;
  };
  // When each device's lanes are through with what was put there, in milliseconds from now.
  using Timeline = std::vector<std::vector<double>>;

  bool IsHealthy(size_t device) const { return (healthy_ & DeviceBit(device)) != 0; }
  Learned LearnedOf(const Work& work, size_t device) const;
  double ExpectedMs(const Work& work, size_t device) const;
  double SurelyTakenMs(const Work& work, size_t device) const;
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
  double RemainingMs(const Running& running, size_t device, TimePoint now) const;
  std::optional<Start> StartOn(size_t device, TimePoint now);
  void AddIdleDevices(Running* running) const;
  void NotePassedOver(const Work& work, size_t device, TimePoint now);
  void Forget(uint64_t id);  // what is remembered of a queued job that was passed over
  Timeline RunningTimeline(TimePoint now) const;
  double Put(const Work& work, Timeline* timeline) const;

  const DispatcherOptions options_;
  std::vector<Device> devices_;
  DeviceMask healthy_;
  FairQueue queue_;
  std::unordered_map<uint64_t, Running> running_;
  int64_t host_used_ = 0;
  uint64_t host_reserved_for_ = 0;
  std::unordered_map<uint64_t, TimePoint> passed_over_since_;
  struct Found {
    Place place;
    TimePoint at;
  };
  std::map<std::pair<Priority, DeviceMask>, Found> found_;  // by PlaceOf, in a long queue
};

}  // namespace spaid::server
