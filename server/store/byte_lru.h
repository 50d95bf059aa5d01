// A byte-bounded least-recently-used cache of immutable values: plans, and things that lie on
// devices. Tenants share it by the rule of TenantShares.
//
//   ByteLru<kernels::Plan> plans(1 << 30, {0, 8 << 30});      // host bytes; those of two devices
//   if (auto plan = plans.Get(key)) ...
//   plans.Put(tenant, key, plan, plan->host_bytes(), /*pools=*/{1}, plan->device_bytes());
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/base/tenant_shares.h"

namespace spaid::server {

// A value that is too large for the cache is not kept (Put says so). A value may also take bytes
// from pools, the same number from each, which have bounds of their own. Dropped values live on
// while somebody holds them. Thread-safe.
template <class T>
class ByteLru {
 public:
  struct Stats {
    int64_t entries = 0, bytes = 0, max_bytes = 0, hits = 0, misses = 0, evictions = 0;
    int64_t tenants = 0;
  };

  // `pools`: the byte limit of each pool.
  explicit ByteLru(int64_t max_bytes, std::vector<int64_t> pools = {}, ShareRules shares = {})
      : shares_({.limits = Limits(max_bytes, pools),
                 .rules = std::move(shares),
                 .active_for = TenantShares::kLately}) {}

