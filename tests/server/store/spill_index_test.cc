#include "server/store/spill_index.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <map>
#include <string>
#include <vector>

#include "server/base/checksum.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "tests/server/store/spill_helpers.h"

namespace spaid::server {
namespace {

TEST(SpillRecordTest, ComesBackOrNotAtAll) {
  SpillRecord record = RecordOf("m/1", "tenant", 3);
  record.part_keys = {"", std::string("\0x", 2)};
  record.pinned = true;
  record.needs = {"m/7"};
  record.blobs = {{SpillKind::kVectors, Sha256Of("x"), 77}};
  const std::string packed = PackRecord(record);
  const auto back = UnpackRecord(packed);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(PackRecord(*back), packed);
  EXPECT_EQ(back->part_keys, record.part_keys);
  EXPECT_TRUE(back->pinned);
  EXPECT_EQ(back->needs, record.needs);
  for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    std::string damaged = packed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(UnpackRecord(damaged).has_value()) << bit;
  }
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(UnpackRecord(packed.substr(0, size)).has_value()) << size;
  }
}

// A bit flipped anywhere: what comes back is what was there, and what does not is known to be
// missing, or the index says that it was damaged, or of another version.
TEST(SpillIndexTest, ABitFlippedAnywhere) {
  TemporaryFolder temporary;
  const std::string path = temporary / "s", index = path + "/index.sqlite";
  std::map<std::string, std::string> all;
  {
    const auto folder = OpenSpill(path);
    for (int i = 0; i < 60; ++i) {
      SpillRecord record = RecordOf("m/" + std::to_string(i), "t", i);
      record.meta = std::string(100, static_cast<char>('a' + i % 26));
      all[record.handle] = record.meta;
      ASSERT_TRUE(folder->Write(record, {}).ok());
    }
  }
  const std::string whole = ReadWhole(index);
  ASSERT_GT(whole.size(), 8'000u);
  int damaged = 0, refused = 0;
  // Each byte of the header, and others by a step that is no divisor of anything.
  for (size_t at = 0; at < whole.size(); at += at < 100 ? 1 : 131) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    std::filesystem::remove_all(path + "/damaged");
    std::filesystem::remove(index + "-wal");
    WriteWhole(index, bytes);
    const auto folder =
        SpillFolder::Open({.folder = path, .max_bytes = 1 << 30, .sync = SpillSync::kNone});
    if (!folder.ok()) {
      ++refused;
      EXPECT_NE(folder.status().message().find("version"), std::string::npos)
          << at << ": " << folder.status();
      continue;
    }
    const auto records = (*folder)->List("t", "m/", ~uint64_t{0}, 1000);
    for (const auto& record : records) EXPECT_EQ(record->meta, all.at(record->handle)) << at;
    damaged += (*folder)->stats().damaged > 0;
    if (records.size() < all.size()) {
      EXPECT_GT((*folder)->stats().damaged, 0) << at;
    }
    // It works on.
    EXPECT_TRUE((*folder)->Write(RecordOf("m/new", "t", 1000), {}).ok()) << at;
  }
  EXPECT_GT(damaged, 20);
  EXPECT_LE(refused, 4);  // the bytes of the version
}

TEST(SpillIndexTest, CutShortOrOfNoUse) {
  TemporaryFolder temporary;
  const std::string path = temporary / "s", index = path + "/index.sqlite";
  {
    const auto folder = OpenSpill(path);
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(folder->Write(RecordOf("m/" + std::to_string(i), "t", i), {}).ok());
    }
  }
  const std::string whole = ReadWhole(index);
  for (const std::string& bytes :
       {whole.substr(0, whole.size() / 2), whole.substr(0, 50), std::string(5000, 'x')}) {
    WriteWhole(index, bytes);
    const auto folder = OpenSpill(path);
    ASSERT_NE(folder, nullptr);
    EXPECT_GT(folder->stats().damaged, 0);
    EXPECT_TRUE(folder->Write(RecordOf("m/new", "t", 1000), {}).ok());
  }
}

TEST(SpillIndexTest, KeepsAFewDamagedOnesAlone) {
  TemporaryFolder temporary;
  const std::string path = temporary / "s";
  for (int i = 0; i < 30; ++i) {
    ASSERT_NE(OpenSpill(path), nullptr);
    WriteWhole(path + "/index.sqlite", "damage " + std::to_string(i));
  }
  size_t kept = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(path + "/damaged")) {
    ++kept;
  }
  EXPECT_LE(kept, SpillFolder::kMaxDamaged + 2u);
  EXPECT_GT(kept, 0u);
}

TEST(SpillIndexTest, RefusesAnotherVersion) {
  TemporaryFolder temporary;
  const std::string path = temporary / "s";
  OpenSpill(path);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((path + "/index.sqlite").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version=2", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const absl::Status status = SpillFolder::Open({.folder = path, .max_bytes = 1000}).status();
  EXPECT_EQ(ReasonOf(status), reason::kBadSpillFolder);
  EXPECT_NE(status.message().find("of version 2; this daemon reads 1"), std::string::npos);
}

// A takeover that was cut off between its steps.
TEST(SpillIndexTest, ATakeoverThatWasCutOff) {
  TemporaryFolder temporary;
  const std::string path = temporary / "s", index = path + "/index.sqlite";
  {
    const auto folder = OpenSpill(path);
    ASSERT_TRUE(folder->Write(RecordOf("m/1", "t", 1), {}).ok());
  }
  const std::string whole = ReadWhole(index);
  // Before its first step: the old one counts, and the new one is not whole.
  WriteWhole(index + ".new", "half");
  EXPECT_NE(OpenSpill(path)->Find("t", "m/1"), nullptr);
  // Behind it: the old one is aside, its log still there.
  std::filesystem::rename(index, index + ".new");
  WriteWhole(index + "-wal", "of the old one");
  EXPECT_NE(OpenSpill(path)->Find("t", "m/1"), nullptr);
}

}  // namespace
}  // namespace spaid::server
