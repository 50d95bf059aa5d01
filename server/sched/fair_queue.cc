#include "server/sched/fair_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace spaid::server {
namespace {

// The time that a weight of 1 earns in a round. Work that costs less takes turns one by one; the
// rounds that costly work has to wait are computed, not played.
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
  if (!places_.empty() && TenantOf(work.tenant)->jobs == 0) ForgiveAll();
  PushAgain(std::move(work));
}

void FairQueue::PushAgain(Work work) {
  const auto priority = static_cast<size_t>(work.priority);
  const Turn tenant = TenantOf(work.tenant);
  ++tenant->jobs;
  Class& cls = tenant->classes[priority];
  ++cls.jobs;
  std::list<Entry>& entries = cls.groups[GroupOf(work)];
  const uint64_t id = work.id;
  entries.push_back({std::move(work), next_sequence_++});
  places_[id] = {tenant, priority, std::prev(entries.end())};
}

FairQueue::Turn FairQueue::TenantOf(const std::string& name) {
  auto [it, is_new] = by_name_.try_emplace(name);
  if (is_new) {
    Tenant& tenant = ring_.emplace_back();
    tenant.name = name;
    tenant.weight = WeightOf(name);
    it->second = std::prev(ring_.end());
  }
  return it->second;
}

// Forgives debts if all tenants with work owe something: they owe it to nobody who waits, and a
// tenant that comes now has no claim to it.
void FairQueue::ForgiveAll() {
  double rounds = std::numeric_limits<double>::infinity();
  for (const Tenant& tenant : ring_) {
    if (tenant.jobs == 0) continue;
    const double owed_ms = -tenant.deficit_ms / tenant.weight;
    rounds = std::min(rounds, (owed_ms - kOwedMs) / kQuantumMs);
    if (rounds <= 0) return;
  }
  if (!std::isfinite(rounds)) return;
  for (Tenant& tenant : ring_) {
    tenant.deficit_ms = std::min(tenant.deficit_ms + rounds * kQuantumMs * tenant.weight, kSavedMs);
  }
}

// Before those that came later.
std::list<FairQueue::Entry>::iterator FairQueue::TurnIn(std::list<Entry>& entries,
                                                        uint64_t sequence) {
  return std::find_if(entries.begin(), entries.end(),
                      [sequence](const Entry& entry) { return entry.sequence > sequence; });
}

