#include "server/sched/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "tests/server/sched/dispatcher_fixture.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

TEST_F(DispatcherTest, SmallJobsRunBesideOneThatIsNot) {
  Dispatcher d({.devices = {{.name = "cpu", .slots = 3}}, .small_ms = 20});
  const uint64_t large = Push(d, Of(1000)), second = Push(d, Of(1000));
  const uint64_t small = Push(d, Of(20)), smaller = Push(d, Of(1)), third = Push(d, Of(1));
  EXPECT_THAT(Start(d), testing::UnorderedElementsAre(large, small, smaller));
  EXPECT_EQ(d.running(), 3);
  d.Finish(small, {}, now_);
  EXPECT_THAT(Start(d), ElementsAre(third));
  d.Finish(large, {}, now_);
  EXPECT_THAT(Start(d), ElementsAre(second));
}

// On all devices, while they run, too, whatever was predicted; and by name for few.
TEST_F(DispatcherTest, TakenTimeIsToldByTenant) {
  Dispatcher d({.devices = {{.name = "gpu:0"}, {.name = "gpu:1"}},
                .small_ms = 0,
                .tenant_weights = {{"paid", 2}},
                .max_tenants = 1});
  const auto taken = [&] { return d.TakenMs(now_); };
  EXPECT_THAT(taken(), IsEmpty());
  Work split = Of(1000);
  split.max_devices = 2;
  const uint64_t both = Push(d, split);
  ASSERT_THAT(Start(d), ElementsAre(both));
  Wait(100);
  EXPECT_THAT(taken(), ElementsAre(Pair("t", 200)));
  Wait(50);
  d.Finish(both, {}, now_);
  Wait(1000);
  EXPECT_THAT(taken(), ElementsAre(Pair("t", 300)));
  for (const char* tenant : {"paid", "second", "third", "fourth"}) {
    Work work = Of(1);
    work.tenant = tenant;
    const uint64_t id = Push(d, work);
    ASSERT_THAT(Start(d), ElementsAre(id));
    Wait(10);
    d.Finish(id, {}, now_);
  }
  EXPECT_THAT(taken(), ElementsAre(Pair("", 30), Pair("paid", 10), Pair("t", 300)));
}

