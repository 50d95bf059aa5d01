#include "server/rpc/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <new>
#include <string>
#include <vector>

namespace spaid::server {
namespace {

void NeverFails(const absl::Status& error) { ADD_FAILURE() << error; }

// Runs a task of the tenant's that goes on until the gate opens.
void Hold(Executor& executor, const std::string& tenant, const std::shared_future<void>& gate) {
  std::promise<void> begun;
  ASSERT_TRUE(executor.TryRun(
      tenant,
      [&begun, gate] {
        begun.set_value();
        gate.wait();
      },
      NeverFails));
  begun.get_future().wait();
}

TEST(ExecutorTest, TenantsTakeTurns) {
  std::vector<std::string> ran;  // by the one thread that nobody holds
  std::promise<void> flood_opened, opened, all;
  const std::shared_future<void> flood_gate = flood_opened.get_future().share();
  {
    Executor executor(1, 100);
    Hold(executor, "flood", flood_gate);
    Hold(executor, "other", opened.get_future().share());
    const auto run = [&](const std::string& tenant, const std::string& what) {
      ASSERT_TRUE(executor.TryRun(
          tenant,
          [&, what] {
            ran.push_back(what);
            if (ran.size() == 6) all.set_value();
          },
          NeverFails));
    };
    for (int i = 0; i < 4; ++i) run("many", "m");
    run("few", "f1");
    run("few", "f2");
    EXPECT_EQ(executor.queued(), 6);
    opened.set_value();
    all.get_future().wait();
    flood_opened.set_value();
  }
  EXPECT_THAT(ran, testing::ElementsAre("m", "f1", "m", "f2", "m", "m"));
}

TEST(ExecutorTest, NobodyHoldsTheLastThread) {
  std::promise<void> opened, answered;
  const std::shared_future<void> gate = opened.get_future().share();
  Executor executor(2, 100);
  Hold(executor, "flood", gate);
  Hold(executor, "flood", gate);
  std::atomic<int> more = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(executor.TryRun(
        "flood", [&more] { ++more; }, NeverFails));
  }
  ASSERT_TRUE(executor.TryRun(
      "quiet", [&answered] { answered.set_value(); }, NeverFails));
  answered.get_future().wait();
  EXPECT_EQ(more, 0) << "a third thread for who has two";
  opened.set_value();
}

TEST(ExecutorTest, TheLastPlacesAreForThoseWithLessThanTheirShare) {
  std::promise<void> opened;
  const std::shared_future<void> open = opened.get_future().share();
  {
    Executor executor(1, 64);
    const auto run = [&](const std::string& tenant) {
      return executor.TryRun(
          tenant, [open] { open.wait(); }, NeverFails);
    };
    int flood = 0, quiet = 0;
    while (flood < 1000 && run("flood")) ++flood;
    while (quiet < 1000 && run("quiet")) ++quiet;
    EXPECT_GE(flood, 56);
    EXPECT_LE(flood, 58) << "one may run by now";
    EXPECT_GE(quiet, 8);
    opened.set_value();
  }
}

TEST(ExecutorTest, IsBoundedAndTellsWhatThrows) {
  std::promise<void> opened;
  std::promise<absl::Status> failed;
  const std::shared_future<void> gate = opened.get_future().share();
  Executor executor(1, 2);
  Hold(executor, "a", gate);
  Hold(executor, "b", gate);
  ASSERT_TRUE(executor.TryRun(
      "a", [] { throw std::bad_alloc(); },
      [&](const absl::Status& error) { failed.set_value(error); }));
  ASSERT_TRUE(executor.TryRun(
      "b", [] {}, NeverFails));
  EXPECT_FALSE(executor.TryRun(
      "c", [] {}, NeverFails));
  opened.set_value();
  EXPECT_EQ(failed.get_future().get().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace spaid::server
