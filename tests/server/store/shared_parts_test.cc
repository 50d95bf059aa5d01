// Values that share a part: bytes once, eviction with the last, a race for one pattern.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/status.h"
#include "server/store/handle_store.h"

namespace spaid::server {
namespace {

using Piece = std::string;
struct Value {
  std::string name;
  std::shared_ptr<const Piece> part;
};
using Store = HandleStore<Value>;

constexpr int64_t kPart = 50, kOwn = 10;

Store Make(int64_t max_bytes) {
  return Store({.prefix = "matrices/",
                .what = "matrix",
                .limit_flag = "--matrix-store-bytes",
                .max_bytes = max_bytes,
                .too_large_reason = reason::kMatrixTooLarge});
}

std::shared_ptr<const Piece> Share(Store& store, const std::string& text,
                                   const std::string& tenant = "t") {
  return store.ShareByKeys<Piece>(tenant, std::make_shared<const Piece>(text), {text},
                                  [&](const Piece& known) { return known == text; });
}

absl::StatusOr<Stored<Value>> Put(Store& store, const std::string& name,
                                  const std::shared_ptr<const Piece>& part, int64_t own = kOwn,
                                  const std::string& tenant = "t") {
  return store.Put(tenant, std::make_shared<const Value>(Value{name, part}), own, std::vector{name},
                   {}, {}, {part, part ? kPart : 0});
}

std::string Handle(absl::StatusOr<Stored<Value>> put) {
  EXPECT_TRUE(put.ok()) << put.status();
  return put->handle;
}

TEST(SharedPartsTest, BytesCountOnceAndGoWithTheLast) {
  Store store = Make(1000);
  const std::string a = Handle(Put(store, "a", Share(store, "p")));
  const std::string b = Handle(Put(store, "b", Share(store, "p")));
  EXPECT_EQ(store.Get("t", a)->value->part, store.Get("t", b)->value->part);
  EXPECT_EQ(store.stats().bytes, kPart + 2 * kOwn);
  ASSERT_TRUE(store.Delete("t", a).ok());
  EXPECT_EQ(store.stats().bytes, kPart + kOwn);
  ASSERT_TRUE(store.Delete("t", b).ok());
  EXPECT_EQ(store.stats().bytes, 0);
  EXPECT_EQ(store.stats().zombie_bytes, 0);
  EXPECT_EQ(store.FindPart<Piece>("t", "p", [](const Piece&) { return true; }), nullptr);
}

TEST(SharedPartsTest, EvictionFreesAPartWithTheLastThatHoldsIt) {
  Store store = Make(100);
  const std::string a = Handle(Put(store, "a", Share(store, "p")));
  const std::string b = Handle(Put(store, "b", Share(store, "p")));
  // 30 are free. 35 more: one of the two is enough; 60: both, and the part with them.
  const std::string c = Handle(Put(store, "c", nullptr, 35));
  EXPECT_EQ(ReasonOf(store.Get("t", a).status()), "HANDLE_EVICTED");
  EXPECT_TRUE(store.Get("t", b).ok());
  ASSERT_TRUE(store.Delete("t", c).ok());
  Handle(Put(store, "d", nullptr, 90));
  EXPECT_EQ(ReasonOf(store.Get("t", b).status()), "HANDLE_EVICTED");
  EXPECT_EQ(store.stats().bytes, 90);
}

TEST(SharedPartsTest, APartInUseElsewhereIsNotFreedAndCountsOn) {
  Store store = Make(100);
  auto held = Share(store, "p");  // as an upload of values does
  const std::string a = Handle(Put(store, "a", held));
  EXPECT_EQ(ReasonOf(Put(store, "b", nullptr, 60).status()), "STORE_FULL");
  EXPECT_TRUE(store.Get("t", a).ok()) << "evicted for nothing";
  ASSERT_TRUE(store.Delete("t", a).ok());
  EXPECT_EQ(store.stats().bytes, 0);
  EXPECT_EQ(store.stats().zombie_bytes, kPart);
  EXPECT_EQ(ReasonOf(Put(store, "b", nullptr, 60).status()), "STORE_FULL");
  // An entry takes it up again: it counts once.
  const std::string c = Handle(Put(store, "c", held));
  EXPECT_EQ(store.stats().bytes, kPart + kOwn);
  EXPECT_EQ(store.stats().zombie_bytes, 0);
  ASSERT_TRUE(store.Delete("t", c).ok());
  held.reset();
  EXPECT_EQ(store.stats().zombie_bytes, 0);
  Handle(Put(store, "b", nullptr, 100));
}

TEST(SharedPartsTest, TenantsShareNothing) {
  Store store = Make(1000);
  const auto mine = Share(store, "p", "alice"), theirs = Share(store, "p", "bob");
  EXPECT_NE(mine, theirs);
  EXPECT_EQ(store.FindPart<Piece>("carol", "p", [](const Piece&) { return true; }), nullptr);
}

TEST(SharedPartsTest, AForgedKeyFindsOnlyWhatIsTheSame) {
  Store store = Make(1000);
  const auto share = [&](const char* text) {
    return store.ShareByKeys<Piece>("t", std::make_shared<const Piece>(text), {"key"},
                                    [&](const Piece& known) { return known == text; });
  };
  const auto one = share("one"), two = share("two");
  EXPECT_NE(one, two);
  EXPECT_EQ(share("one"), one);
  EXPECT_EQ(share("two"), two);
}

TEST(SharedPartsTest, AKnownPartGetsFurtherKeys) {
  Store store = Make(1000);
  const auto part = Share(store, "p");
  const auto again = store.ShareByKeys<Piece>("t", std::make_shared<const Piece>("p"), {"p", "q"},
                                              [](const Piece& known) { return known == "p"; });
  EXPECT_EQ(again, part);
  EXPECT_EQ(store.FindPart<Piece>("t", "q", [](const Piece&) { return true; }), part);
}

TEST(SharedPartsTest, AnEntryIsFoundByAnyKeyAndGetsFurtherOnes) {
  Store store = Make(1000);
  const auto put = [&](std::vector<std::string> keys) {
    return store.Put("t", std::make_shared<const Value>(Value{"a", nullptr}), 1, keys, {}, {}, {});
  };
  const std::string handle = put({"a"})->handle;
  EXPECT_FALSE(store.Find("t", "rows of a"));
  EXPECT_TRUE(put({"a", "rows of a"})->existed);
  EXPECT_EQ(store.Find("t", "rows of a")->handle, handle);
  ASSERT_TRUE(store.Delete("t", handle).ok());
  EXPECT_FALSE(store.Find("t", "rows of a"));
  EXPECT_FALSE(store.Find("t", "a"));
}

TEST(SharedPartsTest, SixtyFourThreadsWithOnePatternStoreOne) {
  Store store = Make(int64_t{1} << 30);
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&store, i] {
      for (int k = 0; k < 20; ++k) {
        const std::string name = std::to_string(i) + "." + std::to_string(k);
        const std::string handle = Handle(Put(store, name, Share(store, "p")));
        if (k % 2 == 1) {
          EXPECT_TRUE(store.Delete("t", handle).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.stats().bytes, kPart + 640 * kOwn);
  EXPECT_EQ(store.stats().zombie_bytes, 0);
}

// Whatever happens, the books are those of what is there.
TEST(SharedPartsTest, BooksHoldUnderRandomUse) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Store store = Make(400);
    std::map<std::string, Stored<Value>> in_use;
    std::vector<std::shared_ptr<const Piece>> held;
    std::vector<std::string> handles;
    for (int step = 0; step < 2000; ++step) {
      const std::string text = "p" + std::to_string(random() % 4);
      switch (random() % 6) {
        case 0:
        case 1: {
          auto put = Put(store, std::to_string(step), Share(store, text),
                         static_cast<int64_t>(random() % 40));
          if (!put.ok()) break;
          handles.push_back(put->handle);
          if (random() % 4 == 0) in_use[put->handle] = *put;
          break;
        }
        case 2:
          if (!handles.empty()) {
            (void)store.Delete("t", handles[random() % handles.size()]);
          }
          break;
        case 3:
          if (!in_use.empty()) in_use.erase(in_use.begin());
          break;
        case 4:
          held.push_back(Share(store, text));
          break;
        default:
          if (!held.empty()) held.pop_back();
      }
      const HandleStoreStats stats = store.stats();
      ASSERT_LE(stats.bytes + stats.zombie_bytes, 400) << seed << " " << step;
    }
    in_use.clear();
    held.clear();
    std::set<const Piece*> parts;
    int64_t live = 0;
    for (const auto& item : store.List("t", {.size = 1000}).items) {
      ++live;
      parts.insert(item.value->part.get());
    }
    EXPECT_EQ(store.stats().entries, live);
    for (const std::string& handle : handles) (void)store.Delete("t", handle);
    EXPECT_EQ(store.stats().bytes, 0) << seed;
    EXPECT_EQ(store.stats().zombie_bytes, 0) << seed;
    Handle(Put(store, "all", nullptr, 400));
  }
}

}  // namespace
}  // namespace spaid::server
