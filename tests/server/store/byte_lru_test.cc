#include "server/store/byte_lru.h"

#include <gtest/gtest.h>

#include <string>

namespace spaid::server {
namespace {

std::shared_ptr<const int> Int(int v) { return std::make_shared<const int>(v); }

TEST(ByteLruTest, DropsTheLeastRecentlyUsed) {
  ByteLru<int> cache(10);
  EXPECT_TRUE(cache.Put("t", "a", Int(1), 4));
  EXPECT_TRUE(cache.Put("t", "b", Int(2), 4));
  EXPECT_EQ(*cache.Get("a"), 1);
  EXPECT_TRUE(cache.Put("t", "c", Int(3), 4));
  EXPECT_EQ(cache.Get("b"), nullptr);
  EXPECT_EQ(*cache.Get("a"), 1);
  EXPECT_EQ(*cache.Get("c"), 3);
  const auto stats = cache.stats();
  EXPECT_EQ(stats.bytes, 8);
  EXPECT_EQ(stats.evictions, 1);
  EXPECT_EQ(stats.hits, 3);
  EXPECT_EQ(stats.misses, 1);
}

TEST(ByteLruTest, DoesNotKeepWhatIsTooLarge) {
  ByteLru<int> cache(10);
  cache.Put("t", "a", Int(1), 4);
  EXPECT_FALSE(cache.Put("t", "b", Int(2), 11));
  EXPECT_EQ(*cache.Get("a"), 1) << "and drops nothing for it";
  EXPECT_FALSE(cache.Put("t", "a", Int(3), 11)) << "an old value is not served for a new one";
  EXPECT_EQ(cache.Get("a"), nullptr);
  EXPECT_EQ(cache.stats().bytes, 0);
}

TEST(ByteLruTest, ReplacesAndCountsOnce) {
  ByteLru<int> cache(10);
  cache.Put("t", "a", Int(1), 4);
  cache.Put("t", "a", Int(2), 6);
  EXPECT_EQ(*cache.Get("a"), 2);
  EXPECT_EQ(cache.stats().bytes, 6);
  EXPECT_EQ(cache.stats().entries, 1);
}

TEST(ByteLruTest, BoundsPoolsToo) {
  ByteLru<int> cache(100, {10, 20});
  EXPECT_TRUE(cache.Put("t", "a", Int(1), 1, {0}, 6));
  EXPECT_TRUE(cache.Put("t", "b", Int(2), 1, {1}, 20));
  EXPECT_TRUE(cache.Put("t", "c", Int(3), 1));
  EXPECT_TRUE(cache.Put("t", "d", Int(4), 1, {0}, 5)) << "a has to go for it, the others need not";
  EXPECT_EQ(cache.Get("a"), nullptr);
  EXPECT_EQ(*cache.Get("b"), 2);
  EXPECT_EQ(*cache.Get("c"), 3);
  EXPECT_EQ(cache.pool_bytes(0), 5);
  EXPECT_EQ(cache.pool_bytes(1), 20);
  EXPECT_EQ(cache.stats().evictions, 1);
  EXPECT_FALSE(cache.Put("t", "f", Int(6), 1, {0}, 6, /*free_room=*/true)) << "5 are free";
  EXPECT_TRUE(cache.Put("t", "f", Int(6), 1, {0}, 5, /*free_room=*/true));
  cache.Take([](int value) { return value == 6; });
  EXPECT_FALSE(cache.Put("t", "e", Int(5), 1, {0}, 11));
  EXPECT_EQ(*cache.Get("d"), 4);
  EXPECT_EQ(cache.DropPool(1), 1);
  EXPECT_EQ(cache.Get("b"), nullptr);
  EXPECT_EQ(cache.pool_bytes(1), 0);
  EXPECT_EQ(cache.stats().entries, 2);
}

TEST(ByteLruTest, AValueMayTakeBytesOfSeveralPools) {
  ByteLru<int> cache(100, {10, 20});
  EXPECT_TRUE(cache.Put("t", "both", Int(1), 1, {0, 1}, 8));
  EXPECT_EQ(cache.pool_bytes(0), 8);
  EXPECT_EQ(cache.pool_bytes(1), 8);
  EXPECT_FALSE(cache.Put("t", "large", Int(2), 1, {1, 0}, 11)) << "one of the two is too small";
  EXPECT_EQ(cache.pool_bytes(1), 8);
  EXPECT_TRUE(cache.Put("t", "second", Int(3), 1, {1}, 12));
  EXPECT_EQ(*cache.Get("both"), 1);
  EXPECT_TRUE(cache.Put("t", "first", Int(4), 1, {0}, 3)) << "both has to go for it";
  EXPECT_EQ(cache.Get("both"), nullptr);
  EXPECT_EQ(cache.pool_bytes(0), 3);
  EXPECT_EQ(cache.pool_bytes(1), 12);
}

TEST(ByteLruTest, GivesAwayTheLastUsedOfWhatIsWanted) {
  ByteLru<int> cache(100, {0, 10});
  for (int i = 0; i < 6; ++i) cache.Put("t", std::to_string(i), Int(i), 10, {1}, 1);
  EXPECT_EQ(*cache.Get("1"), 1);
  const auto odd = [](int value) { return value % 2 == 1; };
  EXPECT_EQ(*cache.Take(odd), 1);
  EXPECT_EQ(*cache.Take(odd), 5);
  EXPECT_EQ(*cache.Take(odd), 3);
  EXPECT_EQ(cache.Take(odd), nullptr);
  EXPECT_EQ(cache.Get("5"), nullptr);
  EXPECT_EQ(cache.stats().entries, 3);
  EXPECT_EQ(cache.stats().bytes, 30);
  EXPECT_EQ(cache.stats().evictions, 0);
  EXPECT_EQ(cache.pool_bytes(1), 3);
}

TEST(ByteLruTest, PrunesWhatIsWorthNothing) {
  ByteLru<int> cache(100, {0, 10});
  for (int i = 0; i < 6; ++i) cache.Put("t", std::to_string(i), Int(i), 10, {1}, 1);
  cache.Prune([](int value) { return value % 2 == 1; });
  EXPECT_EQ(cache.stats().entries, 3);
  EXPECT_EQ(cache.stats().bytes, 30);
  EXPECT_EQ(cache.stats().evictions, 0);
  EXPECT_EQ(cache.pool_bytes(1), 3);
  EXPECT_EQ(cache.Get("1"), nullptr);
  EXPECT_EQ(*cache.Get("4"), 4);
}

TEST(ByteLruTest, TenantsShareItAndItsPools) {
  ByteLru<int> cache(100, {20});
  for (int i = 0; i < 3; ++i) cache.Put("quiet", "q" + std::to_string(i), Int(i), 10, {0}, 3);
  for (int i = 0; i < 20; ++i) cache.Put("flood", "f" + std::to_string(i), Int(i), 10, {0}, 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cache.Holds("q" + std::to_string(i)));
  EXPECT_TRUE(cache.Holds("f19"));
  EXPECT_EQ(cache.pool_bytes(0), 19);
  EXPECT_EQ(cache.stats().tenants, 2);
  // To its half of the bytes, and then of its own.
  for (int i = 3; i < 6; ++i) EXPECT_TRUE(cache.Put("quiet", "q" + std::to_string(i), Int(i), 10));
  EXPECT_FALSE(cache.Put("flood", "large", Int(1), 80)) << "with all of its own gone";
  EXPECT_TRUE(cache.Holds("f19")) << "nothing goes for what is not kept";
}

}  // namespace
}  // namespace spaid::server
