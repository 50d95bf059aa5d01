// A store over a spill folder: eviction is a slow hit, and a restart forgets nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/store/handle_store.h"
#include "server/store/spill_writer.h"
#include "tests/server/store/spill_helpers.h"

namespace spaid::server {
namespace {

// A value with a part, as matrices have patterns.
struct Value {
  std::shared_ptr<const std::string> part;
  std::string own;
};
using Store = HandleStore<Value>;

absl::StatusOr<std::string> ReadText(SpillFolder& folder, const SpillRecord& record, size_t blob) {
  auto reader = folder.Read(record, blob);
  if (!reader.ok()) return reader.status();
  std::string text(static_cast<size_t>(reader->sizes()[0]), '\0');
  absl::Status status = reader->Next(std::as_writable_bytes(std::span(text.data(), text.size())));
  if (!status.ok()) return status;
  folder.CountRead(static_cast<int64_t>(text.size()));
  return text;
}

class SpillStoreTest : public testing::Test {
 protected:
  void Open(int64_t store_bytes = 1000, int64_t spill_bytes = 1 << 20) {
    Close();
    folder_ = OpenSpill(path_, spill_bytes, [this](std::string_view step) {
      return fail_ && step == "create" ? ENOSPC : 0;
    });
    SpillCodec codec;
    codec.encode = [this](const std::string&, const void* stored) {
      const auto& value = *static_cast<const Value*>(stored);
      ++encoded_;
      while (hold_encode_) std::this_thread::yield();
      return SpillContent{.meta = "meta of " + value.own,
                          .blobs = {{SpillKind::kPattern, *value.part, {Bytes(*value.part)}},
                                    {SpillKind::kValues, value.own, {Bytes(value.own)}}}};
    };
    codec.decode = [this](const SpillRecord& record, SpillFolder& folder,
                          SpillCodec::FindPart find_part,
                          size_t* blob) -> absl::StatusOr<SpillValue> {
      ++decoding_;
      while (hold_decode_) std::this_thread::yield();
      auto value = std::make_shared<Value>();
      *blob = 0;
      auto part = std::static_pointer_cast<const std::string>(
          find_part(record.part_keys.front(), [&](const void* known) {
            return SpillFolder::NameOf(record.tenant, SpillKind::kPattern,
                                       *static_cast<const std::string*>(known)) ==
                   record.blobs[0].name;
          }));
      if (part == nullptr) {
        ASSIGN_OR_RETURN(std::string text, ReadText(folder, record, 0));
        part = std::make_shared<const std::string>(std::move(text));
      }
      value->part = part;
      *blob = 1;
      ASSIGN_OR_RETURN(value->own, ReadText(folder, record, 1));
      return SpillValue{value, record.bytes, part, record.part_bytes};
    };
    store_ = std::make_unique<Store>(HandleStoreOptions{.prefix = "m/",
                                                        .what = "matrix",
                                                        .limit_flag = "--matrix-store-bytes",
                                                        .max_bytes = store_bytes,
                                                        .too_large_reason = reason::kMatrixTooLarge,
                                                        .spill = folder_.get(),
                                                        .codec = std::move(codec)});
  }
  void Close() {
    store_.reset();
    folder_.reset();
  }
  // 100 bytes for the value, 50 for the part.
  absl::StatusOr<Stored<Value>> Put(const std::string& tenant, const std::string& part,
                                    const std::string& own) {
    auto value = std::make_shared<Value>();
    value->own = own;
    value->part = store_->ShareByKeys<std::string>(
        tenant, std::make_shared<const std::string>(part), {"part " + part},
        [&](const std::string& known) { return known == part; });
    const HandleTable::Part shared{value->part, 50};
    return store_->Put(tenant, value, 100, {part + "|" + own}, {}, {}, shared);
  }
  std::string PutHandle(const std::string& part, const std::string& own,
                        const std::string& tenant = "t") {
    const auto put = Put(tenant, part, own);
    EXPECT_TRUE(put.ok()) << put.status();
    return put.ok() ? put->handle : "";
  }
  void SpillAll() {
    while (store_->SpillOne()) {
    }
  }
  std::string file(const std::string& handle, size_t blob, const std::string& tenant = "t") {
    return path_ + "/files/" + folder_->Find(tenant, handle)->blobs[blob].file();
  }
  std::vector<std::string> List(const std::string& tenant, int32_t size = 100) {
    std::vector<std::string> handles;
    PageRequest request{.list = "l", .size = size};
    for (;;) {
      const auto page = store_->List(tenant, request);
      for (const auto& item : page.items) handles.push_back(item.handle);
      if (page.next_token.empty()) return handles;
      request.before = page.sequences.back();
    }
  }

