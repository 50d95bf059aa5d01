#include "server/sched/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace spaid::server {
namespace {

using testing::ElementsAre;

constexpr auto kAll = [](const Work&) { return Pass::kYes; };

Work Of(uint64_t id, const std::string& tenant, double cost_ms = 1,
        Priority priority = Priority::kNormal, DeviceMask devices = kAnyDevice) {
  return {.id = id, .tenant = tenant, .priority = priority, .cost_ms = cost_ms, .devices = devices};
}

std::vector<uint64_t> TakeAll(FairQueue& queue) {
  std::vector<uint64_t> ids;
  while (const auto work = queue.Take(kAll)) ids.push_back(work->id);
  return ids;
}

TEST(FairQueueTest, OneTenantIsServedInOrder) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 4; ++id) queue.Push(Of(id, "a", id % 2 == 0 ? 500 : 1));
  EXPECT_EQ(queue.size(), 4);
  EXPECT_EQ(queue.QueuedOf("a"), 4);
  EXPECT_THAT(TakeAll(queue), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(queue.size(), 0);
  EXPECT_EQ(queue.QueuedOf("a"), 0);
  EXPECT_EQ(queue.Peek(kAll), nullptr);
}

TEST(FairQueueTest, TenantsTakeTurns) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 3; ++id) queue.Push(Of(id, "flood"));
  queue.Push(Of(10, "late"));
  queue.Push(Of(20, "later"));
  EXPECT_THAT(TakeAll(queue), ElementsAre(1, 10, 20, 2, 3));
}

// What matters is the time that jobs take, not how many there are. The dear one goes first, and is
// paid off before the next of its tenant.
TEST(FairQueueTest, CheapJobsGoBetweenDearOnes) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 2; ++id) queue.Push(Of(id, "dear", 2 * FairQueue::kSavedMs));
  for (uint64_t id = 10; id < 110; ++id) queue.Push(Of(id, "cheap", FairQueue::kSavedMs / 20));
  const std::vector<uint64_t> order = TakeAll(queue);
  EXPECT_EQ(order[0], 1);
  EXPECT_NEAR(std::find(order.begin(), order.end(), 2) - order.begin(), 41, 2);
}

// Who sends one long job at a time gets no more than who sends many at once.
TEST(FairQueueTest, DebtsAreRememberedWhileOthersWait) {
  FairQueue queue;
  for (uint64_t id = 1000; id < 3000; ++id) queue.Push(Of(id, "flood", 20));
  double one_by_one = 0, flood = 0;
  uint64_t next = 1;
  queue.Push(Of(next, "one", 1000));
  while (one_by_one + flood < 20'000) {
    const Work work = *queue.Take(kAll);
    (work.tenant == "one" ? one_by_one : flood) += work.cost_ms;
    if (work.tenant == "one") queue.Push(Of(++next, "one", 1000));
  }
  EXPECT_NEAR(one_by_one / flood, 1, 0.1);
}

// What all who have work owe is owed to nobody: somebody who comes then shares from then on, and
// has no claim to what was before.
TEST(FairQueueTest, ANewcomerHasNoClaimToThePast) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 200; ++id) queue.Push(Of(id, "first", 10));
  queue.Settle(*queue.Take(kAll), 60'000);  // alone on the device for a minute
  for (uint64_t id = 1001; id <= 1400; ++id) queue.Push(Of(id, "second", 10));
  int first = 0;
  for (int i = 0; i < 200; ++i) first += queue.Take(kAll)->tenant == "first" ? 1 : 0;
  const double ahead = (FairQueue::kSavedMs + FairQueue::kOwedMs) / 10;
  EXPECT_NEAR(first, (200 - ahead) / 2, 1);
  // A third one, who comes while first owes and second does not, changes nothing of that.
  queue.Settle(*queue.Take([](const Work& work) {
    return work.tenant == "first" ? Pass::kYes : Pass::kNoneLikeIt;
  }),
               1000);
  queue.Push(Of(5000, "third", 10));
  for (int i = 0; i < 90; ++i) EXPECT_NE(queue.Take(kAll)->tenant, "first") << i;
}

