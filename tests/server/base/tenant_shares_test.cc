#include "server/base/tenant_shares.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace spaid::server {
namespace {

using Account = TenantShares::Account;

bool Anything(Account) { return true; }

TEST(TenantSharesTest, SharesGoByWeightAmongThoseThere) {
  TenantShares shares({.limits = {120}, .rules = {.weights = {{"alice", 2.0}}}});
  const Account bob = shares.Join("bob");
  EXPECT_DOUBLE_EQ(shares.ShareOf(bob), 120);
  const Account alice = shares.Join("alice");
  EXPECT_DOUBLE_EQ(shares.ShareOf(alice), 80);
  EXPECT_DOUBLE_EQ(shares.ShareOf(bob), 40);
  shares.Add(bob, 40);
  EXPECT_FALSE(shares.OverShare(bob, 0));
  EXPECT_TRUE(shares.OverShare(bob, 1));
  EXPECT_EQ(shares.Join("bob"), bob);
  shares.Leave(alice);
  EXPECT_EQ(shares.tenants(), 1);
  EXPECT_DOUBLE_EQ(shares.ShareOf(bob), 120);
}

TEST(TenantSharesTest, TheMostOverItsShareYieldsToWhoIsNot) {
  TenantShares shares({.limits = {100}, .rules = {.weights = {{"heavy", 4.0}}}});
  const Account heavy = shares.Join("heavy"), mid = shares.Join("mid"), few = shares.Join("few");
  shares.Add(heavy, 60);  // of 66
  shares.Add(mid, 35);    // of 16
  shares.Add(few, 5);     // of 16
  EXPECT_EQ(shares.Yields(few, 5, Anything), mid) << "heavy has more, and is not over its share";
  EXPECT_EQ(shares.Yields(heavy, 5, Anything), mid);
  EXPECT_EQ(shares.Yields(mid, 1, Anything), mid) << "over its share: of its own alone";
  EXPECT_EQ(shares.Yields(few, 12, Anything), few) << "17 would be over its share";
  const auto not_mid = [&](Account account) { return account != mid; };
  EXPECT_EQ(shares.Yields(mid, 1, not_mid), nullptr);
  EXPECT_EQ(shares.Yields(few, 1, not_mid), few) << "heavy, under its share, gives nothing";
}

TEST(TenantSharesTest, WhoHasNotBeenThereForLongYieldsFirst) {
  FakeClock clock;
  TenantShares shares({.limits = {100}, .active_for = std::chrono::hours(1), .clock = &clock});
  const Account old = shares.Join("old"), late = shares.Join("late");
  shares.Add(old, 10);
  shares.Add(late, 90);
  EXPECT_EQ(shares.Yields(late, 1, Anything), late);
  clock.Advance(std::chrono::minutes(59));
  shares.Touch(late);
  clock.Advance(std::chrono::minutes(2));
  EXPECT_EQ(shares.Yields(late, 1, Anything), old);
  EXPECT_DOUBLE_EQ(shares.ShareOf(late), 100);
  shares.Touch(old);
  EXPECT_EQ(shares.Yields(late, 1, Anything), late);
}

TEST(TenantSharesTest, AnEighthIsKeptForThoseUnderTheirShare) {
  TenantShares places({.limits = {64}});
  const Account flood = places.Join("flood");
  int64_t taken = 0;
  for (; places.Admits(flood, 1); ++taken) places.Add(flood, 1);
  EXPECT_EQ(taken, 56);
  EXPECT_EQ(places.MissingFor(flood, 3), 3);
  const Account quiet = places.Join("quiet");
  for (taken = 0; places.Admits(quiet, 1); ++taken) places.Add(quiet, 1);
  EXPECT_EQ(taken, 8) << "under a third of 64: all of what was kept";
  EXPECT_EQ(places.MissingFor(quiet, 1), 1);
  EXPECT_TRUE(places.Admits(flood, 0)) << "nothing is always there";
}

TEST(TenantSharesTest, OneThingAloneMayTakeEverything) {
  TenantShares bytes({.limits = {100}});
  const Account account = bytes.Join("t");
  EXPECT_TRUE(bytes.Admits(account, 100, /*alone=*/true));
  EXPECT_FALSE(bytes.Admits(account, 101, /*alone=*/true));
  EXPECT_FALSE(bytes.Admits(account, 100));
}

TEST(TenantSharesTest, OneThingBesideOthersLeavesWhatIsKept) {
  TenantShares bytes({.limits = {160}, .rules = {.weights = {{"real", 1.0}}}});
  for (int i = 0; i < 14; ++i) {
    const Account made_up = bytes.Join("made up " + std::to_string(i));
    const bool first = i == 0;
    EXPECT_EQ(bytes.Admits(made_up, 150, /*alone=*/true), first);
    while (bytes.Admits(made_up, 1, /*alone=*/bytes.UsedBy(made_up) == 0)) bytes.Add(made_up, 1);
  }
  const Account real = bytes.Join("real");
  EXPECT_TRUE(bytes.Admits(real, 10, /*alone=*/true));
}

TEST(TenantSharesTest, SmallLimitsKeepNothing) {
  TenantShares places({.limits = {2}});
  const Account account = places.Join("t");
  places.Add(account, 1);
  EXPECT_TRUE(places.Admits(account, 1));
}

TEST(TenantSharesTest, MadeUpNamesAreOneTenant) {
  TenantShares shares({.limits = {1000}, .rules = {.weights = {{"real", 1.0}}, .max_tenants = 3}});
  const Account early = shares.Join("early");
  std::vector<Account> joined;
  for (int i = 0; i < 100'000; ++i) {
    joined.push_back(shares.Join("made up " + std::to_string(i)));
    if (shares.Admits(joined.back(), 1)) shares.Add(joined.back(), 1);
  }
  EXPECT_EQ(shares.tenants(), 4);
  EXPECT_EQ(joined[2], joined[99'999]);
  EXPECT_EQ(shares.used(), 875) << "an eighth is kept";
  const Account real = shares.Join("real");
  EXPECT_NE(real, joined[2]) << "who has a weight always has an account";
  EXPECT_DOUBLE_EQ(shares.ShareOf(real), 200);
  EXPECT_TRUE(shares.Admits(real, 125));
  EXPECT_TRUE(shares.Admits(early, 63));
  EXPECT_FALSE(shares.Admits(early, 64)) << "a sixteenth is kept for those with a weight";
  EXPECT_EQ(shares.Yields(early, 63, Anything), joined[2]);
  const int64_t crowd = shares.UsedBy(joined[2]);
  shares.Add(joined[2], -crowd);
  shares.Add(joined[0], -shares.UsedBy(joined[0]));
  shares.Add(joined[1], -shares.UsedBy(joined[1]));
  for (const Account account : joined) shares.Leave(account);
  EXPECT_EQ(shares.tenants(), 2);
  EXPECT_EQ(shares.Join("late"), shares.Join("late"));
  EXPECT_EQ(shares.tenants(), 3);
}

// What is taken back goes by the rule, whatever comes: nobody under its share loses anything but to
// itself, the books are right, and there is always somebody who yields.
TEST(TenantSharesTest, InvariantsOfRandomTaking) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    TenantShares shares({.limits = {500}, .rules = {.weights = {{"t0", 3.0}, {"t1", 0.5}}}});
    std::map<Account, int64_t> has;
    for (int step = 0; step < 2000; ++step) {
      const Account account = shares.Join("t" + std::to_string(random() % 6));
      if (!has.contains(account)) has[account] = 0;
      const int64_t more = 1 + static_cast<int64_t>(random() % 40);
      while (shares.used() + more > shares.limit()) {
        const auto some = [&](Account a) { return shares.UsedBy(a) > 0; };
        const auto victim = shares.Yields(account, more, some);
        if (victim == nullptr) break;
        if (victim != account) {
          ASSERT_TRUE(shares.OverShare(victim, 0));
          ASSERT_FALSE(shares.OverShare(account, more));
        }
        const int64_t gone =
            std::min<int64_t>(has[victim], 1 + static_cast<int64_t>(random() % 30));
        shares.Add(victim, -gone);
        has[victim] -= gone;
      }
      if (shares.used() + more <= shares.limit()) {
        shares.Add(account, more);
        has[account] += more;
      } else {
        ASSERT_TRUE(shares.OverShare(account, more)) << "who is not over its share is served";
      }
      int64_t sum = 0;
      for (const auto& [a, bytes] : has) sum += bytes;
      ASSERT_EQ(shares.used(), sum);
      for (const auto& [a, bytes] : has) ASSERT_EQ(shares.UsedBy(a), bytes);
    }
  }
}

TEST(TenantSharesDeathTest, BooksThatAreWrongAreABrokenInvariant) {
  TenantShares shares({.limits = {10}});
  const Account account = shares.Join("t");
  shares.Add(account, 1);
  EXPECT_DEATH(shares.Leave(account), "");
  EXPECT_DEATH(shares.Add(account, -2), "");
}

}  // namespace
}  // namespace spaid::server