  TemporaryFolder temporary_;
  const std::string path_ = temporary_ / "s";
  std::unique_ptr<SpillFolder> folder_;
  std::unique_ptr<Store> store_;
  std::atomic<bool> hold_encode_{false}, hold_decode_{false}, fail_{false};
  std::atomic<int> encoded_{0}, decoding_{0};
};

TEST_F(SpillStoreTest, EvictionIsASlowHit) {
  Open(/*store_bytes=*/300);
  const std::string first = PutHandle("p", "a");
  SpillAll();
  const std::string second = PutHandle("q", "b");
  SpillAll();
  PutHandle("r", "c");  // evicts the first
  EXPECT_EQ(store_->stats().evictions, 1);
  EXPECT_EQ(ReasonOf(store_->Get("t", first).status()), "HANDLE_EVICTED");
  const auto seen = store_->Look("t", first);
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->value, nullptr);
  EXPECT_EQ(seen->spilled->meta, "meta of a");
  EXPECT_TRUE(store_->Spilled("t", "p|a"));
  EXPECT_TRUE(store_->Spilled("t", "part p", /*part=*/true));
  EXPECT_FALSE(store_->Spilled("t", "part p"));
  EXPECT_FALSE(store_->Spilled("t", "q|b"));  // it is here
  const auto loaded = store_->Load("t", first);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->value->own, "a");
  EXPECT_EQ(*loaded->value->part, "p");
  EXPECT_EQ(loaded->handle, first);
  EXPECT_EQ(store_->Get("t", first)->value, loaded->value);
  EXPECT_EQ(store_->stats().bytes, 300);
  EXPECT_EQ(folder_->stats().loaded, 2);
  // The one that was evicted for it is in the folder, too.
  EXPECT_EQ(store_->Load("t", second)->value->own, "b");
}

TEST_F(SpillStoreTest, WhoeverAsksGivesUpItsOwnFirst) {
  Open();
  const std::string hers = PutHandle("p", "a", "alice"), first = PutHandle("q", "b"),
                    second = PutHandle("q", "c"), kept = PutHandle("q", "not this one");
  const auto any = [](const Value& value) { return value.own != "not this one"; };
  EXPECT_FALSE(store_->EvictSpilled("t", any)) << "nothing is in the folder";
  SpillAll();
  EXPECT_TRUE(store_->Get("t", first).ok());  // now it was used last
  {
    const auto in_use = store_->Get("t", second);
    EXPECT_TRUE(store_->EvictSpilled("t", any));
    EXPECT_FALSE(store_->Get("t", first).ok()) << "the other one is in use";
    EXPECT_TRUE(store_->Get("t", second).ok());
  }
  EXPECT_TRUE(store_->EvictSpilled("t", any));
  EXPECT_FALSE(store_->Get("t", second).ok());
  EXPECT_TRUE(store_->Get("alice", hers).ok());
  EXPECT_TRUE(store_->EvictSpilled("t", any)) << "then others'";
  EXPECT_EQ(ReasonOf(store_->Get("alice", hers).status()), "HANDLE_EVICTED");
  EXPECT_FALSE(store_->EvictSpilled("t", any));
  EXPECT_TRUE(store_->Get("t", kept).ok());
  for (const auto& [tenant, handle] : {std::pair("alice", hers), {"t", first}, {"t", second}}) {
    EXPECT_TRUE(store_->Load(tenant, handle).ok());
  }
}