// However many there are: those of its own tenant and class, too.
TEST_F(DispatcherTest, SmallJobsWaitBehindNoLongOnes) {
  Dispatcher d({.devices = {{.name = "cpu", .slots = 2}}, .max_queued = 10'000, .small_ms = 20});
  const uint64_t running = Push(d, Of(1000));
  for (int i = 0; i < 2000; ++i) Push(d, Of(1000));
  const uint64_t small = Push(d, Of(1));
  EXPECT_THAT(Start(d), testing::UnorderedElementsAre(running, small));
}

TEST_F(DispatcherTest, PlacesOfALongQueueAreCountedTheLessOftenTheLongerItIs) {
  Dispatcher d({.max_queued = 10'000});
  const Work like = Of(10);
  for (int i = 0; i < 4000; ++i) Push(d, Of(10));
  EXPECT_EQ(d.PlaceOf(like, now_).position, 4000);
  Push(d, Of(10));
  Wait(39);
  EXPECT_EQ(d.PlaceOf(like, now_).position, 4000) << "10 us for each of 4001";
  Wait(2);
  EXPECT_EQ(d.PlaceOf(like, now_).position, 4001);
}

TEST_F(DispatcherTest, MemoryOfADeviceIsNotPromisedTwice) {
  Dispatcher d({.devices = {{.name = "gpu:0", .slots = 4, .memory_bytes = 100}}});
  const auto of = [&](int64_t bytes) {
    Work work = Of(5);
    work.device_bytes = bytes;
    return work;
  };
  const uint64_t a = Push(d, of(60)), b = Push(d, of(50)), c = Push(d, of(40));
  EXPECT_THAT(Start(d), ElementsAre(a, c));  // past b, which does not fit
  EXPECT_THAT(Start(d), IsEmpty());
  d.Finish(a, {.learn = true}, now_);
  EXPECT_THAT(Start(d), ElementsAre(b));
  d.Finish(b, {.learn = true}, now_);
  d.Finish(c, {.learn = true}, now_);
  const uint64_t over = Push(d, of(1000));  // its estimate is a bound: it may well fit, alone
  EXPECT_THAT(Start(d), ElementsAre(over));
}

TEST_F(DispatcherTest, HostMemoryIsSharedByAllDevices) {
  Dispatcher d({.devices = {{.name = "gpu:0"}, {.name = "gpu:1"}}, .host_bytes = 100});
  const auto of = [&](int64_t bytes) {
    Work work = Of(500);
    work.host_bytes = bytes;
    return work;
  };
  const uint64_t a = Push(d, of(60)), b = Push(d, of(60)), c = Push(d, of(40));
  EXPECT_THAT(Start(d), ElementsAre(a, c));
  d.Finish(c, {.learn = true}, now_);
  EXPECT_THAT(Start(d), IsEmpty());
  d.Finish(a, {.learn = true}, now_);
  EXPECT_THAT(Start(d), ElementsAre(b));
}

// What is passed over for want of room is so for a while only: then room is kept for it.
TEST_F(DispatcherTest, RoomIsKeptForWhatWasPassedOverForLong) {
  Dispatcher d({.devices = {{.name = "gpu:0", .slots = 4, .memory_bytes = 100}},
                .max_passed_over = milliseconds(1000)});
  const auto of = [&](int64_t bytes) {
    Work work = Of(5);
    work.device_bytes = bytes;
    return work;
  };
  uint64_t running = Push(d, of(40));
  EXPECT_THAT(Start(d), ElementsAre(running));
  const uint64_t big = Push(d, of(90));
  int passed = 0;
  for (; passed < 100; ++passed) {
    const uint64_t next = Push(d, of(40));
    const auto started = Start(d);
    d.Finish(running, {}, now_);
    if (started.empty()) break;
    EXPECT_THAT(started, ElementsAre(next));
    running = next;
    Wait(100);
  }
  EXPECT_GE(passed, 9);
  EXPECT_LE(passed, 11);
  EXPECT_THAT(Start(d), ElementsAre(big));
  d.Finish(big, {}, now_);
  EXPECT_EQ(Start(d).size(), 1);  // nothing is kept any more
}

TEST_F(DispatcherTest, KeptRoomIsFreeAgainWhenTheJobIsGone) {
  Dispatcher d({.devices = {{.name = "gpu:0", .slots = 4, .memory_bytes = 100}},
                .max_passed_over = milliseconds(0)});
  Work half = Of(5), big = Of(5), other = Of(5);
  half.device_bytes = other.device_bytes = 50;
  big.device_bytes = 100;
  Push(d, half);
  EXPECT_THAT(Start(d), ElementsAre(half.id));
  Push(d, big);
  Push(d, other);
  EXPECT_THAT(Start(d), IsEmpty());
  EXPECT_TRUE(d.Remove(big.id));
  EXPECT_FALSE(d.Remove(big.id));
  EXPECT_THAT(Start(d), ElementsAre(other.id));
}

// Memory of a device that is short keeps nobody from the host's, which nobody counts here.
TEST_F(DispatcherTest, RoomKeptOnADeviceIsNoRoomOfTheHost) {
  Dispatcher d({.devices = {{.name = "gpu:0", .slots = 4, .memory_bytes = 100}, {.name = "gpu:1"}},
                .max_passed_over = milliseconds(0)});
  Work half = Of(5, kFirst), big = Of(5, kFirst), other = Of(5, kSecond);
  half.device_bytes = 50;
  big.device_bytes = 100;
  other.host_bytes = 10;
  Push(d, half);
  EXPECT_THAT(Start(d), ElementsAre(half.id));
  Push(d, big);
  EXPECT_THAT(Start(d), IsEmpty());
  Push(d, other);
  EXPECT_THAT(Start(d), ElementsAre(other.id));
}

// What a smaller job may take beside what is kept.
TEST_F(DispatcherTest, WhatFitsBesideKeptRoomGoesOn) {
  Dispatcher d({.devices = {{.name = "gpu:0", .slots = 4, .memory_bytes = 100}},
                .max_passed_over = milliseconds(0)});
  Work half = Of(5), big = Of(5), tiny = Of(5);
  half.device_bytes = 30;
  big.device_bytes = 80;
  tiny.device_bytes = 0;
  Push(d, half);
  Start(d);
  Push(d, big);
  Push(d, tiny);
  EXPECT_THAT(Start(d), ElementsAre(tiny.id));
}

TEST_F(DispatcherTest, WorkGoesWhereItsDataIs) {
  Dispatcher d({.devices = {{.name = "gpu:0"}, {.name = "gpu:1"}}});
  Work at_home = Of(100);
  at_home.resident.devices = kSecond;
  at_home.move_ms = 50;
  Push(d, at_home);
  auto starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_THAT(starts[0].devices, ElementsAre(1));
  // It waits for 50 ms rather than move, and moves rather than wait for longer.
  Work waits = at_home;
  waits.id = ++last_id_;
  Push(d, waits);
  EXPECT_THAT(Start(d), ElementsAre(waits.id)) << "the GPU is busy for another 100 ms";
  d.Finish(waits.id, {}, now_);
  Wait(60);
  Work again = at_home;
  again.id = ++last_id_;
  Push(d, again);
  EXPECT_THAT(Start(d), IsEmpty()) << "it is for 40 only";
  d.Finish(at_home.id, {}, now_);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_THAT(starts[0].devices, ElementsAre(1));
}

TEST_F(DispatcherTest, OfSlotsWithMemoryOfTheirOwnTheOneThatHasTheDataComesFirst) {
  Dispatcher d({.devices = {{.name = "gpu:0"}, {.name = "gpu:1", .slots = 4, .slot_bytes = 100}},
                .small_ms = 20});
  Work there = Of(5, kSecond), next = Of(5, kSecond), grown = Of(50, kSecond);
  Work larger = Of(5, kSecond), shrunk = Of(5, kSecond);
  for (Work* work : {&there, &next, &grown, &larger}) work->resident.Add(1, 2);
  larger.device_bytes = 101;
  shrunk.resident.Add(1, 0);
  Push(d, there);
  auto starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_EQ(starts[0].slot, 2);
  Push(d, next);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1) << "it does not wait for that slot while another one is free";
  EXPECT_NE(starts[0].slot, 2);
  EXPECT_NE(starts[0].slot, 0);
  d.Finish(there.id, {}, now_);
  Push(d, grown);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_EQ(starts[0].slot, 2) << "it is not small any more";
  d.Finish(grown.id, {}, now_);
  Push(d, larger);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_EQ(starts[0].slot, 0) << "a slot has no memory for it";
  d.Finish(larger.id, {}, now_);
  Push(d, shrunk);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_EQ(starts[0].slot, 0) << "where it was when it was not small yet";
}

TEST_F(DispatcherTest, TheIdlestDeviceIsFirst) {
  Dispatcher d({.devices = {{.name = "gpu:0", .slots = 2}, {.name = "gpu:1", .slots = 2}}});
  Push(d, Of(5));
  Push(d, Of(5));
  const auto starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 2);
  EXPECT_THAT(starts[0].devices, ElementsAre(0));
  EXPECT_THAT(starts[1].devices, ElementsAre(1));
}

TEST_F(DispatcherTest, AJobIsSplitOverDevicesThatNobodyElseWants) {
  Dispatcher d(
      {.devices = {{.name = "cpu"}, {.name = "gpu:0"}, {.name = "gpu:1"}, {.name = "gpu:2"}}});
  const DeviceMask gpus = DeviceBit(1) | DeviceBit(2) | DeviceBit(3);
  Work wide = Of(1000, gpus);
  wide.max_devices = 4;
  Push(d, wide);
  auto starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 1);
  EXPECT_THAT(starts[0].devices, ElementsAre(1, 2, 3));
  const uint64_t waits = Push(d, Of(100, gpus));
  EXPECT_THAT(Start(d), IsEmpty());
  // The prediction is shared, too: a third of 1000 ms.
  EXPECT_NEAR(d.PlaceOf(Of(1, gpus), now_).eta_ms, 333, 1);
  d.Finish(wide.id, {.learn = true}, now_);
  EXPECT_THAT(Start(d), ElementsAre(waits));
  d.Finish(waits, {}, now_);

  Work second = wide, other = Of(100, DeviceBit(3));
  second.id = ++last_id_;
  Push(d, second);
  Push(d, other);
  starts = d.Dispatch(now_);
  ASSERT_EQ(starts.size(), 2);
  EXPECT_THAT(starts[0].devices, ElementsAre(1, 2)) << "somebody waits for the third GPU";
  EXPECT_THAT(starts[1].devices, ElementsAre(3));
  Wait(2000);
  d.Finish(second.id, {.learn = true}, now_);
  EXPECT_THAT(d.Ratios(), IsEmpty()) << "a split build says nothing of one device's speed";
}

TEST_F(DispatcherTest, PredictionsAreCorrectedKindByKind) {
  Dispatcher d({.devices = {{.name = "cpu"}}});
  Work build = Of(100);
  Push(d, build);
  Start(d);
  Wait(300);
  d.Finish(build.id, {.learn = true}, now_);
  Work same = Of(50), other = Of(50);
  other.what = "solve";
  Push(d, same);
  EXPECT_NEAR(d.PlaceOf(Of(1), now_).eta_ms, 150, 1e-6);
  d.Remove(same.id);
  Push(d, other);
  EXPECT_NEAR(d.PlaceOf(Of(1), now_).eta_ms, 50, 1e-6);
  const auto ratios = d.Ratios();
  ASSERT_EQ(ratios.size(), 1);
  EXPECT_EQ(ratios[0].what, "build");
  EXPECT_NEAR(ratios[0].value, 3, 1e-9);
  EXPECT_EQ(ratios[0].jobs, 1);
}

// A long solve that takes as long as predicted says nothing of short ones that take a fifth of it.
TEST_F(DispatcherTest, PredictionsAreCorrectedBySize) {
  Dispatcher d({.devices = {{.name = "cpu", .slots = 2}}, .small_ms = 20});
  const auto run = [&](double predicted_ms, int took_ms) {
    Work work = Of(predicted_ms);
    const uint64_t id = Push(d, work);
    ASSERT_THAT(Start(d), ElementsAre(id));
    Wait(took_ms);
    d.Finish(id, {.learn = true}, now_);
  };
  for (int i = 0; i < 4; ++i) run(50, 10);
  for (int i = 0; i < 20; ++i) run(2000, 2000);
  const uint64_t longer = Push(d, Of(2000)), shorter = Push(d, Of(45));
  EXPECT_NEAR(d.PredictedMs(longer), 2000, 1e-6);
  EXPECT_NEAR(d.PredictedMs(shorter), 9, 1e-6);
  EXPECT_THAT(Start(d), testing::UnorderedElementsAre(longer, shorter)) << "it is small";
  const uint64_t new_size = Push(d, Of(300));
  EXPECT_NEAR(d.PredictedMs(new_size), 300, 10) << "as most others of the kind";
}

TEST_F(DispatcherTest, NobodyTeachesThatALongBuildIsSmall) {
  Dispatcher d({.devices = {{.name = "cpu", .slots = 2}}, .small_ms = 20});
  for (int i = 0; i < 10; ++i) {
    const uint64_t id = Push(d, Of(300));
    ASSERT_THAT(Start(d), ElementsAre(id));
    Wait(3);
    d.Finish(id, {.learn = true}, now_);
  }
  const uint64_t first = Push(d, Of(300));
  Push(d, Of(300));
  EXPECT_LT(d.PredictedMs(first), 20);
  EXPECT_THAT(Start(d), ElementsAre(first)) << "the other slot is for what is small";
}

TEST_F(DispatcherTest, ATenantLeavesASlotToOthersThatWereThereLately) {
  Dispatcher d({.devices = {{.name = "cpu", .slots = 3}},
                .small_ms = 20,
                .keeps_slot = milliseconds(5'000)});
  const auto of = [&](const char* tenant, double predicted_ms) {
    Work work = Of(predicted_ms);
    work.tenant = tenant;
    return Push(d, std::move(work));
  };
  const auto run = [&](uint64_t id) {
    EXPECT_THAT(Start(d), ElementsAre(id));
    d.Finish(id, {}, now_);
  };
  run(of("b", 1));
  const uint64_t a1 = of("a", 1), a2 = of("a", 1), a3 = of("a", 1);
  EXPECT_THAT(Start(d), testing::UnorderedElementsAre(a1, a2)) << "a third slot is left";
  run(of("b", 1));
  // A long job takes the first slot in its turn; of the two that remain for small ones a has both,
  // and leaves one as soon as it can.
  const uint64_t a_long = of("a", 1000);
  EXPECT_THAT(Start(d), ElementsAre(a_long));
  d.Finish(a1, {}, now_);
  EXPECT_THAT(Start(d), IsEmpty());
  run(of("b", 1));
  Wait(5'001);
  EXPECT_THAT(Start(d), ElementsAre(a3)) << "b has not been there for long";
  d.Finish(a2, {}, now_);
  d.Finish(a_long, {}, now_);
  const uint64_t a4 = of("a", 1), a5 = of("a", 1);
  EXPECT_THAT(Start(d), testing::UnorderedElementsAre(a4, a5)) << "alone it has them all";
}

// The only slot that no long job holds is everybody's.
TEST_F(DispatcherTest, TheOnlySlotForSmallJobsIsLeftToNobody) {
  Dispatcher d({.devices = {{.name = "cpu", .slots = 2}}, .small_ms = 20});
  const uint64_t first = Push(d, Of(1000));
  Work other = Of(1);
  other.tenant = "other";
  const uint64_t others = Push(d, std::move(other)), own = Push(d, Of(1));
  EXPECT_EQ(Start(d).size(), 2U);
  d.Finish(others, {}, now_);
  d.Finish(own, {}, now_);
  Start(d);
  EXPECT_EQ(d.running(), 2) << first;
}

TEST_F(DispatcherTest, FullQueuesSayWhenToComeBack) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .max_queued = 3, .max_queued_per_tenant = 2});
  Work running = Of(4000);
  Push(d, running);
  Start(d);
  Work a = Of(1000), b = Of(1000), c = Of(1000);
  for (Work* work : {&a, &b}) {
    ASSERT_TRUE(d.Admit(work, {}, now_).ok());
    Push(d, *work);
  }
  absl::Status refused = d.Admit(&c, {}, now_);
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-queued-jobs-per-tenant"));
  EXPECT_EQ(MetaOf(refused, "limit"), "2");
  EXPECT_EQ(RetryDelayOf(refused), milliseconds(3000));  // half of 4000 + 2 x 1000
  c.tenant = "u";
  ASSERT_TRUE(d.Admit(&c, {}, now_).ok());
  Push(d, c);
  Work last = Of(1);
  last.tenant = "v";
  refused = d.Admit(&last, {}, now_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-queued-jobs)"));
}

// Eight of 64 places are for those with less than their share.
TEST_F(DispatcherTest, AFullQueueHasPlacesForThoseUnderTheirShare) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .max_queued = 64});
  const auto admit = [&](const std::string& tenant) {
    Work work = Of(1000);
    work.tenant = tenant;
    absl::Status status = d.Admit(&work, {}, now_);
    if (status.ok()) Push(d, std::move(work));
    return status;
  };
  int flood = 0, quiet = 0;
  for (; flood < 100 && admit("flood").ok(); ++flood) continue;
  EXPECT_EQ(flood, 56);
  const absl::Status refused = admit("flood");
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("less than their share"));
  EXPECT_TRUE(RetryDelayOf(refused));
  for (; quiet < 100 && admit("quiet").ok(); ++quiet) continue;
  EXPECT_EQ(quiet, 8);
  EXPECT_EQ(d.queued(), 64) << "nobody was thrown out";
  ASSERT_EQ(Start(d).size(), 1U);
  EXPECT_EQ(ReasonOf(admit("flood")), "QUEUE_FULL") << "still over its share";
  EXPECT_TRUE(admit("quiet").ok());
}

