#include "server/store/handle_store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

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
       {store.Reserve(101).status(), store.Put("t", Text("a"), 101, "a").status()}) {
    EXPECT_EQ(ReasonOf(status), "MATRIX_TOO_LARGE");
    EXPECT_EQ(MetaOf(status, "actual"), "101");
    EXPECT_EQ(MetaOf(status, "limit"), "100");
    EXPECT_NE(status.message().find("--matrix-store-bytes"), std::string::npos);
  }
  EXPECT_EQ(ReasonOf(store.Reserve(int64_t{1} << 62).status()), "MATRIX_TOO_LARGE");
  EXPECT_EQ(ReasonOf(store.Reserve(-5).status()), "MATRIX_TOO_LARGE");
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
  auto room = store.Reserve(90);
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
  auto idle = store.Reserve(100);
  ASSERT_TRUE(idle.ok());
  auto room = store.Reserve(100);
  ASSERT_TRUE(room.ok());
  EXPECT_EQ(store.stats().reserved_bytes, 200);
  EXPECT_TRUE(room->Arrive(60).ok());
  EXPECT_EQ(ReasonOf(idle->Arrive(41)), "STORE_FULL") << "what has arrived is not given twice";
  EXPECT_EQ(ReasonOf(store.Reserve(41).status()), "STORE_FULL");
  EXPECT_EQ(ReasonOf(store.Put("t", Text("a"), 41, "a").status()), "STORE_FULL");
  EXPECT_TRUE(store.Put("t", Text("b"), 60, "b", *std::move(room)).ok());
  *idle = Reservation();  // the stream was cut
  EXPECT_EQ(store.stats().reserved_bytes, 0);
  EXPECT_TRUE(store.Reserve(100).ok());
}

TEST(HandleStoreTest, ArrivalFailsWhereEverythingCameIntoUse) {
  Store store(Options(100));
  const std::string a = PutText(store, "a", 60);
  auto room = store.Reserve(80);
  ASSERT_TRUE(room.ok());
  auto held = store.Get("t", a)->value;
  EXPECT_TRUE(room->Arrive(40).ok());
  EXPECT_EQ(ReasonOf(room->Arrive(40)), "STORE_FULL");
  EXPECT_EQ(room->arrived(), 40);
  held.reset();
  EXPECT_TRUE(room->Arrive(40).ok());
}

TEST(HandleStoreDeathTest, MoreThanWasReservedIsABrokenInvariant) {
  Store store(Options(100));
  auto room = store.Reserve(10);
  EXPECT_DEATH({ (void)room->Arrive(11); }, "reservation_overrun");
}

TEST(HandleStoreTest, AReservationOutlivesItsStore) {
  Reservation room;
  {
    Store store(Options(100));
    room = *store.Reserve(10);
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
    const auto page = store.List("t", *ParsePage(2, token));
    for (const auto& item : page.items) seen += *item.value;
    token = page.next_token;
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(seen, "edcba");
  EXPECT_EQ(pages, 3);
}

TEST(HandleStoreTest, ManyThreadsAtOnce) {
  Store store(Options(50));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      const std::string tenant = "t" + std::to_string(t % 2);
      for (int i = 0; i < 400; ++i) {
        const std::string text = std::to_string(i % 37);
        auto room = store.Reserve(5);
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