// The class's first job that passes, by the order in which they came.
const FairQueue::Entry* FairQueue::HeadOf(const Class& cls, Filter passes) {
  const Entry* head = nullptr;
  for (const auto& [group, entries] : cls.groups) {
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

const FairQueue::Entry* FairQueue::AnyOf(const Tenant& tenant, Filter passes) {
  for (const Class& cls : tenant.classes) {
    if (cls.jobs == 0) continue;
    if (const Entry* const head = HeadOf(cls, passes)) return head;
  }
  return nullptr;
}

FairQueue::Choice FairQueue::ChooseIn(const Tenant& tenant, Filter passes) {
  Choice best;
  for (size_t p = 0; p < kPriorities; ++p) {
    const Class& cls = tenant.classes[p];
    const Entry* const head = cls.jobs == 0 ? nullptr : HeadOf(cls, passes);
    if (head == nullptr) continue;
    const double rounds = Rounds(head->work.cost_ms - cls.deficit_ms, kPriorityShares[p]);
    if (best.entry == nullptr || rounds < best.rounds) best = {head, rounds};
  }
  return best;
}

FairQueue::Chosen FairQueue::Choose(Filter passes) const {
  Chosen chosen;
  for (const Tenant& tenant : ring_) {
    if (tenant.jobs == 0) continue;
    const double rounds = Rounds(-tenant.deficit_ms, tenant.weight);
    if (chosen.choice.entry != nullptr && rounds >= chosen.rounds) continue;
    const Choice choice = ChooseIn(tenant, passes);
    if (choice.entry == nullptr) continue;
    chosen = {choice, rounds};
    if (rounds == 0) break;
  }
  return chosen;
}

const Work* FairQueue::Peek(Filter passes) const {
  const Entry* const entry = Choose(passes).choice.entry;
  return entry == nullptr ? nullptr : &entry->work;
}

std::optional<Work> FairQueue::Take(Filter passes) {
  const Chosen chosen = Choose(passes);
  if (chosen.choice.entry == nullptr) return std::nullopt;
  const Place place = places_.at(chosen.choice.entry->work.id);
  const double cost_ms = chosen.choice.entry->work.cost_ms;
  if (chosen.rounds > 0) {
    for (Tenant& tenant : ring_) {
      tenant.deficit_ms += chosen.rounds * kQuantumMs * tenant.weight;
      if (tenant.deficit_ms <= kSavedMs || AnyOf(tenant, passes) != nullptr) continue;
      tenant.deficit_ms = kSavedMs;
    }
  }
  Tenant& tenant = *place.tenant;
  if (chosen.choice.rounds > 0) {
    for (size_t p = 0; p < kPriorities; ++p) {
      Class& cls = tenant.classes[p];
      if (cls.jobs == 0 || HeadOf(cls, passes) == nullptr) continue;
      cls.deficit_ms += chosen.choice.rounds * kQuantumMs * kPriorityShares[p];
    }
  }
  tenant.classes[place.priority].deficit_ms -= cost_ms;
  tenant.deficit_ms -= cost_ms;
  ring_.splice(ring_.end(), ring_, place.tenant);  // the others' turn
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
  Tenant& tenant = *place.tenant;
  Class& cls = tenant.classes[place.priority];
  const auto entries = cls.groups.find(GroupOf(work));
  entries->second.erase(place.entry);
  if (entries->second.empty()) cls.groups.erase(entries);
  if (--cls.jobs == 0) cls.deficit_ms = 0;
  --tenant.jobs;
  if (places_.empty() || ring_.size() > kIdle + places_.size()) DropIdle();
  return work;
}

void FairQueue::DropIdle() {
  for (auto it = ring_.begin(); it != ring_.end();) {
    if (it->jobs == 0) {
      by_name_.erase(it->name);
      it = ring_.erase(it);
    } else {
      ++it;
    }
  }
}

void FairQueue::FallBack(uint64_t id) {
  Place& place = places_.at(id);
  auto& groups = place.tenant->classes[place.priority].groups;
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
  Class& left = place.tenant->classes[place.priority];
  Class& joined = place.tenant->classes[to];
  const auto from = left.groups.find(GroupOf(work));
  work.priority = priority;
  std::list<Entry>& entries = joined.groups[GroupOf(work)];
  entries.splice(TurnIn(entries, place.entry->sequence), from->second, place.entry);
  if (from->second.empty()) left.groups.erase(from);
  if (--left.jobs == 0) left.deficit_ms = 0;
  ++joined.jobs;
  place.priority = to;
}

void FairQueue::Settle(const Work& taken, double more_ms) {
  const auto it = by_name_.find(taken.tenant);
  if (it == by_name_.end()) return;
  Tenant& tenant = *it->second;
  // Time that is given back makes no savings: it was asked for, and not used.
  const double most = more_ms < 0 ? std::max(tenant.deficit_ms, kSavedMs) : tenant.deficit_ms;
  tenant.deficit_ms = std::min(tenant.deficit_ms - more_ms, most);
  Class& cls = tenant.classes[static_cast<size_t>(taken.priority)];
  if (cls.jobs > 0) cls.deficit_ms -= more_ms;
}

const Work* FairQueue::Find(uint64_t id) const {
  const auto it = places_.find(id);
  return it == places_.end() ? nullptr : &it->second.entry->work;
}

int64_t FairQueue::QueuedOf(const std::string& tenant) const {
  const auto it = by_name_.find(tenant);
  return it == by_name_.end() ? 0 : static_cast<int64_t>(it->second->jobs);
}

void FairQueue::ForEach(absl::FunctionRef<void(const Work&)> see) const {
  for (const auto& [id, place] : places_) see(place.entry->work);
}

// A tenant's jobs round by round of its classes; in a round the upper class first.
void FairQueue::AppendOrder(const Tenant& tenant, std::vector<const Entry*>* order) {
  using Key = std::tuple<double, size_t, size_t>;  // round, class, of the class's jobs
  std::vector<std::pair<Key, const Entry*>> all;
  for (size_t p = 0; p < kPriorities; ++p) {
    const Class& cls = tenant.classes[p];
    const size_t before = order->size();
    for (const auto& [group, entries] : cls.groups) {
      for (const Entry& entry : entries) order->push_back(&entry);
    }
    const auto own = order->begin() + static_cast<std::ptrdiff_t>(before);
    if (cls.groups.size() > 1) {
      std::sort(own, order->end(),
                [](const Entry* x, const Entry* y) { return x->sequence < y->sequence; });
    }
    if (cls.jobs == tenant.jobs) return;  // there is no other
    double cost_ms = 0;
    for (auto it = own; it != order->end(); ++it) {
      cost_ms += (*it)->work.cost_ms;
      const double rounds = Rounds(cost_ms - cls.deficit_ms, kPriorityShares[p]);
      all.push_back({{rounds, p, static_cast<size_t>(it - own)}, *it});
    }
    order->resize(before);
  }
  std::sort(all.begin(), all.end());
  for (const auto& [turn, entry] : all) order->push_back(entry);
}

std::vector<const Work*> FairQueue::Order() const {
  // Round by round; in a round by turns.
  using Key = std::tuple<double, size_t, size_t>;  // round, of the tenant's jobs, tenant
  std::vector<std::pair<Key, const Work*>> all;
  all.reserve(size());
  std::vector<const Entry*> own;
  size_t turn = 0;
  for (const Tenant& tenant : ring_) {
    if (tenant.jobs == 0) continue;
    own.clear();
    AppendOrder(tenant, &own);
    double owed_ms = -tenant.deficit_ms;
    for (size_t k = 0; k < own.size(); ++k) {
      all.push_back({{Rounds(owed_ms, tenant.weight), k, turn}, &own[k]->work});
      owed_ms += own[k]->work.cost_ms;
    }
    ++turn;
  }
  std::sort(all.begin(), all.end());
  std::vector<const Work*> order;
  order.reserve(all.size());
  for (const auto& [key, work] : all) order.push_back(work);
  return order;
}

}  // namespace spaid::server
