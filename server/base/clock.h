// Time as the daemon sees it, replaceable in tests.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace spaid::server {

using TimePoint = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;
using Milliseconds = std::chrono::duration<double, std::milli>;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  virtual WallTime WallNow() const = 0;
  // Waits on `cv` until it is notified, `when` has come (none: only a notification ends it), or for
  // no reason at all: callers check their condition again. `lock` holds the mutex of `cv`.
  virtual void Wait(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                    std::optional<TimePoint> when) const = 0;
};

// The machine's clocks; never destroyed.
const Clock& RealClock();

// Stands still until told. Its mutexes outlive every Advance that runs while someone waits.
class FakeClock : public Clock {
 public:
  TimePoint Now() const override;
  WallTime WallNow() const override;
  void Wait(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
            std::optional<TimePoint> when) const override;
  // Moves both clocks on and wakes everyone who waits on this clock.
  void Advance(std::chrono::nanoseconds step);

 private:
  struct Waiter {
    std::condition_variable* cv;
    std::mutex* mutex;
  };
  mutable std::mutex mutex_;
  std::chrono::nanoseconds elapsed_{0};
  mutable std::vector<Waiter> waiters_;
};

// Seconds and nanoseconds since 1970 into a google.protobuf.Timestamp.
template <class Timestamp>
void SetTime(WallTime when, Timestamp* timestamp) {
  const auto ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
  timestamp->set_seconds(ns / 1'000'000'000);
  timestamp->set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
}

inline double ToMs(std::chrono::nanoseconds d) { return Milliseconds(d).count(); }

}  // namespace spaid::server
