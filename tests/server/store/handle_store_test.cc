#include "server/store/handle_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

using Store = HandleStore<std::string>;

HandleStoreOptions Options(int64_t max_bytes) {
  return {.prefix = "matrices/",
          .what = "matrix",
          .limit_flag = "--matrix-store-bytes",
          .max_bytes = max_bytes,
          .too_large_reason = reason::kMatrixTooLarge};
}

std::shared_ptr<const std::string> Text(const char* text) {
  return std::make_shared<const std::string>(text);
}

std::string PutText(Store& store, const char* text, int64_t bytes,
                    const std::string& tenant = "t") {
  auto stored = store.Put(tenant, Text(text), bytes, text);
  EXPECT_TRUE(stored.ok()) << stored.status();
  return stored->handle;
}

TEST(HandleStoreTest, PutGetDelete) {
  Store store(Options(100));
  const std::string handle = PutText(store, "a", 10);
  EXPECT_EQ(handle.rfind("matrices/", 0), 0u);
  EXPECT_EQ(*store.Get("t", handle)->value, "a");
  EXPECT_TRUE(store.Delete("t", handle).ok());
  EXPECT_EQ(ReasonOf(store.Get("t", handle).status()), "HANDLE_UNKNOWN");
  EXPECT_EQ(ReasonOf(store.Delete("t", handle)), "HANDLE_UNKNOWN");
  EXPECT_EQ(store.stats().bytes, 0);
}

TEST(HandleStoreTest, AnotherTenantsHandleIsAsUnknownAsNone) {
  Store store(Options(100));
  const std::string handle = PutText(store, "a", 10, "alice");
  const absl::Status theirs = store.Get("bob", handle).status();
  const absl::Status none = store.Get("bob", "matrices/none").status();
  EXPECT_EQ(theirs.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(theirs), ReasonOf(none));
  EXPECT_EQ(ReasonOf(store.Delete("bob", handle)), "HANDLE_UNKNOWN");
  EXPECT_TRUE(store.Get("alice", handle).ok());
  EXPECT_FALSE(store.Find("bob", "a"));
  EXPECT_TRUE(store.List("bob", {}).items.empty());
}

TEST(HandleStoreTest, TheSameContentIsOneEntryOfATenant) {
  Store store(Options(100));
  const std::string handle = PutText(store, "a", 10);
  auto again = store.Put("t", Text("a"), 10, "a");
  EXPECT_EQ(again->handle, handle);
  EXPECT_TRUE(again->existed);
  EXPECT_EQ(store.stats().bytes, 10);
  EXPECT_NE(PutText(store, "a", 10, "other"), handle);
  EXPECT_EQ(store.Find("t", "a")->handle, handle);
  // Keys and tenants do not run into each other.
  EXPECT_FALSE(store.Find("", "ta"));
}

// Texts whose first letters name them, as digests do.
absl::StatusOr<Stored<std::string>> PutNamed(Store& store, const std::string& text,
                                             const std::string& tenant = "t") {
  return store.Put(tenant, Text(text.c_str()), 1, text.substr(0, 1), {},
                   [&](const std::string& stored) { return stored == text; });
}

TEST(HandleStoreTest, ContentsOfOneKeyAreComparedAndAllKept) {
  Store store(Options(100));
  const std::string one = PutNamed(store, "a1")->handle, two = PutNamed(store, "a2")->handle;
  EXPECT_NE(one, two);
  EXPECT_EQ(PutNamed(store, "a1")->handle, one);
  EXPECT_TRUE(PutNamed(store, "a2")->existed);
  EXPECT_EQ(store.stats().entries, 2);
  EXPECT_EQ(*store.Get("t", two)->value, "a2");
  const auto is = [](const char* text) {
    return [text](const std::string& stored) { return stored == text; };
  };
  EXPECT_EQ(store.Find("t", "a", is("a2"))->handle, two);
  EXPECT_FALSE(store.Find("t", "a", is("a3")));
  EXPECT_NE(PutNamed(store, "a1", "other")->handle, one);
  // One goes, the other stays what it was.
  EXPECT_TRUE(store.Delete("t", one).ok());
  EXPECT_FALSE(store.Find("t", "a", is("a1")));
  EXPECT_EQ(PutNamed(store, "a2")->handle, two);
}

