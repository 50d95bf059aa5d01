#include "server/base/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace spaid::server {
namespace {

TEST(FakeClockTest, MovesOnlyWhenTold) {
  FakeClock clock;
  const TimePoint start = clock.Now();
  const WallTime wall = clock.WallNow();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(std::chrono::milliseconds(1500));
  EXPECT_EQ(ToMs(clock.Now() - start), 1500);
  EXPECT_EQ(clock.WallNow() - wall, std::chrono::milliseconds(1500));
}

TEST(FakeClockTest, WakesWhoWaitsForATime) {
  FakeClock clock;
  const TimePoint when = clock.Now() + std::chrono::hours(1);
  std::mutex mutex;
  std::condition_variable cv;
  bool waiting = false;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    waiting = true;
    while (clock.Now() < when) clock.Wait(cv, lock, when);
  });
  // However the two threads interleave, no step is lost on the waiter: the second one passes
  // `when`.
  clock.Advance(std::chrono::minutes(30));
  clock.Advance(std::chrono::minutes(30));
  waiter.join();
  EXPECT_TRUE(waiting);
}

TEST(RealClockTest, WaitEndsAtItsTime) {
  std::mutex mutex;
  std::condition_variable cv;
  std::unique_lock lock(mutex);
  const TimePoint when = RealClock().Now() + std::chrono::milliseconds(5);
  while (RealClock().Now() < when) RealClock().Wait(cv, lock, when);
  EXPECT_GE(RealClock().Now(), when);
}

}  // namespace
}  // namespace spaid::server