TEST_F(DispatcherTest, InfeasibleDeadlinesAreRefused) {
  Dispatcher d({.devices = {{.name = "cpu"}}});
  Work running = Of(1000);
  Push(d, running);
  Start(d);
  Work work = Of(100);
  EXPECT_TRUE(d.Admit(&work, 2000, now_).ok());
  EXPECT_TRUE(d.Admit(&work, 230, now_).ok()) << "predictions err";
  absl::Status refused = d.Admit(&work, 200, now_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(refused), "DEADLINE_INFEASIBLE");
  EXPECT_EQ(MetaOf(refused, "wait_ms"), "1000");
  EXPECT_EQ(MetaOf(refused, "run_ms"), "100");
  EXPECT_EQ(MetaOf(refused, "left_ms"), "200");
  EXPECT_EQ(RetryDelayOf(refused), milliseconds(200));
  refused = d.Admit(&work, 15, now_);
  EXPECT_EQ(ReasonOf(refused), "DEADLINE_INFEASIBLE");
  EXPECT_EQ(RetryDelayOf(refused), std::nullopt) << "no wait makes its run shorter";
  Wait(1000);
  d.Finish(running.id, {.learn = true}, now_);
  EXPECT_TRUE(d.Admit(&work, 60, now_).ok());
  EXPECT_EQ(ReasonOf(d.Admit(&work, 40, now_)), "DEADLINE_INFEASIBLE") << "measured by now";
}