TEST(HandleStoreTest, ComparesWithoutTheLockAndEachOnce) {
  Store store(Options(100));
  const std::string old = PutNamed(store, "a1")->handle;
  std::vector<std::string> compared;
  const auto put = store.Put("t", Text("a4"), 1, "a", {}, [&](const std::string& stored) {
    compared.push_back(stored);
    // Meanwhile others go on: what is compared goes, and more comes.
    if (stored == "a1") {
      EXPECT_TRUE(store.Delete("t", old).ok());
      EXPECT_TRUE(PutNamed(store, "a2").ok());
      EXPECT_TRUE(PutNamed(store, "a3").ok());
    }
    return false;
  });
  ASSERT_TRUE(put.ok());
  EXPECT_FALSE(put->existed);
  EXPECT_EQ(compared, (std::vector<std::string>{"a1", "a2", "a3"}));
  EXPECT_EQ(store.stats().entries, 3);
}

TEST(HandleStoreTest, WhatWasDeletedWhileItWasComparedIsNotGivenOut) {
  Store store(Options(100));
  const std::string old = PutNamed(store, "a1")->handle;
  const auto put = store.Put("t", Text("a1"), 1, "a", {}, [&](const std::string&) {
    EXPECT_TRUE(store.Delete("t", old).ok());
    return true;
  });
  EXPECT_FALSE(put->existed);
  EXPECT_NE(put->handle, old);
}

TEST(HandleStoreTest, TwoOfOneContentAtOnceAreOneEntry) {
  Store store(Options(100));
  std::vector<std::thread> threads;
  std::vector<std::string> handles(8);
  for (size_t i = 0; i < handles.size(); ++i) {
    threads.emplace_back([&, i] { handles[i] = PutNamed(store, "a1")->handle; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(handles.begin(), handles.end(), handles[0]), 8);
  EXPECT_EQ(store.stats().entries, 1);
}

TEST(HandleStoreTest, AKeyNamesSixteenContentsAndNoMore) {
  Store store(Options(100));
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(PutNamed(store, "a" + std::to_string(i)).ok());
  int compared = 0;
  const auto more = [&] {
    return store.Put("t", Text("a16"), 1, "a", {}, [&](const std::string& stored) {
      ++compared;
      return stored == "a16";
    });
  };
  const auto first = more(), second = more();
  EXPECT_EQ(compared, 32);
  EXPECT_FALSE(second->existed);
  EXPECT_NE(first->handle, second->handle);
  EXPECT_EQ(*store.Get("t", first->handle)->value, "a16");
  EXPECT_TRUE(store.Delete("t", first->handle).ok());
  EXPECT_EQ(store.stats().entries, 17);
}

TEST(HandleStoreTest, EvictsTheLeastRecentlyUsedThatNobodyHolds) {
  Store store(Options(30));
  const std::string a = PutText(store, "a", 10), b = PutText(store, "b", 10),
                    c = PutText(store, "c", 10);
  auto held = store.Get("t", a)->value;  // the oldest, but in use
  const std::string d = PutText(store, "d", 10);
  EXPECT_TRUE(store.Get("t", a).ok());
  EXPECT_EQ(ReasonOf(store.Get("t", b).status()), "HANDLE_EVICTED");
  EXPECT_EQ(ReasonOf(store.Get("other", b).status()), "HANDLE_UNKNOWN");
  EXPECT_TRUE(store.Get("t", c).ok());
  EXPECT_EQ(store.stats().evictions, 1);
  // Evicted content may come again, under a new handle.
  EXPECT_NE(PutText(store, "b", 10), b);
}

TEST(HandleStoreTest, FullOfWhatIsInUse) {
  Store store(Options(20));
  auto a = store.Get("t", PutText(store, "a", 10))->value;
  auto b = store.Get("t", PutText(store, "b", 10))->value;
  const auto refused = store.Put("t", Text("c"), 10, "c");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status()), "STORE_FULL");
  EXPECT_TRUE(RetryDelayOf(refused.status()));
  EXPECT_EQ(store.stats().entries, 2);
  a.reset();
  EXPECT_TRUE(store.Put("t", Text("c"), 10, "c").ok());
}

