#include "server/store/byte_budget.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "server/base/status.h"

namespace spaid::server {
namespace {

TEST(ByteBudgetTest, SharesComeBack) {
  ByteBudget budget("right-hand sides", 100);
  {
    auto a = budget.Take("t", 60);
    ASSERT_TRUE(a.ok());
    BudgetShare moved = *std::move(a);
    EXPECT_EQ(budget.used(), 60);
    EXPECT_TRUE(budget.Take("t", 28).ok());
    EXPECT_FALSE(budget.Take("t", 29).ok()) << "an eighth is kept for others";
    EXPECT_TRUE(budget.Take("other", 33).ok());
    moved = BudgetShare();
    EXPECT_EQ(budget.used(), 0);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST(ByteBudgetTest, RefusesWithTheNumbers) {
  ByteBudget budget("right-hand sides", 100);
  const auto never = budget.Take("t", 101);
  EXPECT_EQ(ReasonOf(never.status()), "BUFFER_FULL");
  EXPECT_FALSE(RetryDelayOf(never.status())) << "it will never fit";
  EXPECT_EQ(MetaOf(never.status(), "limit"), "100");
  EXPECT_FALSE(budget.Take("t", -1).ok());
  const auto share = budget.Take("t", 50);
  const auto later = budget.Take("t", 51);
  EXPECT_EQ(later.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelayOf(later.status()));
  EXPECT_EQ(budget.used(), 50);
}

TEST(ByteBudgetTest, AShareGrows) {
  ByteBudget budget("right-hand sides", 100);
  auto share = budget.Take("t", 0);
  ASSERT_TRUE(share.ok());
  EXPECT_TRUE(share->Grow(60).ok());
  EXPECT_TRUE(share->Grow(40).ok());
  EXPECT_EQ(budget.used(), 100);
  EXPECT_EQ(share->bytes(), 100);
  const absl::Status never = share->Grow(1);
  EXPECT_EQ(ReasonOf(never), "BUFFER_FULL");
  EXPECT_FALSE(RetryDelayOf(never)) << "one share of 101 never fits";
  auto other = budget.Take("t", 0);
  EXPECT_TRUE(RetryDelayOf(other->Grow(1)));
  share->Release();
  EXPECT_EQ(budget.used(), 0);
  EXPECT_TRUE(other->Grow(1).ok());
}

TEST(ByteBudgetTest, AsksForRoomBeforeItRefuses) {
  BudgetShare kept;
  int64_t asked = 0;
  ByteBudget budget("right-hand sides", 100, [&](int64_t missing, const ByteBudget::OfTenant& of) {
    EXPECT_TRUE(of("t"));
    asked = missing;
    kept.Release();
  });
  kept = *budget.Take("t", 70);
  EXPECT_TRUE(budget.Take("t", 18).ok());
  EXPECT_EQ(asked, 0);
  auto share = budget.Take("t", 60);
  EXPECT_TRUE(share.ok());
  EXPECT_EQ(asked, 42) << "of 130, 88 may be had";
  EXPECT_EQ(ReasonOf(budget.Take("t", 41).status()), "BUFFER_FULL");
}

// What is kept goes by shares: of the tenant that is over its own, no more than it is over; who
// is over its share itself gives of its own.
TEST(ByteBudgetTest, RoomIsMadeOfWhoIsOverItsShare) {
  std::map<std::string, std::vector<BudgetShare>> kept;
  ByteBudget budget("solutions", 100, [&](int64_t missing, const ByteBudget::OfTenant& of) {
    for (auto& [tenant, shares] : kept) {
      for (; missing > 0 && of(tenant) && !shares.empty(); shares.pop_back()) {
        missing -= shares.back().bytes();
      }
    }
  });
  for (int i = 0; i < 8; ++i) kept["flood"].push_back(*budget.Take("flood", 10));
  kept["quiet"].push_back(*budget.Take("quiet", 10));
  EXPECT_TRUE(budget.Take("flood", 10).ok());
  EXPECT_EQ(kept["flood"].size(), 6U) << "its own 12, though there were 10 left: kept for others";
  EXPECT_EQ(kept["quiet"].size(), 1U);
  const auto third = budget.Take("third", 33);
  EXPECT_TRUE(third.ok());
  EXPECT_EQ(kept["flood"].size(), 4U) << "of 103, 88 may be had beside others";
  EXPECT_EQ(kept["quiet"].size(), 1U);
}

TEST(ByteBudgetTest, ASharesOutlivesItsBudget) {
  BudgetShare share;
  {
    ByteBudget budget("b", 10);
    share = *budget.Take("t", 10);
  }
  share.Release();
  EXPECT_EQ(share.bytes(), 0);
}

}  // namespace
}  // namespace spaid::server