// Whatever was learned, a job of about the size that it says might take no longer than it says.
TEST_F(DispatcherTest, LearnedRatiosRefuseNoDeadline) {
  Dispatcher d({.devices = {{.name = "cpu"}}});
  for (int jobs = 1; jobs <= 10; ++jobs) {
    Work slow = Of(10);
    Push(d, slow);
    EXPECT_THAT(Start(d), ElementsAre(slow.id));
    Wait(1000);
    d.Finish(slow.id, {.learn = true}, now_);
    Work next = Of(10);
    EXPECT_TRUE(d.Admit(&next, 100, now_).ok()) << jobs;
  }
  // Nor does a wait for such a job, though its end is told as it is expected.
  const uint64_t running = Push(d, Of(10));
  EXPECT_THAT(Start(d), ElementsAre(running));
  Work next = Of(10);
  EXPECT_NEAR(d.PlaceOf(next, now_).eta_ms, 1000, 1);
  EXPECT_TRUE(d.Admit(&next, 100, now_).ok());
  EXPECT_EQ(ReasonOf(d.Admit(&next, 9, now_)), "DEADLINE_INFEASIBLE") << "20 ms are what both say";
}

// It is expected to take as long again as it has outrun what was predicted.
TEST_F(DispatcherTest, WhatOutrunsItsPredictionIsExpectedToTakeLonger) {
  Dispatcher d({.devices = {{.name = "cpu"}}, .max_queued = 1});
  Push(d, Of(100));
  EXPECT_EQ(Start(d).size(), 1);
  Work next = Of(10);
  const std::pair<int, double> expected[] = {{0, 100}, {60, 40}, {40, 0}, {100, 100}, {1000, 1100}};
  for (const auto& [wait, eta] : expected) {
    Wait(wait);
    EXPECT_NEAR(d.PlaceOf(next, now_).eta_ms, eta, 1e-6);
  }
  Push(d, next);
  EXPECT_EQ(RetryDelayOf(d.Admit(&next, {}, now_)), milliseconds(555));  // half of 1100 + 10
  Wait(10'000);
  EXPECT_EQ(RetryDelayOf(d.Admit(&next, {}, now_)), milliseconds(5555));
}

TEST_F(DispatcherTest, ALostDeviceGivesItsWorkAway) {
  Dispatcher d({.devices = {{.name = "cpu"}, {.name = "gpu:0"}}});
  const absl::Status gone = MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "gone");
  Work running = Of(100, kSecond), alone = Of(100, kSecond), falls = Of(100, kSecond);
  falls.fallback = kFirst;
  Push(d, running);
  EXPECT_THAT(Start(d), ElementsAre(running.id));
  Push(d, alone);
  Push(d, falls);
  EXPECT_THAT(d.Lose(1, gone), ElementsAre(alone.id));
  EXPECT_THAT(d.Lose(1, gone), IsEmpty());
  EXPECT_EQ(d.healthy(), kFirst);
  EXPECT_EQ(d.DeviceStatus(1), gone);
  EXPECT_THAT(Start(d), ElementsAre(falls.id));
  d.Finish(running.id, {}, now_);
  Work late = Of(1, kSecond);
  EXPECT_EQ(d.Admit(&late, {}, now_), gone);
  late.fallback = kFirst;
  EXPECT_TRUE(d.Admit(&late, {}, now_).ok());
  EXPECT_EQ(late.devices, kFirst);
}

TEST_F(DispatcherTest, AQueuedJobsClassMayChange) {
  Dispatcher d({.devices = {{.name = "cpu"}}});
  const uint64_t running = Push(d, Of(100));
  EXPECT_THAT(Start(d), ElementsAre(running));
  const auto bulk = [&] {
    Work work = Of(100);
    work.priority = Priority::kBulk;
    return work;
  };
  const uint64_t first = Push(d, bulk()), second = Push(d, bulk()), normal = Push(d, Of(100));
  d.SetPriority(second, Priority::kInteractive);
  d.SetPriority(running, Priority::kInteractive);  // it runs already
  d.SetPriority(4711, Priority::kInteractive);
  EXPECT_EQ(d.LoadOf(Priority::kInteractive).queued, 1);
  EXPECT_EQ(d.LoadOf(Priority::kBulk).queued, 1);
  std::vector<uint64_t> order;
  for (uint64_t last = running; d.queued() > 0; last = order.back()) {
    Wait(100);
    d.Finish(last, {}, now_);
    for (const uint64_t id : Start(d)) order.push_back(id);
  }
  EXPECT_THAT(order, ElementsAre(second, normal, first));
}

}  // namespace
}  // namespace spaid::server
