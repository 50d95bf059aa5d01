// A byte-bounded least-recently-used cache of immutable values: plans, and what lies on devices.
//
//   ByteLru<kernels::Plan> plans(1 << 30, {0, 8 << 30});      // host bytes; those of two devices
//   if (auto plan = plans.Get(key)) ...
//   plans.Put(key, plan, plan->host_bytes(), /*pools=*/{1}, plan->device_bytes());
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spaid::server {

// A value that is too large for the cache is not kept (Put says so). Besides, each value may take
// bytes of pools, as many of each, which are bounded by themselves. Dropped values live on where
// somebody holds them. Thread-safe.
template <class T>
class ByteLru {
 public:
  struct Stats {
    int64_t entries = 0, bytes = 0, max_bytes = 0, hits = 0, misses = 0, evictions = 0;
  };

  // `pools`: the bytes of each.
  explicit ByteLru(int64_t max_bytes, std::vector<int64_t> pools = {})
      : max_bytes_(max_bytes), pools_(pools.size()) {
    for (size_t i = 0; i < pools.size(); ++i) pools_[i].max_bytes = pools[i];
  }

  // Null where there is none; marks the entry as used.
  std::shared_ptr<const T> Get(const std::string& key) {
    std::lock_guard lock(mutex_);
    auto it = index_.find(key);
    if (it == index_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    order_.splice(order_.begin(), order_, it->second);
    return it->second->value;
  }

  // A look, which is no use.
  bool Holds(const std::string& key) const {
    std::lock_guard lock(mutex_);
    return index_.contains(key);
  }

  // Replaces what the key had. False: larger than the whole cache or its pool, not kept.
  bool Put(const std::string& key, std::shared_ptr<const T> value, int64_t bytes,
           std::vector<size_t> pools = {}, int64_t pool_bytes = 0) {
    // Values die after the lock is gone: a plan may take long to free.
    std::vector<std::shared_ptr<const T>> dropped;
    std::lock_guard lock(mutex_);
    if (auto it = index_.find(key); it != index_.end()) Erase(it->second, &dropped);
    if (bytes > max_bytes_) return false;
    if (pool_bytes <= 0) pools.clear();
    for (const size_t pool : pools) {
      if (pool_bytes > pools_.at(pool).max_bytes) return false;
    }
    for (const size_t pool : pools) {
      EvictFrom(pool, pools_[pool].max_bytes - pool_bytes, &dropped);
      pools_[pool].bytes += pool_bytes;
    }
    while (bytes_ + bytes > max_bytes_) {
      ++evictions_;
      Erase(std::prev(order_.end()), &dropped);
    }
    order_.push_front({key, std::move(value), bytes, std::move(pools), pool_bytes});
    index_[key] = order_.begin();
    bytes_ += bytes;
    return true;
  }

  // Takes a value of which wanted(value) is true out, the most recently used one; null: there is
  // none.
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

  // Drops the values of which gone(value) is true: no eviction, they are worth nothing any more.
  template <class Gone>
  void Prune(const Gone& gone) {
    std::vector<std::shared_ptr<const T>> dropped;
    std::lock_guard lock(mutex_);
    for (auto it = order_.begin(); it != order_.end();) {
      const Iterator here = it++;
      if (gone(*here->value)) Erase(here, &dropped);
    }
  }

  // Drops everything that takes bytes of `pool`; how many there were.
  int64_t DropPool(size_t pool) {
    std::vector<std::shared_ptr<const T>> dropped;
    std::lock_guard lock(mutex_);
    EvictFrom(pool, 0, &dropped);
    return static_cast<int64_t>(dropped.size());
  }

  int64_t pool_bytes(size_t pool) const {
    std::lock_guard lock(mutex_);
    return pools_.at(pool).bytes;
  }

  Stats stats() const {
    std::lock_guard lock(mutex_);
    return {static_cast<int64_t>(order_.size()), bytes_, max_bytes_, hits_, misses_, evictions_};
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const T> value;
    int64_t bytes;
    std::vector<size_t> pools;  // empty where it takes no bytes of any
    int64_t pool_bytes;
  };
  struct Pool {
    int64_t max_bytes = 0, bytes = 0;
  };
  using Iterator = typename std::list<Entry>::iterator;

  void Erase(Iterator it, std::vector<std::shared_ptr<const T>>* dropped) {
    bytes_ -= it->bytes;
    for (const size_t pool : it->pools) pools_[pool].bytes -= it->pool_bytes;
    index_.erase(it->key);
    dropped->push_back(std::move(it->value));
    order_.erase(it);
  }

  // The least recently used first, until the pool holds no more than `bytes`.
  void EvictFrom(size_t pool, int64_t bytes, std::vector<std::shared_ptr<const T>>* dropped) {
    for (auto it = order_.end(); it != order_.begin() && pools_.at(pool).bytes > bytes;) {
      --it;
      if (std::find(it->pools.begin(), it->pools.end(), pool) == it->pools.end()) continue;
      ++evictions_;
      const Iterator victim = it++;
      Erase(victim, dropped);
    }
  }

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> order_;  // most recently used first
  std::unordered_map<std::string, Iterator> index_;
  std::vector<Pool> pools_;
  int64_t bytes_ = 0, hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace spaid::server