// Jobs that go on for long leave a part of the store to tenants that come later.
TEST(HandleStoreTest, WhatIsInUseLeavesTheLastEighthToOthers) {
  Store store(Options(80));
  std::vector<std::shared_ptr<const std::string>> in_use;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) {
    const std::string handle = PutText(store, name, 10);
    in_use.push_back(store.Get("t", handle)->value);
    EXPECT_TRUE(store.CheckUse("t", handle).ok()) << name;
  }
  auto last = store.Put("t", Text("h"), 10, "h");
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(ReasonOf(store.CheckUse("t", last->handle)), "STORE_FULL");
  EXPECT_TRUE(RetryDelayOf(store.CheckUse("t", last->handle)));
  EXPECT_TRUE(store.Delete("t", last->handle).ok());
  last->value.reset();
  const auto other = store.Put("other", Text("i"), 10, "i");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(store.CheckUse("other", other->handle).ok());
}

TEST(HandleStoreTest, OneThingInUseMayBeAllWhileNobodyElseHasAny) {
  Store store(Options(80));
  const auto all = store.Put("t", Text("a"), 80, "a");
  ASSERT_TRUE(all.ok());
  EXPECT_TRUE(store.CheckUse("t", all->handle).ok());
}

TEST(HandleStoreTest, NothingIsEvictedForWhatDoesNotFitAnyway) {
  Store store(Options(30));
  const std::string a = PutText(store, "a", 10);
  auto b = store.Get("t", PutText(store, "b", 15))->value;
  EXPECT_EQ(ReasonOf(store.Put("t", Text("c"), 20, "c").status()), "STORE_FULL");
  EXPECT_TRUE(store.Get("t", a).ok());
}

TEST(HandleStoreTest, TooLargeSaysBothNumbers) {
  HandleStoreOptions options = Options(1000);
  options.max_item_bytes = 100;
  Store store(options);
  for (const absl::Status& status :
       {store.Reserve("t", 101).status(), store.Put("t", Text("a"), 101, "a").status()}) {
    EXPECT_EQ(ReasonOf(status), "MATRIX_TOO_LARGE");
    EXPECT_EQ(MetaOf(status, "actual"), "101");
    EXPECT_EQ(MetaOf(status, "limit"), "100");
    EXPECT_NE(status.message().find("--matrix-store-bytes"), std::string::npos);
  }
  EXPECT_EQ(ReasonOf(store.Reserve("t", int64_t{1} << 62).status()), "MATRIX_TOO_LARGE");
  EXPECT_EQ(ReasonOf(store.Reserve("t", -5).status()), "MATRIX_TOO_LARGE");
}

TEST(HandleStoreTest, DeletedWhileInUseStillCounts) {
  Store store(Options(20));
  const std::string a = PutText(store, "a", 20);
  auto held = store.Get("t", a)->value;
  EXPECT_TRUE(store.Delete("t", a).ok());
  EXPECT_EQ(*held, "a");
  EXPECT_EQ(store.stats().zombie_bytes, 20);
  EXPECT_EQ(ReasonOf(store.Put("t", Text("b"), 20, "b").status()), "STORE_FULL");
  held.reset();
  EXPECT_EQ(store.stats().zombie_bytes, 0);
  EXPECT_TRUE(store.Put("t", Text("b"), 20, "b").ok());
}

