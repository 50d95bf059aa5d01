// Chooses which queued job comes next: a data structure without threads, clock or devices.
//
//   FairQueue queue({{"alice", 2.0}});                       // weight 2, everybody else 1
//   queue.Push({.id = 1, .tenant = "alice", .cost_ms = 40, .devices = DeviceBit(0)});
//   std::optional<Work> next = queue.Take(
//       [](const Work& work) { return work.device_bytes < room ? Pass::kYes : Pass::kNo; });
//
// Weighted deficit round robin (Shreedhar, Varghese, IEEE/ACM Trans. Netw. 4, 1996) by predicted
// device time, two rounds one in the other: tenants share time as their weights, and within a
// tenant the classes of priority as kPriorityShares, each while they have work. So a class decides
// what of its own a tenant has first, and takes nothing from others, who would have to call all of
// their work urgent, too. Within a tenant's class first come, first served, but for what the
// caller's filter passes over.
//
// A tenant's job runs first and is paid off afterwards (surplus round robin: Adiseshu, Parulkar,
// Varghese, SIGCOMM 1996), so that who asks for little hardly waits for those who flood the queue.
// A class saves up for its next job before it runs, so that a long one of a lower class waits.
// A tenant that can use nothing saves up kSavedMs, no more, for its next burst; what it owes it
// still owes when it comes back, to those who waited meanwhile: what all who have work owe is owed
// to nobody, and forgotten, but for kOwedMs, when another one comes. So is everything when the
// queue has been empty.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/sched/priority.h"

namespace spaid::server {

// The devices that a job may run on: bit i is device i.
using DeviceMask = uint64_t;
inline constexpr DeviceMask kAnyDevice = ~DeviceMask{0};
inline constexpr size_t kMaxDevices = 64;
constexpr DeviceMask DeviceBit(size_t device) { return DeviceMask{1} << device; }

// Some slots of a device: bit i is slot i.
using SlotMask = uint64_t;

// Tells where data lies: on which devices and, if their slots have memory of their own, in which
// slots.
struct Residence {
  DeviceMask devices = 0;
  std::vector<SlotMask> slots = {};  // by device; beyond its end nothing is known

  void Add(size_t device, size_t slot) {
    devices |= DeviceBit(device);
    if (slots.size() <= device) slots.resize(device + 1);
    slots[device] |= SlotMask{1} << slot;
  }
  bool In(size_t device, size_t slot) const {
    return device < slots.size() && (slots[device] >> slot & 1) != 0;
  }
};

// Describes a job to the queue: what it needs and may cost.
struct Work {
  uint64_t id = 0;  // unique in a queue
  std::string tenant = {};
  Priority priority = Priority::kNormal;
  std::string what = {};    // kind of work, one of few: jobs whose predictions err alike
  double predicted_ms = 0;  // on one device
  double cost_ms = 0;       // device time charged to the tenant's share; at least 0
  DeviceMask devices = kAnyDevice;
  DeviceMask fallback = 0;  // used once all of `devices` are lost
  Residence resident = {};  // where its input lies; on other devices it takes `move_ms` more
  double move_ms = 0;
  int64_t device_bytes = 0;  // on each device that it runs on
  int64_t host_bytes = 0;
  int max_devices = 1;  // it may be split over as many, if they are idle
  bool small = false;   // takes another slot than the first, as known when it was queued
  // Solves only, else 0: the iterations that `predicted_ms` assumes, the time of one, and the most
  // iterations that there may be.
  double iterations = 0, iteration_ms = 0, max_iterations = 0;
  bool yields = false;  // it can be paused while it runs
  int slot = -1;        // the slot in which a paused job goes on; -1: any
};

// A filter's answer for a job. kNoneLikeIt: no, and skip all other jobs with the same tenant,
// class, devices and `small`.
enum class Pass { kYes, kNo, kNoneLikeIt };

// Not thread-safe.
class FairQueue {
 public:
  static constexpr double kSavedMs = 100, kOwedMs = 1000;  // for a weight of 1
  using Filter = absl::FunctionRef<Pass(const Work&)>;

  // `weights`: by tenant, over 0; a tenant without one has 1.
  explicit FairQueue(std::map<std::string, double> weights = {});

  void Push(Work work);
  // Queues a job again that was taken and is not done, behind the others of its tenant's class.
  void PushAgain(Work work);
  // Returns the job that Take would take; null: none passes. Valid until the queue changes.
  const Work* Peek(Filter passes) const;
  std::optional<Work> Take(Filter passes);
  std::optional<Work> Remove(uint64_t id);
  // Moves a queued job to its fallback; it keeps its turn.
  void FallBack(uint64_t id);
  // Moves a queued job to another class of its tenant, in which it is ordered by its arrival.
  void SetPriority(uint64_t id, Priority priority);
  // Charges the difference of the real to the predicted cost of a job that was taken; it may be
  // negative.
  void Settle(const Work& taken, double more_ms);

  const Work* Find(uint64_t id) const;
  size_t size() const { return places_.size(); }
  int64_t QueuedOf(const std::string& tenant) const;
  // Returns true if the tenant has jobs here, or owes or has saved time.
  bool Knows(const std::string& tenant) const { return by_name_.contains(tenant); }
  // Calls `see` with each queued job, in no order.
  void ForEach(absl::FunctionRef<void(const Work&)> see) const;
  // Returns all jobs, in about the order in which they would be taken if everything passed.
  std::vector<const Work*> Order() const;

 private:
  struct Entry {
    Work work;
    uint64_t sequence;
  };
  // Devices, small, slot: jobs that kNoneLikeIt skips together.
  using Group = std::tuple<DeviceMask, bool, int>;
  static Group GroupOf(const Work& work) { return {work.devices, work.small, work.slot}; }
  // A class of a tenant.
  struct Class {
    double deficit_ms = 0;  // saved up
    size_t jobs = 0;
    std::map<Group, std::list<Entry>> groups;
  };
  // A tenant without jobs stays until it has saved up the time that a new one begins with.
  struct Tenant {
    std::string name;
    double weight = 1;
    double deficit_ms = kSavedMs;  // under 0: owed
    size_t jobs = 0;
    Class classes[kPriorities];
  };
  using Turn = std::list<Tenant>::iterator;
  struct Place {
    Turn tenant;
    size_t priority;
    std::list<Entry>::iterator entry;
  };
  // The job that a tenant would give, and the rounds of its classes until then.
  struct Choice {
    const Entry* entry = nullptr;
    double rounds = 0;
  };
  struct Chosen {
    Choice choice;
    double rounds = 0;  // rounds of all tenants
  };

  double WeightOf(const std::string& tenant) const;
  Turn TenantOf(const std::string& name);
  void ForgiveAll();
  static std::list<Entry>::iterator TurnIn(std::list<Entry>& entries, uint64_t sequence);
  static const Entry* HeadOf(const Class& cls, Filter passes);
  static const Entry* AnyOf(const Tenant& tenant, Filter passes);
  static Choice ChooseIn(const Tenant& tenant, Filter passes);
  Chosen Choose(Filter passes) const;
  Work Erase(const Place& place);
  void DropIdle();
  static void AppendOrder(const Tenant& tenant, std::vector<const Entry*>* order);

  const std::map<std::string, double> weights_;
  std::list<Tenant> ring_;  // in the order of their turns
  std::unordered_map<std::string, Turn> by_name_;
  std::unordered_map<uint64_t, Place> places_;  // by id
  uint64_t next_sequence_ = 1;
};

}  // namespace spaid::server
