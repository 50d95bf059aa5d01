// Finds the scheduler's threads that hang: without threads and locks, by the time that it is told.
//
//   HangWatch watch({.factor = 20, .floor = 60s});
//   watch.Begin(3, [job] { return job->TakeSignOfLife(); }, predicted_ms, now);
//   for (const HangWatch::Hung& hung : watch.Tick(now)) ...        // each watch.tick()
//   watch.End(3);
//
// A thread that runs long but shows signs of life does not hang. Silence is counted in ticks, so
// that a process that was stopped, or had no core, for a while does not count as silent.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "server/base/clock.h"

namespace spaid::server {

struct HangLimits {
  double factor = 0;  // times the predicted time; 0: nobody watches
  std::chrono::nanoseconds floor = std::chrono::seconds(60);  // and at least this; over 0
};

// Not thread-safe.
class HangWatch {
 public:
  struct Hung {
    size_t thread = 0;
    std::chrono::nanoseconds silent{0};
  };

  explicit HangWatch(HangLimits limits);

  bool on() const { return limits_.factor > 0; }
  // Returns how often Tick is wanted while any thread is watched.
  std::chrono::nanoseconds tick() const { return tick_; }
  bool watching() const { return !threads_.empty(); }

  // Watches `thread` (any number of the caller's) from now on. `alive` returns true if there was a
  // sign of life since the last call; empty: there will be none.
  void Begin(size_t thread, std::function<bool()> alive, double predicted_ms, TimePoint now);
  void End(size_t thread);
  // Returns the threads that have been silent for their limit, and stops watching them.
  std::vector<Hung> Tick(TimePoint now);

 private:
  struct Watched {
    std::function<bool()> alive;
    std::chrono::nanoseconds limit{0}, silent{0};
    TimePoint last;
  };

  const HangLimits limits_;
  const std::chrono::nanoseconds tick_;
  std::map<size_t, Watched> threads_;
};

}  // namespace spaid::server
