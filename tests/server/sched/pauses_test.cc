// Jobs that give their slots back while others wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/server/sched/dispatcher_fixture.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class PausesTest : public DispatcherTest {
 protected:
  // A solve that says that it takes so long.
  Work Solve(double predicted_ms, const std::string& tenant = "t") {
    Work work = Of(predicted_ms);
    work.tenant = tenant;
    work.what = "solve";
    work.iterations = 100;
    work.iteration_ms = predicted_ms / 100;
    work.max_iterations = 1e9;
    work.yields = true;
    return work;
  }
  int Turn(const Dispatcher& d, uint64_t id) const {
    return static_cast<int>(ToMs(*d.TurnEnds(id) - now_));
  }

  // Ids of what has each of so many turns, one at a time, each paused after `ms`.
  std::vector<uint64_t> Turns(Dispatcher& dispatcher, int count, int ms) {
    std::vector<uint64_t> had;
    for (int turn = 0; turn < count; ++turn) {
      const auto ids = Start(dispatcher);
      EXPECT_EQ(ids.size(), 1);
      if (ids.empty()) break;
      had.push_back(ids[0]);
      Wait(ms);
      dispatcher.Pause(ids[0], now_);
    }
    return had;
  }
};

TEST_F(PausesTest, ATurnIsTwiceThePredictionThenASlice) {
  Dispatcher d({.devices = {{.name = "cpu", .slots = 2}}, .slice = milliseconds(250)});
  const uint64_t longer = Push(d, Solve(1000)), build = Push(d, Of(1000));
  EXPECT_THAT(Start(d), ElementsAre(longer));
  EXPECT_EQ(Turn(d, longer), 2000);
  EXPECT_EQ(d.TurnEnds(build), std::nullopt) << "it does not run";
  Wait(2000);
  d.Pause(longer, now_);
  EXPECT_TRUE(d.IsPaused(longer));
  EXPECT_EQ(d.queued(), 1) << "what is paused has begun";
  EXPECT_EQ(d.running(), 1);
  EXPECT_EQ(d.paused(), 1);
  EXPECT_THAT(Start(d), ElementsAre(build)) << "of one tenant in turn";
  EXPECT_EQ(d.TurnEnds(build), std::nullopt);
  d.Finish(build, {}, now_);
  EXPECT_THAT(Start(d), ElementsAre(longer));
  EXPECT_EQ(Turn(d, longer), 250);
  d.Pause(longer, now_);
  EXPECT_THAT(Start(d), ElementsAre(longer)) << "nobody else waits";
  d.Finish(longer, {}, now_);
  EXPECT_EQ(d.running(), 0);
  const uint64_t small = Push(d, Solve(5));
  EXPECT_THAT(Start(d), ElementsAre(small));
  EXPECT_EQ(Turn(d, small), 250);
}

// A tenant cannot teach that its turns are longer.
TEST_F(PausesTest, TimeOfAllTurnsIsToldAndOfThePausesNone) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .slice = milliseconds(10)});
  const uint64_t id = Push(d, Solve(10));
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_THAT(Start(d), ElementsAre(id));
    Wait(100);
    d.Pause(id, now_);
    Wait(1000);
  }
  EXPECT_THAT(d.TakenMs(now_), ElementsAre(testing::Pair(testing::_, 300)));
  EXPECT_THAT(Start(d), ElementsAre(id));
  Wait(7);
  EXPECT_THAT(d.TakenMs(now_), ElementsAre(testing::Pair(testing::_, 307)));
  d.Finish(id, {}, now_);
  EXPECT_THAT(d.TakenMs(now_), ElementsAre(testing::Pair(testing::_, 307)));
}

