#include "server/sched/fair_queue.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace spaid::server {
namespace {

// What a weight of 1 earns in a round. Work that costs less takes turns one by one; the rounds that
// costly work has to wait are counted, not gone through.
constexpr double kQuantumMs = 5;
// Jobs of one group that are looked at for one that passes.
constexpr int kScan = 256;

// Tenants without work that are remembered, at most.
constexpr size_t kIdle = 4096;

// Until what is missing has been earned.
double Rounds(double missing_ms, double weight) {
  return std::max(0.0, std::ceil(missing_ms / (kQuantumMs * weight)));
}

}  // namespace

FairQueue::FairQueue(std::map<std::string, double> weights) : weights_(std::move(weights)) {}

double FairQueue::WeightOf(const std::string& tenant) const {
  const auto it = weights_.find(tenant);
  return it == weights_.end() ? 1 : it->second;
}

void FairQueue::Push(Work work) {
  const auto priority = static_cast<size_t>(work.priority);
  const auto flow = FlowIn(priority, work.tenant);
  ++classes_[priority].jobs;
  ++queued_of_[work.tenant];
  std::list<Entry>& entries = flow->groups[GroupOf(work)];
  const uint64_t id = work.id;
  entries.push_back({std::move(work), next_sequence_++});
  places_[id] = {priority, flow, std::prev(entries.end())};
}

std::list<FairQueue::Flow>::iterator FairQueue::FlowIn(size_t priority, const std::string& tenant) {
  Class& cls = classes_[priority];
  auto [it, is_new] = cls.by_tenant.try_emplace(tenant);
  if (is_new) {
    cls.ring.push_back({tenant, WeightOf(tenant), kSavedMs, {}});
    it->second = std::prev(cls.ring.end());
  }
  return it->second;
}

// Before those that came later.
std::list<FairQueue::Entry>::iterator FairQueue::TurnIn(std::list<Entry>& entries,
                                                        uint64_t sequence) {
  return std::find_if(entries.begin(), entries.end(),
                      [sequence](const Entry& entry) { return entry.sequence > sequence; });
}

// The flow's first job that passes, by the order in which they came.
const FairQueue::Entry* FairQueue::HeadOf(const Flow& flow, Filter passes) {
  const Entry* head = nullptr;
  for (const auto& [group, entries] : flow.groups) {
    int scanned = 0;
    for (const Entry& entry : entries) {
      if (head != nullptr && entry.sequence > head->sequence) break;
      const Pass pass = passes(entry.work);
      if (pass == Pass::kYes) head = &entry;
      if (pass != Pass::kNo || ++scanned == kScan) break;
    }
  }
  return head;
}

FairQueue::Choice FairQueue::ChooseIn(const Class& cls, Filter passes) {
  Choice best;
  for (const Flow& flow : cls.ring) {
    const Entry* const head = HeadOf(flow, passes);
    if (head == nullptr) continue;
    const double rounds = Rounds(-flow.deficit_ms, flow.weight);
    if (best.entry == nullptr || rounds < best.rounds) best = {head, rounds};
  }
  return best;
}

FairQueue::Chosen FairQueue::Choose(Filter passes) const {
  Chosen chosen;
  for (size_t p = 0; p < kPriorities; ++p) {
    chosen.of[p] = ChooseIn(classes_[p], passes);
    const Entry* const head = chosen.of[p].entry;
    if (head == nullptr) continue;
    const double rounds = Rounds(head->work.cost_ms - classes_[p].deficit_ms, kPriorityShares[p]);
    if (chosen.priority == kPriorities || rounds < chosen.rounds) {
      chosen.priority = p;
      chosen.rounds = rounds;
    }
  }
  return chosen;
}

const Work* FairQueue::Peek(Filter passes) const {
  const Chosen chosen = Choose(passes);
  return chosen.priority == kPriorities ? nullptr : &chosen.of[chosen.priority].entry->work;
}

std::optional<Work> FairQueue::Take(Filter passes) {
  const Chosen chosen = Choose(passes);
  if (chosen.priority == kPriorities) return std::nullopt;
  for (size_t p = 0; p < kPriorities; ++p) {
    if (chosen.of[p].entry == nullptr) continue;
    classes_[p].deficit_ms += chosen.rounds * kQuantumMs * kPriorityShares[p];
  }
  Class& cls = classes_[chosen.priority];
  const Choice& choice = chosen.of[chosen.priority];
  const double cost_ms = choice.entry->work.cost_ms;
  if (choice.rounds > 0) {
    for (Flow& flow : cls.ring) {
      const double earned = choice.rounds * kQuantumMs * flow.weight;
      const bool uses = HeadOf(flow, passes) != nullptr;
      flow.deficit_ms =
          uses ? flow.deficit_ms + earned : std::min(flow.deficit_ms + earned, kSavedMs);
    }
  }
  const Place place = places_.at(choice.entry->work.id);
  cls.deficit_ms -= cost_ms;
  place.flow->deficit_ms -= cost_ms;
  cls.ring.splice(cls.ring.end(), cls.ring, place.flow);  // the others' turn
  return Erase(place);
}