// A job that takes less than was said gives back what it was charged, and saves nothing up.
TEST(FairQueueTest, WhatIsGivenBackMakesNoSavings) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 300; ++id) {
    queue.Push(Of(id, "a", id == 1 ? 50'000 : 10));
    if (id < 300) queue.Push(Of(1000 + id, "b", 10));
  }
  const Work dear = *queue.Take(kAll);
  ASSERT_EQ(dear.id, 1);
  for (int i = 0; i < 299; ++i) EXPECT_EQ(queue.Take(kAll)->tenant, "b");
  EXPECT_EQ(queue.Take(kAll)->tenant, "a");  // alone, so that what it owes is paid off
  for (uint64_t id = 2001; id <= 2300; ++id) queue.Push(Of(id, "b", 10));
  queue.Settle(dear, -50'000);
  int of_a = 0;
  for (int i = 0; i < 100; ++i) of_a += queue.Take(kAll)->tenant == "a" ? 1 : 0;
  EXPECT_NEAR(of_a, 50, FairQueue::kSavedMs / 10);
}

// A long job of a lower class waits until its class has saved up for it.
TEST(FairQueueTest, ALongBulkJobWaitsForItsShare) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 1000; ++id) {
    queue.Push(Of(id, "t", 10, Priority::kInteractive));
  }
  queue.Push(Of(5000, "t", 500, Priority::kBulk));
  const std::vector<uint64_t> order = TakeAll(queue);
  EXPECT_NEAR(std::find(order.begin(), order.end(), 5000) - order.begin(), 16 * 50, 10);
}

TEST(FairQueueTest, WeightsShareTime) {
  FairQueue queue({{"paying", 3.0}});
  for (uint64_t id = 1; id <= 400; ++id) {
    queue.Push(Of(id, "paying", 20));
    queue.Push(Of(1000 + id, "other", 20));
  }
  int paying = 0;
  for (int i = 0; i < 200; ++i) paying += queue.Take(kAll)->tenant == "paying" ? 1 : 0;
  EXPECT_NEAR(paying, 150, 3);
}

TEST(FairQueueTest, ClassesShareTimeAsDocumented) {
  FairQueue queue;
  uint64_t id = 0;
  for (int i = 0; i < 1000; ++i) {
    for (const Priority priority : {Priority::kInteractive, Priority::kNormal, Priority::kBulk}) {
      queue.Push(Of(++id, "t" + std::to_string(i % 2), 7, priority));
    }
  }
  std::map<Priority, int> taken;
  for (int i = 0; i < 1050; ++i) ++taken[queue.Take(kAll)->priority];
  EXPECT_NEAR(taken[Priority::kInteractive], 800, 8);
  EXPECT_NEAR(taken[Priority::kNormal], 200, 6);
  EXPECT_NEAR(taken[Priority::kBulk], 50, 4);
}

// Classes are a tenant's own: whoever calls everything urgent takes nothing from others, who call
// it bulk.
TEST(FairQueueTest, ClassesTakeNothingFromOtherTenants) {
  FairQueue queue({{"paying", 2.0}});
  for (uint64_t id = 1; id <= 1000; ++id) {
    queue.Push(Of(id, "greedy", 10, Priority::kInteractive));
    queue.Push(Of(1000 + id, "modest", 10, Priority::kBulk));
    queue.Push(Of(2000 + id, "paying", 10));
  }
  std::map<std::string, int> taken;
  for (int i = 0; i < 800; ++i) ++taken[queue.Take(kAll)->tenant];
  EXPECT_NEAR(taken["greedy"], 200, 6);
  EXPECT_NEAR(taken["modest"], 200, 6);
  EXPECT_NEAR(taken["paying"], 400, 6);
}