TEST_F(SpillStoreTest, ARestartForgetsNothing) {
  Open();
  const std::string a = PutHandle("p", "a"), b = PutHandle("p", "b"), c = PutHandle("q", "c");
  SpillAll();
  Open();
  EXPECT_EQ(List("t"), (std::vector<std::string>{c, b, a}));
  EXPECT_EQ(store_->stats().entries, 0);
  EXPECT_EQ(folder_->stats().loaded, 0);  // nothing was read but the index
  const auto loaded_a = store_->Load("t", a), loaded_b = store_->Load("t", b);
  ASSERT_TRUE(loaded_a.ok() && loaded_b.ok());
  EXPECT_EQ(loaded_a->value->own, "a");
  EXPECT_EQ(loaded_a->value->part, loaded_b->value->part);  // one part again, read once
  EXPECT_EQ(folder_->stats().loaded, 3);
  EXPECT_EQ(store_->stats().bytes, 250);
  EXPECT_EQ(store_->FindOrLoad("t", "q|c")->handle, c);
  // New ones come behind, and are known by no old handle.
  const std::string d = PutHandle("p", "d");
  EXPECT_EQ(List("t"), (std::vector<std::string>{d, c, b, a}));
  EXPECT_EQ(List("t", 1), (std::vector<std::string>{d, c, b, a}));
  EXPECT_EQ(List("t", 3), (std::vector<std::string>{d, c, b, a}));
}

TEST_F(SpillStoreTest, AnotherTenantsHandleIsUnknownAfterARestart) {
  Open();
  const std::string hers = PutHandle("p", "a", "alice");
  SpillAll();
  Open();
  for (const auto& asked : {store_->Look("bob", hers), store_->Load("bob", hers)}) {
    EXPECT_EQ(ReasonOf(asked.status()), "HANDLE_UNKNOWN");
  }
  EXPECT_EQ(ReasonOf(store_->Delete("bob", hers)), "HANDLE_UNKNOWN");
  EXPECT_FALSE(store_->FindOrLoad("bob", "p|a").has_value());
  EXPECT_EQ(store_->FindPartOrLoad<std::string>("bob", "part p", [](const auto&) { return true; }),
            nullptr);
  EXPECT_TRUE(List("bob").empty());
  EXPECT_TRUE(store_->Load("alice", hers).ok());
}

TEST_F(SpillStoreTest, WhatWasNotSpilledIsEvictedAsEver) {
  Open(/*store_bytes=*/150);
  fail_ = true;
  const std::string first = PutHandle("p", "a");
  SpillAll();
  EXPECT_EQ(folder_->stats().refused, 1);
  PutHandle("q", "b");
  EXPECT_EQ(ReasonOf(store_->Load("t", first).status()), "HANDLE_EVICTED");
  fail_ = false;
  SpillAll();  // what comes later is written again
  EXPECT_EQ(folder_->stats().records, 1);
  Open();
  EXPECT_EQ(ReasonOf(store_->Load("t", first).status()), "HANDLE_UNKNOWN");
}

TEST_F(SpillStoreTest, WhatGoesFromTheFolderToMakeRoomIsEvictedUnlessItIsHere) {
  // For one, and not two.
  Open(/*store_bytes=*/300, /*spill_bytes=*/SpillFolder::kRowBytes * 3 / 2 + 600);
  const std::string first = PutHandle("p", "a");
  SpillAll();
  const std::string second = PutHandle("q", "b");
  SpillAll();
  EXPECT_EQ(folder_->stats().records, 1);
  PutHandle("r", "c");
  EXPECT_EQ(ReasonOf(store_->Load("t", first).status()), "HANDLE_EVICTED");
  SpillAll();  // the second goes, which is still here
  EXPECT_TRUE(store_->Get("t", second).ok());
}

TEST_F(SpillStoreTest, DeletingTakesFilesToo) {
  Open();
  const std::string a = PutHandle("p", "a"), b = PutHandle("p", "b");
  SpillAll();
  EXPECT_TRUE(store_->Delete("t", a).ok());
  Open();
  EXPECT_EQ(List("t"), std::vector<std::string>{b});
  EXPECT_TRUE(store_->Delete("t", b).ok());
  EXPECT_EQ(ReasonOf(store_->Load("t", b).status()), "HANDLE_UNKNOWN");
  EXPECT_EQ(ReasonOf(store_->Delete("t", b)), "HANDLE_UNKNOWN");
  folder_->WriteDeletes();
  EXPECT_TRUE(std::filesystem::is_empty(path_ + "/files"));
}

