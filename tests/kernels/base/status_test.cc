#include "kernels/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/context.h"

namespace spaid::kernels {
namespace {

TEST(StatusTest, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.index(), -1);
}

TEST(StatusTest, CarriesFieldAndIndex) {
  const Status status =
      Status(StatusCode::kInvalidArgument, "BAD_POINTERS", "text").At("col_ptr", int64_t{1} << 40);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.reason(), "BAD_POINTERS");
  EXPECT_EQ(status.field(), "col_ptr");
  EXPECT_EQ(status.index(), int64_t{1} << 40);
}

TEST(StatusTest, ResultHoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(StatusTest, StopStatusNamesReasonAndWork) {
  const Status cancelled = StopStatus(StopReason::kCancelled, "the build");
  EXPECT_EQ(cancelled.code(), StatusCode::kCancelled);
  EXPECT_EQ(cancelled.reason(), "CANCELLED");
  EXPECT_THAT(cancelled.message(), testing::HasSubstr("the build"));
  const Status late = StopStatus(StopReason::kTimeLimit, "the build");
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.reason(), "TIME_LIMIT");
  EXPECT_EQ(StopStatus(StopReason::kNone, "x").code(), StatusCode::kInternal);
}

TEST(ResultTest, ATemporaryGivesItsValueAway) {
  const auto make = [] { return Result<std::unique_ptr<int>>(std::make_unique<int>(7)); };
  const std::unique_ptr<int> taken = *make();  // no copy: there is none
  EXPECT_EQ(*taken, 7);
  Result<std::vector<int>> kept(std::vector<int>(1000, 3));
  const int* data = kept->data();
  const std::vector<int> moved = *std::move(kept);
  EXPECT_EQ(moved.data(), data);
}

TEST(StopTokenTest, FirstReasonWinsAndDefaultNeverStops) {
  EXPECT_EQ(StopToken().Poll(), StopReason::kNone);
  StopSource source;
  const StopToken token = source.token();
  EXPECT_FALSE(token.stop_requested());
  source.Request(StopReason::kCancelled);
  source.Request(StopReason::kTimeLimit);
  EXPECT_EQ(token.Poll(), StopReason::kCancelled);
}

TEST(StopTokenTest, TimeLimit) {
  StopSource source;
  source.SetTimeLimit(std::chrono::steady_clock::now() + std::chrono::hours(1));
  EXPECT_EQ(source.token().Poll(), StopReason::kNone);
  source.SetTimeLimit(std::chrono::steady_clock::now());
  EXPECT_EQ(source.token().Poll(), StopReason::kTimeLimit);
}

TEST(StopTokenTest, OutlivesItsSource) {
  StopToken token;
  {
    StopSource source;
    token = source.token();
    source.Request(StopReason::kCancelled);
  }
  EXPECT_EQ(token.Poll(), StopReason::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