// Bulk work that ran alone has earned nothing that holds up the others, and owes nothing.
TEST(FairQueueTest, NothingIsSavedUpWhileAlone) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 100; ++id) queue.Push(Of(id, "t", 1000, Priority::kBulk));
  for (int i = 0; i < 50; ++i) queue.Take(kAll);
  queue.Push(Of(500, "t", 10, Priority::kInteractive));
  queue.Push(Of(501, "t", 10, Priority::kNormal));
  EXPECT_THAT(TakeAll(queue).front(), 500);
}

TEST(FairQueueTest, TheFilterPassesOver) {
  FairQueue queue;
  queue.Push(Of(1, "a", 1, Priority::kNormal, DeviceBit(1)));
  queue.Push(Of(2, "a", 1, Priority::kNormal, DeviceBit(0)));
  queue.Push(Of(3, "a", 1, Priority::kNormal, DeviceBit(0) | DeviceBit(1)));
  const auto on = [](size_t device) {
    return [device](const Work& work) {
      return (work.devices & DeviceBit(device)) != 0 ? Pass::kYes : Pass::kNoneLikeIt;
    };
  };
  EXPECT_EQ(queue.Peek(on(0))->id, 2);
  EXPECT_EQ(queue.Take(on(0))->id, 2);
  EXPECT_EQ(queue.Take(on(1))->id, 1);
  EXPECT_EQ(queue.Take(on(1))->id, 3);
  EXPECT_FALSE(queue.Take(on(1)));
}

TEST(FairQueueTest, NoneLikeItIsNotLookedAt) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 1000; ++id) queue.Push(Of(id, "a"));
  Work small = Of(1001, "a");
  small.small = true;
  queue.Push(small);
  int seen = 0;
  const Work* const found = queue.Peek([&](const Work& work) {
    ++seen;
    return work.small ? Pass::kYes : Pass::kNoneLikeIt;
  });
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->id, 1001);
  EXPECT_EQ(seen, 2);
}

// While a tenant's work fits nowhere it saves up no more than for a burst.
TEST(FairQueueTest, WhatDoesNotPassSavesLittle) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 100; ++id) {
    queue.Push(Of(id, "gpu", 10, Priority::kNormal, DeviceBit(1)));
    queue.Push(Of(1000 + id, "any", 10));
  }
  const auto cpu = [](const Work& work) {
    return (work.devices & DeviceBit(0)) != 0 ? Pass::kYes : Pass::kNo;
  };
  for (int i = 0; i < 50; ++i) EXPECT_EQ(queue.Take(cpu)->tenant, "any");
  int of_gpu = 0;
  for (int i = 0; i < 40; ++i) of_gpu += queue.Take(kAll)->tenant == "gpu" ? 1 : 0;
  EXPECT_NEAR(of_gpu, 20 + FairQueue::kSavedMs / 10 / 2, 1);
}

TEST(FairQueueTest, WhoTakesMoreThanItSaidPaysForIt) {
  FairQueue queue;
  for (uint64_t id = 1; id <= 300; ++id) {
    queue.Push(Of(id, "liar", 1));  // and takes 10
    queue.Push(Of(1000 + id, "honest", 10));
  }
  double liar_ms = 0, honest_ms = 0;
  for (int i = 0; i < 200; ++i) {
    const Work work = *queue.Take(kAll);
    if (work.tenant == "liar") {
      queue.Settle(work, 9);
      liar_ms += 10;
    } else {
      honest_ms += 10;
    }
  }
  EXPECT_NEAR(liar_ms / honest_ms, 1, 0.05);
}

TEST(FairQueueTest, RemovedAndFallenBack) {
  FairQueue queue;
  queue.Push(Of(1, "a", 1, Priority::kNormal, DeviceBit(0)));
  Work second = Of(2, "a", 1, Priority::kNormal, DeviceBit(1));
  second.fallback = DeviceBit(0);
  queue.Push(second);
  queue.Push(Of(3, "a", 1, Priority::kNormal, DeviceBit(0)));
  EXPECT_EQ(queue.Remove(1)->id, 1);
  EXPECT_FALSE(queue.Remove(1));
  queue.FallBack(2);
  EXPECT_EQ(queue.Find(2)->devices, DeviceBit(0));
  EXPECT_EQ(queue.Find(1), nullptr);
  EXPECT_THAT(TakeAll(queue), ElementsAre(2, 3));
}

