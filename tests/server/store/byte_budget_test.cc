#include "server/store/byte_budget.h"

#include <gtest/gtest.h>

#include "server/base/status.h"

namespace spaid::server {
namespace {

TEST(ByteBudgetTest, SharesComeBack) {
  ByteBudget budget("right-hand sides", 100);
  {
    auto a = budget.Take(60);
    ASSERT_TRUE(a.ok());
    BudgetShare moved = *std::move(a);
    EXPECT_EQ(budget.used(), 60);
    EXPECT_TRUE(budget.Take(40).ok());
    moved = BudgetShare();
    EXPECT_EQ(budget.used(), 0);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST(ByteBudgetTest, RefusesWithTheNumbers) {
  ByteBudget budget("right-hand sides", 100);
  const auto never = budget.Take(101);
  EXPECT_EQ(ReasonOf(never.status()), "BUFFER_FULL");
  EXPECT_FALSE(RetryDelayOf(never.status())) << "it will never fit";
  EXPECT_EQ(MetaOf(never.status(), "limit"), "100");
  EXPECT_FALSE(budget.Take(-1).ok());
  const auto share = budget.Take(50);
  const auto later = budget.Take(51);
  EXPECT_EQ(later.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelayOf(later.status()));
  EXPECT_EQ(budget.used(), 50);
}

TEST(ByteBudgetTest, AShareGrows) {
  ByteBudget budget("right-hand sides", 100);
  auto share = budget.Take(0);
  ASSERT_TRUE(share.ok());
  EXPECT_TRUE(share->Grow(60).ok());
  EXPECT_TRUE(share->Grow(40).ok());
  EXPECT_EQ(budget.used(), 100);
  EXPECT_EQ(share->bytes(), 100);
  const absl::Status never = share->Grow(1);
  EXPECT_EQ(ReasonOf(never), "BUFFER_FULL");
  EXPECT_FALSE(RetryDelayOf(never)) << "one share of 101 never fits";
  auto other = budget.Take(0);
  EXPECT_TRUE(RetryDelayOf(other->Grow(1)));
  share->Release();
  EXPECT_EQ(budget.used(), 0);
  EXPECT_TRUE(other->Grow(1).ok());
}

TEST(ByteBudgetTest, AsksForRoomBeforeItRefuses) {
  BudgetShare kept;
  int64_t asked = 0;
  ByteBudget budget("right-hand sides", 100, [&](int64_t missing) {
    asked = missing;
    kept.Release();
  });
  kept = *budget.Take(70);
  EXPECT_TRUE(budget.Take(30).ok());
  EXPECT_EQ(asked, 0);
  auto share = budget.Take(60);
  EXPECT_TRUE(share.ok());
  EXPECT_EQ(asked, 30);
  EXPECT_EQ(ReasonOf(budget.Take(41).status()), "BUFFER_FULL");
}

TEST(ByteBudgetTest, ASharesOutlivesItsBudget) {
  BudgetShare share;
  {
    ByteBudget budget("b", 10);
    share = *budget.Take(10);
  }
  share.Release();
  EXPECT_EQ(share.bytes(), 0);
}

}  // namespace
}  // namespace spaid::server
