// Jobs side by side on one GPU, and one job on several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/server/engine/placement_bench.h"

namespace spaid::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SlotsTest, AGpuThatIsThereTwiceHasTwoSlots) {
  Bench bench({FakeCpu(), FakeGpu(0), FakeGpu(1), FakeGpu(0)});
  EXPECT_THAT(bench.adapter.device_names(), ElementsAre("cpu", "gpu:0", "gpu:1"));
  EXPECT_EQ(bench.adapter.slots(0).count, 1);
  EXPECT_EQ(bench.adapter.slots(1).count, 2);
  EXPECT_EQ(bench.adapter.slots(2).count, 1);
  EXPECT_GT(bench.adapter.slots(1).slot_bytes, 0);
  EXPECT_EQ(bench.adapter.DeviceState(1).limit_bytes, 2 * bench.adapter.DeviceState(2).limit_bytes);
}

// Both run at once, or the second would never begin: each in a slot with a layout of its own.
TEST(SlotsTest, SmallSolvesRunSideBySide) {
  Bench bench({FakeGpu(0), FakeGpu(0)});
  bench.engine.SolveOnGpus();
  bench.engine.HoldSolves();
  const Stored<Matrix> a = bench.Put(3), b = bench.Put(4);
  auto first = bench.Solve(a, v1::ENGINE_KIND_NONE), second = bench.Solve(b, v1::ENGINE_KIND_NONE);
  ASSERT_TRUE(first.ok() && second.ok());
  bench.engine.WaitForSolves(2);
  EXPECT_EQ(bench.engine.solves_on(0) + bench.engine.solves_on(1), bench.engine.solves);
  EXPECT_EQ(first->job->Snapshot().device(), "gpu:0");
  EXPECT_EQ(second->job->Snapshot().device(), "gpu:0");
  bench.engine.Release();
  AwaitEnd(first->job);
  AwaitEnd(second->job);
  EXPECT_EQ(bench.engine.solves_on(0), 1);
  EXPECT_EQ(bench.engine.solves_on(1), 1);
  EXPECT_EQ(bench.adapter.LaidOutOn(*a.value).devices, DeviceBit(0));
  EXPECT_EQ(bench.adapter.DropKept(0), 2) << "of both slots";
}

TEST(SlotsTest, LongBuildsAreSplitOverIdleGpus) {
  Bench bench({FakeCpu(), FakeGpu(0), FakeGpu(1), FakeGpu(2)}, /*max_devices=*/2);
  bench.engine.predicted_ms = 10'000;
  auto ticket = bench.Build(bench.Put());
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  AwaitEnd(ticket->job);
  ASSERT_TRUE(ticket->job->error().ok()) << ticket->job->error();
  EXPECT_THAT(bench.engine.plan_devices(), ElementsAre(1, 2));
  EXPECT_THAT(ticket->job->Snapshot().devices(), ElementsAre("gpu:0", "gpu:1"));
  const auto result = std::static_pointer_cast<const BuildOutcome>(ticket->job->result());
  EXPECT_EQ(ToProto(result->preconditioner).device(), "gpu:0, gpu:1");
  // New values on the same pattern, on the same GPUs, go by the plan that they share.
  bench.Built(bench.Put(5));
  EXPECT_EQ(bench.engine.plans, 1);
}

TEST(SlotsTest, ShortBuildsAreNotSplit) {
  Bench bench({FakeCpu(), FakeGpu(0), FakeGpu(1)}, /*max_devices=*/8);
  bench.engine.predicted_ms = 50;
  bench.Built(bench.Put());
  EXPECT_THAT(bench.engine.plan_devices(), IsEmpty());
}

TEST(SlotsTest, WhatComesLaterWaitsForASplitBuild) {
  Bench bench({FakeCpu(), FakeGpu(0), FakeGpu(1)}, /*max_devices=*/8);
  bench.engine.predicted_ms = 10'000;
  bench.engine.HoldBuilds();
  auto first = bench.Build(bench.Put(5));  // takes both
  ASSERT_TRUE(first.ok());
  bench.engine.WaitForBuilds(1);
  auto second = bench.Build(bench.Put(6)), third = bench.Build(bench.Put(7));
  ASSERT_TRUE(second.ok() && third.ok());
  EXPECT_EQ(second->job->state(), v1::JOB_STATE_QUEUED);
  bench.engine.Release();
  for (const auto* ticket : {&first, &second, &third}) {
    AwaitEnd((*ticket)->job);
    EXPECT_TRUE((*ticket)->job->error().ok()) << (*ticket)->job->error();
  }
  EXPECT_THAT(first->job->Snapshot().devices(), ElementsAre("gpu:0", "gpu:1"));
}

}  // namespace
}  // namespace spaid::server