// The order that clients are told is that in which work is taken, but for neighbours of equal turn.
TEST(FairQueueTest, OrderForetellsWhatIsTaken) {
  std::mt19937 random(7);
  FairQueue queue({{"t3", 2.5}});
  for (uint64_t id = 1; id <= 600; ++id) {
    queue.Push(Of(id, "t" + std::to_string(random() % 9), std::exp(random() % 8),
                  static_cast<Priority>(random() % 3), DeviceBit(random() % 2)));
    if (id % 3 == 0) queue.Take(kAll);
  }
  std::map<uint64_t, double> foretold;  // device time before it
  double before = 0;
  for (const Work* work : queue.Order()) {
    foretold[work->id] = before;
    before += work->cost_ms;
  }
  ASSERT_EQ(foretold.size(), queue.size());
  const double all = before;
  before = 0;
  double worst = 0, sum = 0;
  for (const double count = static_cast<double>(queue.size());
       const auto work = queue.Take(kAll);) {
    const double error = std::abs(foretold.at(work->id) - before) / all;
    worst = std::max(worst, error);
    sum += error / count;
    before += work->cost_ms;
  }
  EXPECT_LT(sum, 0.02);
  EXPECT_LT(worst, 0.15);
}

// A job that changes its class takes with it when it came, and nothing of what its old class saved.
TEST(FairQueueTest, AJobMayChangeItsClass) {
  FairQueue queue;
  queue.Push(Of(1, "a", 10, Priority::kBulk, DeviceBit(0)));
  queue.Push(Of(2, "a", 10, Priority::kNormal, DeviceBit(0)));
  queue.Push(Of(3, "a", 10, Priority::kBulk, DeviceBit(1)));
  queue.Push(Of(4, "b", 10, Priority::kBulk));
  queue.SetPriority(1, Priority::kNormal);
  queue.SetPriority(3, Priority::kNormal);
  queue.SetPriority(3, Priority::kNormal);
  EXPECT_EQ(queue.Find(1)->priority, Priority::kNormal);
  EXPECT_EQ(queue.size(), 4);
  EXPECT_EQ(queue.QueuedOf("a"), 3);
  const std::vector<const Work*> order = queue.Order();
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order[0]->id, 1);                            // before 2, which came later
  EXPECT_THAT(TakeAll(queue), ElementsAre(1, 4, 2, 3));  // tenants take turns
  queue.Push(Of(5, "a", 10, Priority::kBulk));
  queue.SetPriority(5, Priority::kInteractive);
  EXPECT_EQ(queue.Remove(5)->priority, Priority::kInteractive);
  EXPECT_EQ(queue.size(), 0);
}

// What a class did not run it does not pay for: shares are as if the jobs had come where they went.
TEST(FairQueueTest, WhereAJobGoesIsWhereItCounts) {
  FairQueue moved, pushed;
  for (uint64_t id = 1; id <= 1000; ++id) {
    const Priority priority = static_cast<Priority>(id % 3);
    moved.Push(Of(id, "t" + std::to_string(id % 7), 7, static_cast<Priority>((id + id / 3) % 3)));
    pushed.Push(Of(id, "t" + std::to_string(id % 7), 7, priority));
  }
  for (uint64_t id = 1; id <= 1000; ++id) moved.SetPriority(id, static_cast<Priority>(id % 3));
  std::map<Priority, int> of_moved, of_pushed;
  for (int i = 0; i < 420; ++i) {
    ++of_moved[moved.Take(kAll)->priority];
    ++of_pushed[pushed.Take(kAll)->priority];
  }
  EXPECT_EQ(of_moved, of_pushed);
  EXPECT_NEAR(of_moved[Priority::kInteractive], 320, 14);  // two jobs a tenant
}

}  // namespace
}  // namespace spaid::server