TEST(HandleStoreTest, AReservationEvictsOnlyAsBytesArrive) {
  Store store(Options(100));
  const std::string a = PutText(store, "a", 40), b = PutText(store, "b", 40);
  auto room = store.Reserve("t", 90);
  ASSERT_TRUE(room.ok());
  EXPECT_EQ(store.stats().entries, 2) << "a header alone costs nobody anything";
  EXPECT_TRUE(room->Arrive(20).ok());
  EXPECT_EQ(store.stats().entries, 2);
  EXPECT_TRUE(room->Arrive(40).ok());
  EXPECT_EQ(ReasonOf(store.Get("t", a).status()), "HANDLE_EVICTED");
  EXPECT_TRUE(room->Arrive(30).ok());
  EXPECT_EQ(ReasonOf(store.Get("t", b).status()), "HANDLE_EVICTED");
  EXPECT_EQ(store.stats().arrived_bytes, 90);
  ASSERT_TRUE(store.Put("t", Text("c"), 85, "c", *std::move(room)).ok());
  EXPECT_EQ(store.stats().reserved_bytes, 0);
  EXPECT_EQ(store.stats().arrived_bytes, 0);
  EXPECT_EQ(store.stats().bytes, 85);
}

TEST(HandleStoreTest, APromiseAloneShutsNobodyOut) {
  Store store(Options(100));
  auto idle = store.Reserve("t", 100);
  ASSERT_TRUE(idle.ok());
  auto room = store.Reserve("t", 100);
  ASSERT_TRUE(room.ok());
  EXPECT_EQ(store.stats().reserved_bytes, 200);
  EXPECT_TRUE(room->Arrive(60).ok());
  EXPECT_EQ(ReasonOf(idle->Arrive(41)), "STORE_FULL") << "what has arrived is not given twice";
  EXPECT_EQ(ReasonOf(store.Reserve("t", 41).status()), "STORE_FULL");
  EXPECT_EQ(ReasonOf(store.Put("t", Text("a"), 41, "a").status()), "STORE_FULL");
  EXPECT_TRUE(store.Put("t", Text("b"), 60, "b", *std::move(room)).ok());
  *idle = Reservation();  // the stream was cut
  EXPECT_EQ(store.stats().reserved_bytes, 0);
  EXPECT_TRUE(store.Reserve("t", 100).ok());
}

TEST(HandleStoreTest, ArrivalFailsWhereEverythingCameIntoUse) {
  Store store(Options(100));
  const std::string a = PutText(store, "a", 60);
  auto room = store.Reserve("t", 80);
  ASSERT_TRUE(room.ok());
  auto held = store.Get("t", a)->value;
  EXPECT_TRUE(room->Arrive(40).ok());
  EXPECT_EQ(ReasonOf(room->Arrive(40)), "STORE_FULL");
  EXPECT_EQ(room->arrived(), 40);
  held.reset();
  EXPECT_TRUE(room->Arrive(40).ok());
}

TEST(HandleStoreDeathTest, MoreThanWasReservedIsABrokenInvariant) {
  // The log is written by a thread, which a plain fork does not have.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Store store(Options(100));
  auto room = store.Reserve("t", 10);
  EXPECT_DEATH(
      {
        FlushLogAtCrash();
        (void)room->Arrive(11);
      },
      "reservation_overrun");
}

TEST(HandleStoreTest, AReservationOutlivesItsStore) {
  Reservation room;
  {
    Store store(Options(100));
    room = *store.Reserve("t", 10);
  }
  room.Release();
  EXPECT_EQ(room.bytes(), 0);
}