TEST_F(PausesTest, ATurnIsNoLongerForWhatWasLearned) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .slice = milliseconds(10)});
  for (int i = 0; i < 5; ++i) {
    const uint64_t id = Push(d, Solve(10));
    EXPECT_THAT(Start(d), ElementsAre(id));
    Wait(10'000);
    d.Finish(id, {.learn = true, .iterations = 100'000}, now_);
  }
  const uint64_t id = Push(d, Solve(10));
  EXPECT_NEAR(d.PredictedMs(id), 10'000, 1);
  EXPECT_THAT(Start(d), ElementsAre(id));
  EXPECT_EQ(Turn(d, id), 20);
}

TEST_F(PausesTest, APausedJobKeepsItsMemoryAndItsSlot) {
  Dispatcher d({.devices = {{.name = "cpu"}, {.name = "gpu:0", .slots = 2, .memory_bytes = 100}},
                .max_passed_over = milliseconds(0)});
  Work holds = Solve(1000);
  holds.devices = kSecond;
  holds.device_bytes = 60;
  Push(d, holds);
  EXPECT_THAT(Start(d), ElementsAre(holds.id));
  Work fits = Of(1000, kSecond), does_not = Of(1000, kSecond);
  fits.device_bytes = 40;
  does_not.device_bytes = 50;
  for (const Work* work : {&does_not, &fits}) Push(d, *work);
  Wait(2000);
  d.Pause(holds.id, now_);
  // Room that its holder may keep for long is kept for nobody.
  auto starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_EQ(starts[0].id, fits.id);
  d.Finish(fits.id, {}, now_);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_EQ(starts[0].id, holds.id);
  EXPECT_THAT(starts[0].devices, ElementsAre(1));
  EXPECT_EQ(starts[0].slot, 0);
  d.Finish(holds.id, {}, now_);
  EXPECT_THAT(Start(d), ElementsAre(does_not.id));
}

// Memory of the host that paused jobs hold keeps no other work from it, and is bounded by itself:
// all of them hold as much as may run at once, those of a tenant beyond its first a quarter of
// that.
TEST_F(PausesTest, MemoryOfTheHostIsCountedApart) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .host_bytes = 1000});
  const auto of = [&](const std::string& tenant, int64_t bytes) {
    Work work = Solve(100, tenant);
    work.host_bytes = bytes;
    return work;
  };
  const uint64_t first = Push(d, of("evil", 700));
  EXPECT_THAT(Start(d), ElementsAre(first));
  Work build = Of(100);
  build.tenant = "good";
  build.host_bytes = 1000;
  Push(d, build);
  Wait(250);
  d.Pause(first, now_);
  EXPECT_THAT(Start(d), ElementsAre(build.id)) << "it has all to itself";
  d.Finish(build.id, {}, now_);
  const uint64_t more = Push(d, of("evil", 100));
  const uint64_t too_much = Push(d, of("good", 301)), fits = Push(d, of("good", 300));
  std::vector<uint64_t> begun = Turns(d, 40, 10);
  EXPECT_THAT(begun, testing::IsSupersetOf({first, fits}));
  EXPECT_THAT(begun, testing::Each(testing::AnyOf(first, fits))) << more << " " << too_much;
  d.GoOn(first);
  d.Finish(first, {}, now_);
  for (int turn = 0; turn < 40; ++turn) {
    const auto ids = Start(d);
    ASSERT_EQ(ids.size(), 1);
    begun.push_back(ids[0]);
    Wait(10);
    d.Pause(ids[0], now_);
  }
  EXPECT_THAT(begun, testing::Contains(more));
  EXPECT_THAT(begun, testing::Not(testing::Contains(too_much))) << "a quarter is a tenant's";
}

TEST_F(PausesTest, AStoppedJobGoesOnWithoutASlot) {
  Dispatcher d({.devices = {{.name = "cpu", .memory_bytes = 100}}});
  Work solve = Solve(100);
  solve.device_bytes = 60;
  Push(d, solve);
  EXPECT_THAT(Start(d), ElementsAre(solve.id));
  const uint64_t other = Push(d, Of(100));
  Wait(250);
  d.Pause(solve.id, now_);
  EXPECT_THAT(Start(d), ElementsAre(other));
  d.GoOn(solve.id);
  EXPECT_FALSE(d.IsPaused(solve.id));
  EXPECT_EQ(d.running(), 2);
  EXPECT_EQ(d.paused(), 0);
  Work large = Of(1);
  large.device_bytes = 50;
  Push(d, large);
  d.Finish(other, {}, now_);
  EXPECT_THAT(Start(d), IsEmpty()) << "it has its memory still";
  d.Finish(solve.id, {}, now_);
  EXPECT_THAT(Start(d), ElementsAre(large.id));
}

