#include "server/rpc/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <new>
#include <string>
#include <vector>

namespace spaid::server {
namespace {

void NeverFails(const absl::Status& error) { ADD_FAILURE() << error; }

TEST(ExecutorTest, TenantsTakeTurns) {
  std::vector<std::string> ran;  // by the executor's one thread
  std::promise<void> begun, opened;
  {
    Executor executor(1, 100);
    ASSERT_TRUE(executor.TryRun(
        "flood",
        [&] {
          begun.set_value();
          opened.get_future().wait();
        },
        NeverFails));
    begun.get_future().wait();
    const auto run = [&](const std::string& tenant, const std::string& what) {
      ASSERT_TRUE(executor.TryRun(
          tenant, [&, what] { ran.push_back(what); }, NeverFails));
    };
    for (int i = 0; i < 50; ++i) run("flood", "f");
    run("quiet", "q1");
    run("quiet", "q2");
    EXPECT_EQ(executor.queued(), 52);
    opened.set_value();
  }
  ASSERT_EQ(ran.size(), 52U);
  ran.resize(5);
  EXPECT_THAT(ran, testing::ElementsAre("f", "q1", "f", "q2", "f"));
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
    EXPECT_LE(flood, 57) << "one may run by now";
    EXPECT_GE(quiet, 8);
    opened.set_value();
  }
}

TEST(ExecutorTest, IsBoundedAndTellsWhatThrows) {
  std::promise<void> opened;
  std::promise<absl::Status> failed;
  Executor executor(1, 2);
  std::promise<void> begun;
  ASSERT_TRUE(executor.TryRun(
      "a",
      [&] {
        begun.set_value();
        opened.get_future().wait();
      },
      NeverFails));
  begun.get_future().wait();
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
