// A byte-bounded least-recently-used cache of immutable values: the plan cache.
//
//   ByteLru<kernels::Plan> plans(1 << 30);
//   if (auto plan = plans.Get(key)) ...
//   plans.Put(key, plan, plan->host_bytes());
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spaid::server {

// A value that is too large for the cache is not kept (Put says so). Dropped values live on where
// somebody holds them. Thread-safe.
template <class T>
class ByteLru {
 public:
  struct Stats {
    int64_t entries = 0, bytes = 0, max_bytes = 0, hits = 0, misses = 0, evictions = 0;
  };

  explicit ByteLru(int64_t max_bytes) : max_bytes_(max_bytes) {}

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

  // Replaces what the key had. False: larger than the whole cache, not kept.
  bool Put(const std::string& key, std::shared_ptr<const T> value, int64_t bytes) {
    // Values die after the lock is gone: a plan may take long to free.
    std::vector<std::shared_ptr<const T>> dropped;
    std::lock_guard lock(mutex_);
    if (auto it = index_.find(key); it != index_.end()) Erase(it->second, &dropped);
    if (bytes > max_bytes_) return false;
    while (bytes_ + bytes > max_bytes_) {
      ++evictions_;
      Erase(std::prev(order_.end()), &dropped);
    }
    order_.push_front({key, std::move(value), bytes});
    index_[key] = order_.begin();
    bytes_ += bytes;
    return true;
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
  };
  using Iterator = typename std::list<Entry>::iterator;

  void Erase(Iterator it, std::vector<std::shared_ptr<const T>>* dropped) {
    bytes_ -= it->bytes;
    index_.erase(it->key);
    dropped->push_back(std::move(it->value));
    order_.erase(it);
  }

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> order_;  // most recently used first
  std::unordered_map<std::string, Iterator> index_;
  int64_t bytes_ = 0, hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace spaid::server