// At the bound its tenant starts no other solve, but takes turns with what it has; work that is
// never paused, and other tenants' first ones, start all the same.
TEST_F(PausesTest, PausedJobsAreBounded) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .max_paused = 32});
  std::vector<uint64_t> solves;
  for (int i = 0; i < 5; ++i) solves.push_back(Push(d, Solve(100)));
  const std::vector<uint64_t> started = Turns(d, 6, 250);
  EXPECT_THAT(started,
              ElementsAre(solves[0], solves[1], solves[0], solves[1], solves[0], solves[1]))
      << "a 16th of 32 are two";
  const uint64_t build = Push(d, Of(100)), other = Push(d, Solve(100, "other"));
  const uint64_t small = Push(d, Solve(1));
  std::vector<uint64_t> others;
  for (int turn = 0; turn < 60; ++turn) {
    const auto ids = Start(d);
    ASSERT_EQ(ids.size(), 1);
    Wait(10);
    if (d.TurnEnds(ids[0])) {
      d.Pause(ids[0], now_);
    } else {
      d.Finish(ids[0], {}, now_);
    }
    others.push_back(ids[0]);
  }
  EXPECT_THAT(others, testing::IsSupersetOf({build, other, small}));
  EXPECT_THAT(others, testing::Not(testing::Contains(solves[2])));
  d.GoOn(solves[0]);
  d.Finish(solves[0], {}, now_);
  d.GoOn(small);
  d.Finish(small, {}, now_);
  bool begun = false;
  for (int turn = 0; turn < 60 && !begun; ++turn) {
    const auto ids = Start(d);
    ASSERT_EQ(ids.size(), 1);
    begun = ids[0] == solves[2];
    Wait(10);
    d.Pause(ids[0], now_);
  }
  EXPECT_TRUE(begun);
}

TEST_F(PausesTest, MadeUpNamesAreOneTenant) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .max_paused = 8, .max_tenants = 2});
  std::vector<uint64_t> solves;
  for (int i = 0; i < 20; ++i) solves.push_back(Push(d, Solve(100, "t" + std::to_string(i))));
  const std::vector<uint64_t> started = Turns(d, 60, 250);
  EXPECT_THAT(std::set(started.begin(), started.end()),
              ElementsAre(solves[0], solves[1], solves[2]))
      << "two that are told apart, and one of all others";
  for (const uint64_t id : solves) {
    if (d.IsPaused(id)) d.GoOn(id);
    if (!d.Remove(id)) d.Finish(id, {}, now_);
  }
}

TEST_F(PausesTest, NoneIsPausedWhereNoneMayBe) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .max_paused = 0});
  const uint64_t id = Push(d, Solve(100));
  EXPECT_THAT(Start(d), ElementsAre(id));
  EXPECT_EQ(d.TurnEnds(id), std::nullopt);
}

// A job waits for the end of the other's turn, not for the end of what that says it will take.
TEST_F(PausesTest, OthersWaitForTheEndOfATurn) {
  Dispatcher d({.devices = {{.name = "cpu"}}});
  const uint64_t id = Push(d, Solve(100));
  EXPECT_THAT(Start(d), ElementsAre(id));
  Wait(240);
  EXPECT_NEAR(d.PlaceOf(Of(10), now_).eta_ms, 10, 1e-6);
  Wait(60'000);
  EXPECT_NEAR(d.PlaceOf(Of(10), now_).eta_ms, 0, 1e-6);
}

TEST_F(PausesTest, OfASplitJobTheOtherDevicesAreFree) {
  Dispatcher d({.devices = {{.name = "gpu:0", .memory_bytes = 100},
                            {.name = "gpu:1", .memory_bytes = 100}}});
  Work wide = Solve(1000);
  wide.max_devices = 2;
  wide.device_bytes = 100;
  Push(d, wide);
  auto starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_THAT(starts[0].devices, ElementsAre(0, 1));
  Work other = Of(100);
  other.device_bytes = 100;
  Push(d, other);
  Wait(2000);
  d.Pause(wide.id, now_);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 2);
  const bool wide_first = starts[0].id == wide.id;
  EXPECT_THAT(starts[wide_first ? 0 : 1].devices, ElementsAre(0));
  EXPECT_THAT(starts[wide_first ? 1 : 0].devices, ElementsAre(1));
  d.Finish(wide.id, {}, now_);
  d.Finish(other.id, {}, now_);
  const uint64_t again = Push(d, other);
  EXPECT_THAT(Start(d), ElementsAre(again)) << "all of a device is free";
}

TEST_F(PausesTest, APausedJobFindsOutThatItsDeviceIsLost) {
  Dispatcher d({.devices = {{.name = "cpu"}, {.name = "gpu:0"}}});
  Work solve = Solve(100);
  solve.devices = kSecond;
  Push(d, solve);
  EXPECT_THAT(Start(d), ElementsAre(solve.id));
  d.Pause(solve.id, now_);
  EXPECT_THAT(d.Lose(1, absl::UnavailableError("gone")), IsEmpty());
  EXPECT_FALSE(d.IsPaused(solve.id));
  EXPECT_EQ(d.running(), 1);
  d.Finish(solve.id, {}, now_);
  EXPECT_EQ(d.running(), 0);
}

}  // namespace
}  // namespace spaid::server