  // Returns the value, or null; marks the entry as used.
  std::shared_ptr<const T> Get(const std::string& key) {
    std::lock_guard lock(mutex_);
    auto it = index_.find(key);
    if (it == index_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    const Iterator entry = it->second;
    order_.splice(order_.begin(), order_, entry);
    auto node = of_[entry->account].extract(entry->used);
    entry->used = node.key() = next_use_++;
    of_[entry->account].insert(std::move(node));
    shares_.Touch(entry->account);
    return entry->value;
  }

  // Returns true if the key is present, without marking the entry as used.
  bool Holds(const std::string& key) const {
    std::lock_guard lock(mutex_);
    return index_.contains(key);
  }

  // Stores a value in place of the key's old one. False: it is larger than the whole cache or its
  // pool, or than what its tenant may have of it beside others, and is not kept. `free_room`: where
  // nothing has to go for it alone, and else it is not kept either.
  bool Put(const std::string& tenant, const std::string& key, std::shared_ptr<const T> value,
           int64_t bytes, std::vector<size_t> pools = {}, int64_t pool_bytes = 0,
           bool free_room = false) {
    // Values die after the lock is gone: a plan may take long to free.
    std::vector<std::shared_ptr<const T>> dropped;
    std::lock_guard lock(mutex_);
    if (auto it = index_.find(key); it != index_.end()) Erase(it->second, &dropped);
    if (pool_bytes <= 0) pools.clear();
    if (bytes > shares_.limit() - (free_room ? shares_.used() : 0)) return false;
    for (const size_t pool : pools) {
      const int64_t taken = free_room ? shares_.used(1 + pool) : 0;
      if (pool_bytes > shares_.limit(1 + pool) - taken) return false;
    }
    const Account account = shares_.Join(tenant);
    bool fits = MakeRoom(account, bytes, 0, &dropped);
    for (const size_t pool : pools) {
      fits = fits && MakeRoom(account, pool_bytes, 1 + pool, &dropped);
    }
    if (!fits) {
      shares_.Leave(account);
      return false;
    }
    shares_.Add(account, bytes);
    for (const size_t pool : pools) shares_.Add(account, pool_bytes, 1 + pool);
    order_.push_front(
        {key, std::move(value), bytes, std::move(pools), pool_bytes, account, next_use_++});
    index_[key] = order_.begin();
    of_[account][order_.front().used] = order_.begin();
    return true;
  }

  // Removes and returns the most recently used value for which wanted(value) is true; null: there
  // is none.
  template <class Wanted>
  std::shared_ptr<const T> Take(const Wanted& wanted) {
    std::vector<std::shared_ptr<const T>> taken;
    std::lock_guard lock(mutex_);
    for (auto it = order_.begin(); it != order_.end(); ++it) {
      if (!wanted(*it->value)) continue;
      Erase(it, &taken);
      return std::move(taken.front());
    }
    return nullptr;
  }

  // Drops the values for which gone(value) is true; not counted as evictions, for they are
  // worthless.
  template <class Gone>
  void Prune(const Gone& gone) {
    std::vector<std::shared_ptr<const T>> dropped;
    std::lock_guard lock(mutex_);
    for (auto it = order_.begin(); it != order_.end();) {
      const Iterator here = it++;
      if (gone(*here->value)) Erase(here, &dropped);
    }
  }

  // Drops all values that take bytes of `pool`; returns how many.
  int64_t DropPool(size_t pool) {
    std::vector<std::shared_ptr<const T>> dropped;
    std::lock_guard lock(mutex_);
    for (auto it = order_.begin(); it != order_.end();) {
      const Iterator here = it++;
      if (!Takes(*here, 1 + pool)) continue;
      ++evictions_;
      Erase(here, &dropped);
    }
    return static_cast<int64_t>(dropped.size());
  }

  int64_t pool_bytes(size_t pool) const {
    std::lock_guard lock(mutex_);
    return shares_.used(1 + pool);
  }

  Stats stats() const {
    std::lock_guard lock(mutex_);
    return {static_cast<int64_t>(order_.size()),
            shares_.used(),
            shares_.limit(),
            hits_,
            misses_,
            evictions_,
            shares_.tenants()};
  }

 private:
  using Account = TenantShares::Account;
  struct Entry {
    std::string key;
    std::shared_ptr<const T> value;
    int64_t bytes;
    std::vector<size_t> pools;  // empty where it takes no bytes of any
    int64_t pool_bytes;
    Account account;
    uint64_t used;  // sequence number of its last use
  };
  using Iterator = typename std::list<Entry>::iterator;

  // Returns the limits for TenantShares: bytes, then those of each pool.
  static std::vector<int64_t> Limits(int64_t max_bytes, std::vector<int64_t> pools) {
    pools.insert(pools.begin(), max_bytes);
    return pools;
  }

  static bool Takes(const Entry& entry, size_t of) {
    return of == 0 ||
           std::find(entry.pools.begin(), entry.pools.end(), of - 1) != entry.pools.end();
  }

  void Erase(Iterator it, std::vector<std::shared_ptr<const T>>* dropped) {
    shares_.Add(it->account, -it->bytes);
    for (const size_t pool : it->pools) shares_.Add(it->account, -it->pool_bytes, 1 + pool);
    const auto own = of_.find(it->account);
    own->second.erase(it->used);
    if (own->second.empty()) of_.erase(own);
    shares_.Leave(it->account);
    index_.erase(it->key);
    dropped->push_back(std::move(it->value));
    order_.erase(it);
  }

  // Drops values of the tenants that yield, the least recently used first, until `bytes` more fit.
  // False: they do not.
  bool MakeRoom(Account account, int64_t bytes, size_t of,
                std::vector<std::shared_ptr<const T>>* dropped) {
    // Nothing goes for what does not fit then either.
    if (shares_.OverShare(account, bytes, of)) {
      int64_t may_go = shares_.UsedBy(account, of);
      for (const auto& [other, unused] : of_) {
        if (other != account && !shares_.Active(other)) may_go += shares_.UsedBy(other, of);
      }
      if (shares_.used(of) - may_go > shares_.limit(of) - bytes) return false;
    }
    const auto has_some = [&](Account other) { return shares_.UsedBy(other, of) > 0; };
    while (shares_.used(of) > shares_.limit(of) - bytes) {
      const Account yields = shares_.Yields(account, bytes, has_some, of);
      if (yields == nullptr) return false;
      const auto& own = of_.at(yields);
      const auto least = std::find_if(own.begin(), own.end(), [&](const auto& used) {
        return Takes(*used.second, of) && (of > 0 || used.second->bytes > 0);
      });
      ++evictions_;
      Erase(least->second, dropped);
    }
    return true;
  }

  mutable std::mutex mutex_;
  TenantShares shares_;
  std::list<Entry> order_;  // most recently used first
  std::unordered_map<std::string, Iterator> index_;
  std::unordered_map<Account, std::map<uint64_t, Iterator>> of_;  // by use; none is empty
  uint64_t next_use_ = 1;
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace spaid::server