TEST_F(SpillStoreTest, DeletedWhileItIsWritten) {
  Open();
  const std::string a = PutHandle("p", "a");
  hold_encode_ = true;
  std::thread writer([&] { SpillAll(); });
  while (encoded_ == 0) std::this_thread::yield();
  EXPECT_TRUE(store_->Delete("t", a).ok());
  hold_encode_ = false;
  writer.join();
  EXPECT_EQ(folder_->stats().records, 0);
  EXPECT_EQ(ReasonOf(store_->Load("t", a).status()), "HANDLE_UNKNOWN");
}

TEST_F(SpillStoreTest, WhatIsWrittenIsNotEvictedMeanwhile) {
  Open(/*store_bytes=*/150);
  PutHandle("p", "a");
  hold_encode_ = true;
  std::thread writer([&] { SpillAll(); });
  while (encoded_ == 0) std::this_thread::yield();
  EXPECT_EQ(ReasonOf(Put("t", "q", "b").status()), "STORE_FULL");
  hold_encode_ = false;
  writer.join();
  EXPECT_TRUE(Put("t", "q", "b").ok());
}

TEST_F(SpillStoreTest, ManyWhoAskForOneReadItOnce) {
  Open();
  const std::string a = PutHandle("p", "a");
  SpillAll();
  Open();
  hold_decode_ = true;
  std::vector<std::thread> threads;
  std::atomic<int> ok{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] { ok += store_->Load("t", a).ok(); });
  }
  while (decoding_ == 0) std::this_thread::yield();
  hold_decode_ = false;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ok, 8);
  EXPECT_EQ(decoding_, 1);
}

TEST_F(SpillStoreTest, DeletedWhileItIsReadBack) {
  Open();
  const std::string a = PutHandle("p", "a");
  SpillAll();
  Open();
  hold_decode_ = true;
  absl::Status status;
  std::thread reader([&] { status = store_->Load("t", a).status(); });
  while (decoding_ == 0) std::this_thread::yield();
  EXPECT_TRUE(store_->Delete("t", a).ok());
  hold_decode_ = false;
  reader.join();
  EXPECT_EQ(ReasonOf(status), "HANDLE_UNKNOWN");
  EXPECT_EQ(store_->stats().entries, 0);
}

TEST_F(SpillStoreTest, NoRoomForWhatIsReadBack) {
  Open(/*store_bytes=*/150);
  const std::string a = PutHandle("p", "a");
  SpillAll();
  const auto b = Put("t", "q", "b");
  ASSERT_TRUE(b.ok());  // in use
  EXPECT_EQ(ReasonOf(store_->Load("t", a).status()), "STORE_FULL");
  EXPECT_EQ(store_->stats().reserved_bytes, 0);
}

// Each file of a record, each damaged: an answer that clients heal, counted, and aside.
TEST_F(SpillStoreTest, DamagedFilesAreAnsweredAsEvicted) {
  for (const size_t blob : {size_t{0}, size_t{1}}) {
    Open();
    const std::string a = PutHandle("p" + std::to_string(blob), "a");
    SpillAll();
    std::string bytes = ReadWhole(file(a, blob));
    bytes[bytes.size() / 2] ^= 4;
    WriteWhole(file(a, blob), bytes);
    Open();
    const int64_t damaged = folder_->stats().damaged;
    EXPECT_EQ(ReasonOf(store_->Load("t", a).status()), "HANDLE_EVICTED");
    EXPECT_EQ(ReasonOf(store_->Load("t", a).status()), "HANDLE_EVICTED");
    EXPECT_EQ(folder_->stats().damaged, damaged + 1);
    EXPECT_TRUE(List("t").empty());
    EXPECT_EQ(store_->stats().reserved_bytes, 0);
    const std::string again = PutHandle("p" + std::to_string(blob), "a");
    SpillAll();
    Open();
    EXPECT_TRUE(store_->Load("t", again).ok());
    EXPECT_TRUE(store_->Delete("t", again).ok());
  }
}