std::optional<Work> FairQueue::Remove(uint64_t id) {
  const auto it = places_.find(id);
  if (it == places_.end()) return std::nullopt;
  return Erase(Place(it->second));
}

Work FairQueue::Erase(const Place& place) {
  Work work = std::move(place.entry->work);
  places_.erase(work.id);
  if (const auto it = queued_of_.find(work.tenant); --it->second == 0) queued_of_.erase(it);
  Flow& flow = *place.flow;
  const auto entries = flow.groups.find(GroupOf(work));
  entries->second.erase(place.entry);
  if (entries->second.empty()) flow.groups.erase(entries);
  Class& cls = classes_[place.priority];
  if (--cls.jobs == 0) cls.deficit_ms = 0;
  if (places_.empty() || cls.ring.size() > kIdle + cls.jobs) {
    for (Class& any : classes_) DropIdle(any);
  }
  return work;
}

void FairQueue::DropIdle(Class& cls) {
  for (auto it = cls.ring.begin(); it != cls.ring.end();) {
    if (it->groups.empty()) {
      cls.by_tenant.erase(it->tenant);
      it = cls.ring.erase(it);
    } else {
      ++it;
    }
  }
}

void FairQueue::FallBack(uint64_t id) {
  Place& place = places_.at(id);
  auto& groups = place.flow->groups;
  Work& work = place.entry->work;
  const auto from = groups.find(GroupOf(work));
  work.devices = std::exchange(work.fallback, 0);
  std::list<Entry>& to = groups[GroupOf(work)];
  to.splice(TurnIn(to, place.entry->sequence), from->second, place.entry);
  if (from->second.empty()) groups.erase(from);
}

void FairQueue::SetPriority(uint64_t id, Priority priority) {
  Place& place = places_.at(id);
  const auto to = static_cast<size_t>(priority);
  if (place.priority == to) return;
  Work& work = place.entry->work;
  const auto flow = FlowIn(to, work.tenant);
  auto& left = place.flow->groups;
  const auto from = left.find(GroupOf(work));
  work.priority = priority;
  std::list<Entry>& entries = flow->groups[GroupOf(work)];
  entries.splice(TurnIn(entries, place.entry->sequence), from->second, place.entry);
  if (from->second.empty()) left.erase(from);
  if (Class& cls = classes_[place.priority]; --cls.jobs == 0) cls.deficit_ms = 0;
  ++classes_[to].jobs;
  place.priority = to;
  place.flow = flow;
}

void FairQueue::Settle(const Work& taken, double more_ms) {
  Class& cls = classes_[static_cast<size_t>(taken.priority)];
  if (cls.jobs > 0) cls.deficit_ms -= more_ms;
  if (const auto it = cls.by_tenant.find(taken.tenant); it != cls.by_tenant.end()) {
    it->second->deficit_ms -= more_ms;
  }
}

const Work* FairQueue::Find(uint64_t id) const {
  const auto it = places_.find(id);
  return it == places_.end() ? nullptr : &it->second.entry->work;
}

int64_t FairQueue::QueuedOf(const std::string& tenant) const {
  const auto it = queued_of_.find(tenant);
  return it == queued_of_.end() ? 0 : it->second;
}

void FairQueue::ForEach(absl::FunctionRef<void(const Work&)> see) const {
  for (const auto& [id, place] : places_) see(place.entry->work);
}

std::vector<const Work*> FairQueue::Order() const {
  // Round by round; in a round by turns.
  using Turn = std::tuple<double, size_t, size_t>;  // round, of the flow's (class's) jobs, flow
  std::vector<std::pair<Turn, const Work*>> all;
  all.reserve(size());
  std::vector<const Entry*> own;
  std::vector<std::pair<Turn, const Work*>> of_class;
  for (size_t p = 0; p < kPriorities; ++p) {
    const Class& cls = classes_[p];
    of_class.clear();
    size_t turn = 0;
    for (const Flow& flow : cls.ring) {
      own.clear();
      for (const auto& [group, entries] : flow.groups) {
        for (const Entry& entry : entries) own.push_back(&entry);
      }
      if (flow.groups.size() > 1) {
        std::sort(own.begin(), own.end(),
                  [](const Entry* x, const Entry* y) { return x->sequence < y->sequence; });
      }
      double owed_ms = -flow.deficit_ms;
      for (size_t k = 0; k < own.size(); ++k) {
        of_class.push_back({{Rounds(owed_ms, flow.weight), k, turn}, &own[k]->work});
        owed_ms += own[k]->work.cost_ms;
      }
      ++turn;
    }
    std::sort(of_class.begin(), of_class.end());
    double cost_ms = 0;
    for (size_t k = 0; k < of_class.size(); ++k) {
      cost_ms += of_class[k].second->cost_ms;
      all.push_back(
          {{Rounds(cost_ms - cls.deficit_ms, kPriorityShares[p]), p, k}, of_class[k].second});
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<const Work*> order;
  order.reserve(all.size());
  for (const auto& [turn, work] : all) order.push_back(work);
  return order;
}

}  // namespace spaid::server