TEST(HandleStoreTest, BoundsEntriesAndTombstones) {
  HandleStoreOptions options = Options(1000);
  options.max_entries = 2;
  options.max_tombstones = 1;
  Store store(options);
  const std::string a = PutText(store, "a", 1), b = PutText(store, "b", 1),
                    c = PutText(store, "c", 1), d = PutText(store, "d", 1);
  EXPECT_EQ(store.stats().entries, 2);
  EXPECT_EQ(ReasonOf(store.Get("t", b).status()), "HANDLE_EVICTED");
  EXPECT_EQ(ReasonOf(store.Get("t", a).status()), "HANDLE_UNKNOWN") << "its tombstone is gone";
}

TEST(HandleStoreTest, PagesNewestFirst) {
  Store store(Options(1000));
  for (const char* text : {"a", "b", "c", "d", "e"}) PutText(store, text, 1);
  PutText(store, "x", 1, "other");
  std::string seen, token;
  int pages = 0;
  do {
    const auto page = store.List("t", *ParsePage("l", 2, token));
    for (const auto& item : page.items) seen += *item.value;
    token = page.next_token;
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(seen, "edcba");
  EXPECT_EQ(pages, 3);
}

TEST(HandleStoreTest, WhoIsOverItsShareTakesOfItsOwnAlone) {
  Store store(Options(100));
  const std::string quiet = PutText(store, "q", 10, "quiet");
  std::string first;
  for (int i = 0; i < 20; ++i) {
    const std::string handle = PutText(store, std::to_string(i).c_str(), 10, "flood");
    if (i == 0) first = handle;
  }
  EXPECT_TRUE(store.Get("quiet", quiet).ok()) << "used before all that the flood brought";
  EXPECT_EQ(ReasonOf(store.Get("flood", first).status()), "HANDLE_EVICTED");
  EXPECT_EQ(store.stats().bytes, 100) << "while there is room anybody may take it";
  // Up to its share the quiet one gets room from the flood.
  for (int i = 0; i < 4; ++i) PutText(store, ("more " + std::to_string(i)).c_str(), 10, "quiet");
  EXPECT_EQ(store.List("quiet", {}).items.size(), 5U);
  EXPECT_EQ(store.List("flood", {}).items.size(), 5U);
  // Beyond it, of its own.
  PutText(store, "beyond", 10, "quiet");
  EXPECT_EQ(store.List("quiet", {}).items.size(), 5U);
  EXPECT_EQ(store.List("flood", {}).items.size(), 5U);
  EXPECT_EQ(ReasonOf(store.Get("quiet", quiet).status()), "HANDLE_EVICTED");
}

TEST(HandleStoreTest, RefusesWhoIsOverItsShareAndHasNothingToGive) {
  Store store(Options(100));
  const std::string quiet = PutText(store, "q", 30, "quiet");
  const auto held = store.Get("flood", PutText(store, "f", 40, "flood"))->value;
  const absl::Status put = store.Put("flood", Text("g"), 40, "g").status();
  EXPECT_EQ(ReasonOf(put), "STORE_FULL");
  EXPECT_NE(put.message().find("this tenant has 40 bytes of a share of 50"), std::string::npos)
      << put;
  EXPECT_EQ(ReasonOf(store.Reserve("flood", 40).status()), "STORE_FULL") << "before it is sent";
  auto room = store.Reserve("flood", 30);
  ASSERT_TRUE(room.ok());
  const std::string more = PutText(store, "r", 20, "quiet");
  EXPECT_TRUE(room->Arrive(10).ok());
  EXPECT_EQ(ReasonOf(room->Arrive(10)), "STORE_FULL") << "60 of a share of 50";
  EXPECT_TRUE(store.Get("quiet", quiet).ok());
  EXPECT_TRUE(store.Get("quiet", more).ok());
}

TEST(HandleStoreTest, EntriesAndTombstonesAreSharedAsBytesAre) {
  HandleStoreOptions options = Options(1'000'000);
  options.max_entries = 10;
  options.max_tombstones = 10;
  Store store(options);
  std::vector<std::string> quiet;
  for (const char* text : {"a", "b", "c", "d", "e", "f"}) {
    quiet.push_back(PutText(store, text, 1, "quiet"));
  }
  for (int i = 0; i < 1000; ++i) PutText(store, std::to_string(i).c_str(), 1, "flood");
  EXPECT_EQ(ReasonOf(store.Get("quiet", quiet[0]).status()), "HANDLE_EVICTED")
      << "one over its half, and still remembered after 995 more evictions";
  for (size_t i = 1; i < quiet.size(); ++i) EXPECT_TRUE(store.Get("quiet", quiet[i]).ok());
  EXPECT_EQ(store.stats().entries, 10);
}

// What uploads in flight hold cannot be taken back: an eighth is kept for others, though not from
// a single one.
TEST(HandleStoreTest, ManyUploadsInFlightLeaveRoomForOthers) {
  Store store(Options(800));
  std::vector<Reservation> flood;
  for (int i = 0; i < 10; ++i) {
    auto room = store.Reserve("flood", 100);
    if (!room.ok() || !room->Arrive(100).ok()) continue;
    flood.push_back(*std::move(room));
  }
  EXPECT_EQ(flood.size(), 7U);
  auto quiet = store.Reserve("quiet", 100);
  ASSERT_TRUE(quiet.ok());
  EXPECT_TRUE(quiet->Arrive(100).ok());
  EXPECT_TRUE(store.Put("quiet", Text("q"), 100, "q", *std::move(quiet)).ok());
  flood.clear();
  EXPECT_EQ(store.stats().arrived_bytes, 0);
  auto alone = store.Reserve("flood", 700);
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(alone->Arrive(700).ok());
}

TEST(HandleStoreTest, WhatNobodyUsedForLongGoesFirst) {
  FakeClock clock;
  HandleStoreOptions options = Options(100);
  options.clock = &clock;
  Store store(options);
  const std::string old = PutText(store, "o", 30, "old");
  PutText(store, "a", 60, "busy");
  clock.Advance(std::chrono::minutes(61));
  const std::string b = PutText(store, "b", 40, "busy");
  EXPECT_EQ(ReasonOf(store.Get("old", old).status()), "HANDLE_EVICTED");
  EXPECT_EQ(store.stats().bytes, 100);
  EXPECT_TRUE(store.Get("busy", b).ok());
}

TEST(HandleStoreTest, MadeUpTenantsShareOneShare) {
  HandleStoreOptions options = Options(int64_t{1} << 30);
  options.max_entries = 1000;
  options.max_tombstones = 1000;
  options.shares.max_tenants = 4;
  Store store(options);
  std::vector<std::string> real;
  for (int i = 0; i < 100; ++i) {
    real.push_back(PutText(store, std::to_string(i).c_str(), 1, "real"));
  }
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(store.Put("made up " + std::to_string(i), Text("x"), 1, "x").ok());
  }
  for (const std::string& handle : real) EXPECT_TRUE(store.Get("real", handle).ok());
  EXPECT_EQ(store.stats().entries, 1000);
  EXPECT_EQ(store.stats().tenants, 5);
}