TEST_F(SpillStoreTest, APartOfWhatIsInTheFolderAlone) {
  Open();
  PutHandle("p", "a");
  PutHandle("p", "b");
  SpillAll();
  Open();
  const auto any = [](const std::string&) { return true; };
  EXPECT_EQ(store_->FindPart<std::string>("t", "part p", any), nullptr);
  const auto part = store_->FindPartOrLoad<std::string>("t", "part p", any);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(*part, "p");
  int asked = 0;
  EXPECT_EQ(store_->FindPartOrLoad<std::string>("t", "part p",
                                                [&](const std::string&) {
                                                  ++asked;
                                                  return false;
                                                }),
            nullptr);
  EXPECT_GE(asked, 1);
}

TEST_F(SpillStoreTest, TheWriterWritesAllAndRests) {
  Open();
  SpillWriter writer(folder_.get(), {[&] { return store_->SpillOne(); }});
  std::vector<std::string> handles;
  for (int i = 0; i < 5; ++i) handles.push_back(PutHandle("p", std::to_string(i)));
  ASSERT_TRUE(writer.Flush(std::chrono::seconds(30)));
  EXPECT_EQ(folder_->stats().records, 5);
  EXPECT_TRUE(store_->Delete("t", handles[0]).ok());
  ASSERT_TRUE(writer.Flush(std::chrono::seconds(30)));
  EXPECT_EQ(folder_->stats().files, 5);
  hold_encode_ = true;
  PutHandle("p", "slow");
  EXPECT_FALSE(writer.Flush(std::chrono::milliseconds(1)));
  hold_encode_ = false;
  EXPECT_TRUE(writer.Flush(std::chrono::seconds(30)));
}

TEST_F(SpillStoreTest, WhatIsDeletedLaterGoesWhenAllBeforeIsWritten) {
  Open();
  SpillRecord promise = RecordOf("jobs/1", "t", 1);
  promise.pinned = true;
  ASSERT_TRUE(folder_->Write(promise, {}).ok());
  hold_encode_ = true;
  const std::string made = PutHandle("p", "made");
  folder_->DeleteLater("t", "jobs/1");
  SpillWriter writer(folder_.get(), {[&] { return store_->SpillOne(); }});
  while (encoded_ == 0) std::this_thread::yield();
  EXPECT_NE(folder_->Find("t", "jobs/1"), nullptr);
  hold_encode_ = false;
  ASSERT_TRUE(writer.Flush(std::chrono::seconds(30)));
  EXPECT_NE(folder_->Find("t", made), nullptr);
  EXPECT_EQ(folder_->Find("t", "jobs/1"), nullptr);
}

TEST_F(SpillStoreTest, ManyThreadsPutLoadAndDelete) {
  Open(/*store_bytes=*/1500, /*spill_bytes=*/200'000);
  SpillWriter writer(folder_.get(), {[&] { return store_->SpillOne(); }});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const std::string tenant = std::to_string(t % 2);
      std::vector<std::string> mine;
      for (int i = 0; i < 60; ++i) {
        const auto put = Put(tenant, std::to_string(i % 3), std::to_string(100 * t + i));
        if (put.ok()) mine.push_back(put->handle);
        if (mine.empty()) continue;
        const auto loaded = store_->Load(tenant, mine[mine.size() / 2]);
        if (!loaded.ok()) {
          const std::string reason = ReasonOf(loaded.status());
          EXPECT_TRUE(reason == "HANDLE_EVICTED" || reason == "STORE_FULL") << loaded.status();
        }
        if (i % 5 == 0) {
          (void)store_->Delete(tenant, mine.back());
          mine.pop_back();
        }
        (void)store_->FindOrLoad(tenant, "0|" + std::to_string(100 * t));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(writer.Flush(std::chrono::seconds(30)));
  EXPECT_LE(store_->stats().bytes, 1500);
  EXPECT_EQ(store_->stats().reserved_bytes, 0);
  EXPECT_EQ(folder_->stats().damaged, 0);
}

}  // namespace
}  // namespace spaid::server
