#include "server/base/clock.h"

#include <algorithm>

namespace spaid::server {
namespace {

class MachineClock : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
  WallTime WallNow() const override { return std::chrono::system_clock::now(); }
  void Wait(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
            std::optional<TimePoint> when) const override {
    if (when) {
      cv.wait_until(lock, *when);
    } else {
      cv.wait(lock);
    }
  }
};

// An arbitrary start that is neither zero nor the present.
constexpr std::chrono::hours kFakeStart{24 * 365 * 50};

}  // namespace

const Clock& RealClock() {
  static const MachineClock* clock = new MachineClock;
  return *clock;
}

TimePoint FakeClock::Now() const {
  std::lock_guard lock(mutex_);
  return TimePoint(kFakeStart) + elapsed_;
}

WallTime FakeClock::WallNow() const {
  std::lock_guard lock(mutex_);
  return WallTime(std::chrono::duration_cast<WallTime::duration>(kFakeStart + elapsed_));
}

void FakeClock::Wait(std::condition_variable& cv, std::unique_lock<std::mutex>& lock,
                     std::optional<TimePoint> when) const {
  {
    std::lock_guard guard(mutex_);
    // Asked again under our lock: an Advance between the caller's look at the clock and this line
    // did not see the caller among those to wake.
    if (when && TimePoint(kFakeStart) + elapsed_ >= *when) return;
    waiters_.push_back({&cv, lock.mutex()});
  }
  cv.wait(lock);
  std::lock_guard guard(mutex_);
  const auto it =
      std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.cv == &cv; });
  waiters_.erase(it);
}

void FakeClock::Advance(std::chrono::nanoseconds step) {
  std::vector<Waiter> waiters;
  {
    std::lock_guard lock(mutex_);
    elapsed_ += step;
    waiters = waiters_;
  }
  for (const Waiter& waiter : waiters) {
    // Taken once, so that whoever registered is waiting by now and the notification is not lost.
    { std::lock_guard lock(*waiter.mutex); }
    waiter.cv->notify_all();
  }
}

}  // namespace spaid::server