// Random calls of six tenants: the books are right, the limits hold, and nobody loses an entry to
// another while it has no more than its share.
TEST(HandleStoreTest, InvariantsOfRandomCalls) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    HandleStoreOptions options = Options(1000);
    options.max_entries = 40;
    options.shares.weights = {{"t0", 3.0}};
    Store store(options);
    const auto weight = [](int tenant) { return tenant == 0 ? 3.0 : 1.0; };
    struct Known {
      int64_t bytes;
      std::shared_ptr<const std::string> held;
    };
    std::map<std::string, Known> known[6];
    std::vector<std::pair<int, Reservation>> arriving;
    for (int step = 0; step < 3000; ++step) {
      const int tenant = static_cast<int>(random() % 6);
      const std::string name = "t" + std::to_string(tenant);
      const auto bytes = static_cast<int64_t>(random() % 90);
      int64_t bytes_before[6] = {}, entries_before[6] = {};
      double weights = 0;
      for (int t = 0; t < 6; ++t) {
        for (const auto& [handle, one] : known[t]) bytes_before[t] += one.bytes;
        entries_before[t] = static_cast<int64_t>(known[t].size());
        bool there = t == tenant || !known[t].empty();
        for (const auto& [of, room] : arriving) {
          if (of != t) continue;
          there = true;
          bytes_before[t] += room.arrived();
        }
        weights += there ? weight(t) : 0;
      }
      switch (random() % 8) {
        case 0:
          if (auto room = store.Reserve(name, bytes); room.ok() && room->Arrive(bytes).ok()) {
            arriving.emplace_back(tenant, *std::move(room));
          }
          break;
        case 1:
          if (arriving.size() > 3) arriving.erase(arriving.begin());
          break;
        case 2:
          for (auto& [handle, one] : known[tenant]) one.held.reset();
          break;
        case 3:
          if (!known[tenant].empty()) {
            auto& [handle, one] = *known[tenant].begin();
            auto found = store.Get(name, handle);
            if (found.ok()) one.held = found->value;
          }
          break;
        case 4:
          if (!known[tenant].empty()) {
            const auto it = known[tenant].begin();
            it->second.held.reset();
            if (store.Delete(name, it->first).ok()) known[tenant].erase(it);
          }
          break;
        default:
          if (auto put = store.Put(name, Text("x"), bytes, ""); put.ok()) {
            known[tenant][put->handle] = {bytes, nullptr};
          }
      }
      int64_t sum = 0, entries = 0, arrived = 0;
      for (int t = 0; t < 6; ++t) {
        const int64_t there =
            static_cast<int64_t>(store.List("t" + std::to_string(t), {.size = 1000}).items.size());
        if (t != tenant && there < static_cast<int64_t>(known[t].size())) {
          const double part = weight(t) / weights;
          EXPECT_TRUE(static_cast<double>(bytes_before[t]) > 1000 * part ||
                      static_cast<double>(entries_before[t]) > 40 * part)
              << "tenant " << t << " gave " << name << " what was in its share";
        }
        std::erase_if(known[t], [&](const auto& one) {
          return store.Get("t" + std::to_string(t), one.first).status().code() ==
                 absl::StatusCode::kNotFound;
        });
        for (const auto& [handle, one] : known[t]) sum += one.bytes;
        entries += static_cast<int64_t>(known[t].size());
      }
      for (const auto& [of, room] : arriving) arrived += room.arrived();
      const auto stats = store.stats();
      ASSERT_EQ(stats.bytes, sum);
      ASSERT_EQ(stats.entries, entries);
      ASSERT_EQ(stats.arrived_bytes, arrived);
      ASSERT_LE(sum + arrived, 1000);
      ASSERT_LE(entries, 40);
    }
  }
}

TEST(HandleStoreTest, ManyThreadsAtOnce) {
  Store store(Options(50));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      const std::string tenant = "t" + std::to_string(t % 2);
      for (int i = 0; i < 400; ++i) {
        const std::string text = std::to_string(i % 37);
        auto room = store.Reserve(tenant, 5);
        if (room.ok() && room->Arrive(5).ok()) {
          auto stored = store.Put(tenant, Text(text.c_str()), 5, text, *std::move(room));
          if (stored.ok()) {
            EXPECT_EQ(*stored->value, text);
            if (i % 5 == 0) (void)store.Delete(tenant, stored->handle);
          }
        }
        (void)store.List(tenant, {});
        EXPECT_LE(store.stats().bytes, 50);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store.stats().reserved_bytes, 0);
  EXPECT_EQ(store.stats().zombie_bytes, 0);
}

}  // namespace
}  // namespace spaid::server
