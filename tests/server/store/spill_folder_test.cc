#include "server/store/spill_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "tests/server/store/spill_helpers.h"

namespace spaid::server {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().filename());
  return files;
}

class SpillFolderTest : public testing::Test {
 protected:
  // Handles of what it has, newest first.
  static std::vector<std::string> Handles(const SpillFolder& folder,
                                          const std::string& tenant = "t") {
    std::vector<std::string> handles;
    for (const auto& record : folder.List(tenant, "m/", ~uint64_t{0}, 1000)) {
      handles.push_back(record->handle);
    }
    return handles;
  }
  std::vector<std::string> files() const { return FilesIn(temporary_ / "s/files"); }

  TemporaryFolder temporary_;
  const std::string path_ = temporary_ / "s";
};

TEST_F(SpillFolderTest, KnowsAfterARestartWhatItKnewBefore) {
  SpillRecord record = RecordOf("m/1", "t", 7);
  record.bytes = 11;
  record.part_bytes = 12;
  record.keys = {"a", "b"};
  record.part_keys = {"p"};
  {
    const auto folder = OpenSpill(path_);
    ASSERT_TRUE(Spill(*folder, record, "content").ok());
  }
  const auto folder = OpenSpill(path_);
  const SpillRecordPtr found = folder->Find("t", "m/1");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->sequence, 7u);
  EXPECT_EQ(found->bytes, 11);
  EXPECT_EQ(found->part_bytes, 12);
  EXPECT_EQ(found->keys, record.keys);
  EXPECT_EQ(found->part_keys, record.part_keys);
  EXPECT_EQ(found->meta, record.meta);
  EXPECT_EQ(*Load(*folder, *found), "content");
  EXPECT_EQ(folder->LastSequence("m/"), 7u);
  EXPECT_EQ(folder->LastSequence("other/"), 0u);
  EXPECT_EQ(folder->FindByKey("t", "b").size(), 1u);
  EXPECT_EQ(folder->FindByPartKey("t", "p").size(), 1u);
  EXPECT_TRUE(folder->FindByKey("t", "p").empty());
}

TEST_F(SpillFolderTest, TenantsShareNothing) {
  const auto folder = OpenSpill(path_);
  ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "alice", 1), "same").ok());
  ASSERT_TRUE(Spill(*folder, RecordOf("m/2", "bob", 2), "same").ok());
  EXPECT_EQ(files().size(), 2u);
  EXPECT_EQ(folder->Find("bob", "m/1"), nullptr);
  EXPECT_FALSE(folder->Delete("bob", "m/1"));
  EXPECT_TRUE(folder->FindByKey("bob", "key of m/1").empty());
  EXPECT_EQ(Handles(*folder, "alice"), std::vector<std::string>{"m/1"});
  // Names that run into each other are not the same.
  EXPECT_NE(SpillFolder::NameOf("a", SpillKind::kValues, "bc"),
            SpillFolder::NameOf("ab", SpillKind::kValues, "c"));
}

TEST_F(SpillFolderTest, WritesOneFileOfWhatSeveralHave) {
  const auto folder = OpenSpill(path_);
  for (int i = 0; i < 100; ++i) {
    const std::string own = "values " + std::to_string(i);
    ASSERT_TRUE(
        folder
            ->Write(RecordOf("m/" + own, "t", i), {{SpillKind::kPattern, "p", {Bytes("pattern")}},
                                                   {SpillKind::kValues, own, {Bytes(own)}}})
            .ok());
  }
  EXPECT_EQ(files().size(), 101u);
  for (int i = 0; i < 99; ++i) folder->Delete("t", "m/values " + std::to_string(i));
  folder->WriteDeletes();
  EXPECT_EQ(files().size(), 2u);  // the last of them still has it
  EXPECT_EQ(folder->stats().files, 2);
  folder->Delete("t", "m/values 99");
  folder->WriteDeletes();
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(folder->stats().bytes, 0);
}

TEST_F(SpillFolderTest, AFileThatIsWrittenAgainBeforeItIsGoneStays) {
  const auto folder = OpenSpill(path_);
  ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "t", 1), "x").ok());
  folder->Delete("t", "m/1");
  ASSERT_TRUE(Spill(*folder, RecordOf("m/2", "t", 2), "x").ok());
  EXPECT_EQ(*Load(*folder, *folder->Find("t", "m/2")), "x");
  // A record in another one's place.
  ASSERT_TRUE(Spill(*folder, RecordOf("m/2", "t", 2), "y").ok());
  EXPECT_EQ(*Load(*folder, *folder->Find("t", "m/2")), "y");
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(SpillFolderTest, OneDaemonAFolder) {
  auto first = OpenSpill(path_);
  const auto second = SpillFolder::Open({.folder = path_, .max_bytes = 1000});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(second.status()), reason::kBadSpillFolder);
  EXPECT_NE(second.status().message().find(path_), std::string::npos);
  EXPECT_NE(second.status().message().find("another daemon uses it"), std::string::npos);
  first.reset();
  EXPECT_TRUE(SpillFolder::Open({.folder = path_, .max_bytes = 1000}).ok());
}

TEST_F(SpillFolderTest, IsForItsUserAlone) {
  fs::create_directory(path_);
  fs::permissions(path_, fs::perms::all);
  const mode_t before = umask(0);
  const auto folder = OpenSpill(path_);
  ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "t", 1), "x").ok());
  umask(before);
  struct stat there = {};
  ASSERT_EQ(stat(path_.c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 07777, 0700u);
  int seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    ASSERT_EQ(stat(entry.path().c_str(), &there), 0);
    EXPECT_EQ(there.st_mode & 0077, 0u) << entry.path();
    ++seen;
  }
  EXPECT_GE(seen, 5);  // lock, index, its log, two folders, a file
}

TEST_F(SpillFolderTest, RefusesAFolderOfSomebodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a folder away";
  fs::create_directory(path_);
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  const auto folder = SpillFolder::Open({.folder = path_, .max_bytes = 1000});
  EXPECT_EQ(ReasonOf(folder.status()), reason::kBadSpillFolder);
  EXPECT_NE(folder.status().message().find("another user"), std::string::npos);
}

TEST_F(SpillFolderTest, RefusesWhatIsNoFolder) {
  WriteWhole(path_, "a file");
  EXPECT_EQ(ReasonOf(SpillFolder::Open({.folder = path_, .max_bytes = 1}).status()),
            reason::kBadSpillFolder);
  EXPECT_EQ(ReasonOf(SpillFolder::Open({.folder = temporary_ / "a/b", .max_bytes = 1}).status()),
            reason::kBadSpillFolder);
}

TEST_F(SpillFolderTest, TheLeastRecentlyUsedGoesToMakeRoom) {
  const std::string text(10'000, 'x');
  const int64_t each = SpillFileBytes({Bytes(text)}) + SpillFolder::kRowBytes;
  const auto folder = OpenSpill(path_, 3 * each);
  std::vector<std::string> gone;
  folder->OnGone("m/", [&](const SpillRecord& record) { gone.push_back(record.handle); });
  const auto put = [&](int i) {
    return Spill(*folder, RecordOf("m/" + std::to_string(i), "t", i), std::to_string(i) + text);
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(put(i).ok()) << i;
  // One byte longer than `text`.
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/2", "m/1"}));
  folder->Touch("m/1");
  ASSERT_TRUE(put(3).ok());
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/3", "m/1"}));
  EXPECT_EQ(gone, (std::vector<std::string>{"m/0", "m/2"}));
  EXPECT_EQ(files().size(), 2u);
  EXPECT_LE(folder->stats().bytes, 3 * each);
  EXPECT_EQ(folder->stats().dropped, 2);
}

TEST_F(SpillFolderTest, WhatIsPinnedStaysAndWhatIsTooLargeCostsNobodyAnything) {
  const std::string text(10'000, 'x');
  const int64_t each = SpillFileBytes({Bytes(text)}) + SpillFolder::kRowBytes;
  const auto folder = OpenSpill(path_, 2 * each);
  SpillRecord promised = RecordOf("m/promised", "t", 1);
  promised.pinned = true;
  ASSERT_TRUE(Spill(*folder, promised, text).ok());
  ASSERT_TRUE(Spill(*folder, RecordOf("m/2", "t", 2), text.substr(1)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(
      Spill(*folder, RecordOf("m/3", "t", 3), std::string(2 * each, 'z'))));
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/2", "m/promised"}));
  ASSERT_TRUE(Spill(*folder, RecordOf("m/4", "t", 4), text.substr(2)).ok());
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/4", "m/promised"}));
  EXPECT_EQ(folder->stats().refused, 1);
}

TEST_F(SpillFolderTest, WhatIsNeededStaysAsLongAsItIs) {
  const std::string text(10'000, 'x');
  const int64_t each = SpillFileBytes({Bytes(text)}) + SpillFolder::kRowBytes;
  const auto put = [&](SpillFolder& folder, int i) {
    return Spill(folder, RecordOf("m/" + std::to_string(i), "t", i), text.substr(i));
  };
  {
    const auto folder = OpenSpill(path_, 2 * each + SpillFolder::kRowBytes);
    ASSERT_TRUE(put(*folder, 1).ok());
    SpillRecord job = RecordOf("jobs/1", "t", 1);
    job.pinned = true;
    job.needs = {"m/1", "m/none"};
    ASSERT_TRUE(folder->Write(job, {}).ok());
    for (int i = 2; i < 5; ++i) ASSERT_TRUE(put(*folder, i).ok());
    EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/4", "m/1"}));
    folder->Touch("m/1");
  }
  const auto folder = OpenSpill(path_, 2 * each + SpillFolder::kRowBytes);
  ASSERT_TRUE(put(*folder, 5).ok());
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/5", "m/1"}));
  folder->Delete("t", "jobs/1");
  ASSERT_TRUE(put(*folder, 6).ok());
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/6", "m/5"}));
}

TEST_F(SpillFolderTest, ATenantOverItsShareGivesWay) {
  const std::string text(10'000, 'x');
  const int64_t each = SpillFileBytes({Bytes(text)}) + SpillFolder::kRowBytes;
  const auto folder = OpenSpill(path_, 4 * each);
  const auto put = [&](const std::string& tenant, int i) {
    return Spill(*folder, RecordOf("m/" + std::to_string(i), tenant, i), text.substr(i));
  };
  ASSERT_TRUE(put("modest", 0).ok());
  for (int i = 1; i < 8; ++i) ASSERT_TRUE(put("greedy", i).ok());
  EXPECT_EQ(Handles(*folder, "modest"), std::vector<std::string>{"m/0"});
  EXPECT_EQ(Handles(*folder, "greedy").size(), 3u);
  ASSERT_TRUE(put("modest", 8).ok());
  EXPECT_EQ(Handles(*folder, "modest").size(), 2u);
}

TEST_F(SpillFolderTest, ALowerLimitHoldsFromTheStart) {
  const std::string text(10'000, 'x');
  {
    const auto folder = OpenSpill(path_);
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(Spill(*folder, RecordOf("m/" + std::to_string(i), "t", i), text.substr(i)).ok());
    }
  }
  const auto folder = OpenSpill(path_, 30'000);
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/4", "m/3"}));
  EXPECT_EQ(files().size(), 2u);
}

// Nothing depends on any clock: not what comes first, nor what goes.
TEST_F(SpillFolderTest, TimesOfFilesMeanNothing) {
  const std::string text(10'000, 'x');
  {
    const auto folder = OpenSpill(path_);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(Spill(*folder, RecordOf("m/" + std::to_string(i), "t", i), text.substr(i)).ok());
    }
  }
  fs::file_time_type time = fs::file_time_type::clock::now();
  for (const std::string& file : files()) {
    fs::last_write_time(path_ + "/files/" + file, time -= std::chrono::hours(1000));
  }
  const auto folder = OpenSpill(path_, 3 * 14'300);
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/2", "m/1", "m/0"}));
  ASSERT_TRUE(Spill(*folder, RecordOf("m/3", "t", 3), text.substr(3)).ok());
  EXPECT_EQ(Handles(*folder), (std::vector<std::string>{"m/3", "m/2", "m/1"}));
}

TEST_F(SpillFolderTest, AFailureAtAnyStepLeavesNothingAndIsNotTheEnd) {
  std::string fail;
  const auto folder =
      OpenSpill(path_, 1 << 30, [&](std::string_view step) { return step == fail ? ENOSPC : 0; });
  ASSERT_TRUE(Spill(*folder, RecordOf("m/0", "t", 1), "there").ok());
  int64_t refused = 0;
  for (const std::string step : {"create", "header", "write", "rename", "index"}) {
    fail = step;
    EXPECT_FALSE(Spill(*folder, RecordOf("m/1", "t", 2), "x").ok()) << step;
    EXPECT_EQ(folder->Find("t", "m/1"), nullptr);
    EXPECT_EQ(files().size(), 1u) << step;
    EXPECT_EQ(folder->stats().refused, ++refused);
  }
  fail.clear();
  EXPECT_TRUE(Spill(*folder, RecordOf("m/1", "t", 2), "x").ok());
  EXPECT_EQ(*Load(*folder, *folder->Find("t", "m/0")), "there");
}

// The system's own refusal, of files and of the index alike.
TEST_F(SpillFolderTest, AFullDiskRefusesAndRecovers) {
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  const auto folder = OpenSpill(path_);
  ASSERT_TRUE(Spill(*folder, RecordOf("m/0", "t", 1), "small").ok());
  ASSERT_NE(signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low = {1 << 16, before.rlim_max};
  const std::string large(1 << 18, 'x');
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status file = Spill(*folder, RecordOf("m/1", "t", 2), large);
  const absl::Status again = Spill(*folder, RecordOf("m/2", "t", 3), large);
  SpillRecord wide = RecordOf("m/3", "t", 4);
  wide.meta = large;
  const absl::Status row = Spill(*folder, wide, "small, too");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  FlushLog(std::chrono::seconds(5));
  SetLogSink({});
  EXPECT_TRUE(absl::IsResourceExhausted(file)) << file;
  EXPECT_TRUE(absl::IsResourceExhausted(again)) << again;
  EXPECT_TRUE(absl::IsResourceExhausted(row)) << row;
  EXPECT_EQ(folder->stats().refused, 3);
  int told = 0;
  for (const std::string& line : lines) told += line.find("spill_failed") != std::string::npos;
  EXPECT_EQ(told, 2);  // once for each cause
  EXPECT_EQ(files().size(), 1u);
  EXPECT_TRUE(Spill(*folder, RecordOf("m/1", "t", 2), large).ok());
  EXPECT_EQ(*Load(*folder, *folder->Find("t", "m/1")), large);
}

TEST_F(SpillFolderTest, ADamagedFileTakesAllThatHaveItAndGoesAside) {
  const auto folder = OpenSpill(path_);
  std::vector<std::string> gone;
  folder->OnGone("m/", [&](const SpillRecord& record) { gone.push_back(record.handle); });
  ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "t", 1), "shared").ok());
  ASSERT_TRUE(Spill(*folder, RecordOf("m/2", "t", 2), "shared").ok());
  ASSERT_TRUE(Spill(*folder, RecordOf("m/3", "t", 3), "another").ok());
  const SpillRecordPtr record = folder->Find("t", "m/1");
  const std::string file = path_ + "/files/" + record->blobs[0].file();
  std::string bytes = ReadWhole(file);
  bytes.back() ^= 1;
  WriteWhole(file, bytes);
  const auto loaded = Load(*folder, *record);
  ASSERT_TRUE(absl::IsDataLoss(loaded.status()));
  folder->Damaged(*record, 0, loaded.status());
  folder->Damaged(*record, 0, loaded.status());  // once for all
  EXPECT_EQ(Handles(*folder), std::vector<std::string>{"m/3"});
  EXPECT_EQ(gone.size(), 2u);
  EXPECT_EQ(folder->stats().damaged, 1);
  EXPECT_EQ(FilesIn(path_ + "/damaged").size(), 1u);
  // A client heals it so.
  ASSERT_TRUE(Spill(*folder, RecordOf("m/4", "t", 4), "shared").ok());
  EXPECT_EQ(*Load(*folder, *folder->Find("t", "m/4")), "shared");
}

TEST_F(SpillFolderTest, KeepsAFewDamagedFilesAlone) {
  const auto folder = OpenSpill(path_);
  for (int i = 0; i < 2 * SpillFolder::kMaxDamaged; ++i) {
    const std::string text = "text " + std::to_string(i);
    ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "t", 1), text).ok());
    const SpillRecordPtr record = folder->Find("t", "m/1");
    WriteWhole(path_ + "/files/" + record->blobs[0].file(), "damage");
    folder->Damaged(*record, 0, Load(*folder, *record).status());
  }
  EXPECT_EQ(folder->stats().damaged, 2 * SpillFolder::kMaxDamaged);
  EXPECT_EQ(static_cast<int64_t>(FilesIn(path_ + "/damaged").size()), SpillFolder::kMaxDamaged);
  EXPECT_TRUE(files().empty());
}

TEST_F(SpillFolderTest, AFileByAnothersNameIsRefused) {
  const auto folder = OpenSpill(path_);
  ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "alice", 1), "hers").ok());
  ASSERT_TRUE(Spill(*folder, RecordOf("m/2", "bob", 2), "his").ok());
  const SpillRecordPtr hers = folder->Find("alice", "m/1"), his = folder->Find("bob", "m/2");
  fs::copy_file(path_ + "/files/" + hers->blobs[0].file(), path_ + "/files/" + his->blobs[0].file(),
                fs::copy_options::overwrite_existing);
  EXPECT_TRUE(absl::IsDataLoss(Load(*folder, *his).status()));
}

TEST_F(SpillFolderTest, TheFolderDeletedUnderneath) {
  const auto folder = OpenSpill(path_);
  ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "t", 1), "x").ok());
  const SpillRecordPtr record = folder->Find("t", "m/1");
  fs::remove_all(path_);
  const auto loaded = Load(*folder, *record);
  EXPECT_TRUE(absl::IsDataLoss(loaded.status())) << loaded.status();
  folder->Damaged(*record, 0, loaded.status());
  EXPECT_EQ(folder->Find("t", "m/1"), nullptr);
  EXPECT_FALSE(Spill(*folder, RecordOf("m/2", "t", 2), "y").ok());
  folder->Delete("t", "m/2");
  folder->WriteDeletes();
  EXPECT_EQ(folder->stats().records, 0);
}

TEST_F(SpillFolderTest, FilesThatNoRowNamesAndRowsWithoutFilesGo) {
  std::string lost;
  {
    const auto folder = OpenSpill(path_);
    ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "t", 1), "x").ok());
    ASSERT_TRUE(Spill(*folder, RecordOf("m/2", "t", 2), "y").ok());
    lost = folder->Find("t", "m/2")->blobs[0].file();
  }
  WriteWhole(path_ + "/files/ab.part", "half");
  WriteWhole(path_ + "/files/cd", "nobody's");
  fs::remove(path_ + "/files/" + lost);
  {
    const auto folder = OpenSpill(path_);
    EXPECT_EQ(Handles(*folder), std::vector<std::string>{"m/1"});
    EXPECT_EQ(files().size(), 1u);
    EXPECT_EQ(folder->stats().damaged, 1);
  }
  EXPECT_EQ(OpenSpill(path_)->stats().damaged, 0);  // the row is gone, too
}

// Opening reads the index alone. With SPAID_SPILL_GIB=5 and SPAID_SPILL_FOLDER=NAME it leaves a
// folder of that size, to start a daemon on.
TEST_F(SpillFolderTest, OpensWithoutReadingWhatItHas) {
  const char* const gib = getenv("SPAID_SPILL_GIB");
  const char* const name = getenv("SPAID_SPILL_FOLDER");
  const std::string path = name != nullptr ? name : path_;
  const int64_t count = gib != nullptr ? 1024 * atoll(gib) : 100;
  const size_t bytes = gib != nullptr ? (size_t{1} << 20) - (1 << 16) : 1000;
  {
    const auto folder = OpenSpill(path, int64_t{1} << 40);
    std::string pattern(bytes / 2, 'p'), values(bytes / 2, 'v');
    for (int64_t i = 0; i < count; ++i) {
      const std::string own = std::to_string(i);
      pattern.replace(0, own.size(), own);
      ASSERT_TRUE(folder
                      ->Write(RecordOf("matrices/" + own, "default", i),
                              {{SpillKind::kPattern, own, {Bytes(pattern)}},
                               {SpillKind::kValues, own, {Bytes(values)}}})
                      .ok());
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto folder = OpenSpill(path, int64_t{1} << 40);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(folder->stats().records, count);
  EXPECT_EQ(folder->stats().files, 2 * count);
  EXPECT_EQ(folder->stats().read_bytes, 0);
  RecordProperty("open_ms", static_cast<int>(1e3 * took.count()));
  if (gib != nullptr) std::printf("%.1f ms\n", 1e3 * took.count());
}

// A daemon that has to end does not wait for what takes minutes.
TEST_F(SpillFolderTest, IsCutOffBetweenPieces) {
  const auto folder = OpenSpill(path_);
  ASSERT_TRUE(Spill(*folder, RecordOf("m/1", "t", 1), "before").ok());
  int pieces = 0;
  const SpillArray endless(int64_t{1} << 29, [&](std::span<std::byte>) {
    if (++pieces == 3) folder->CutOff();
    return absl::OkStatus();
  });
  const absl::Status status =
      folder->Write(RecordOf("m/2", "t", 2), {{SpillKind::kWhole, "large", {endless}}});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(pieces, 3);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_FALSE(Spill(*folder, RecordOf("m/3", "t", 3), "after").ok());
  EXPECT_EQ(Handles(*folder), std::vector<std::string>{"m/1"});
  EXPECT_EQ(folder->stats().refused, 2);
}

TEST_F(SpillFolderTest, ManyThreadsAtOnce) {
  const auto folder = OpenSpill(path_, 200'000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, tenant = std::to_string(t % 3), t] {
      for (int i = 0; i < 40; ++i) {
        const std::string handle = "m/" + std::to_string(100 * t + i);
        const std::string text(1000 + i % 5, 'x');
        (void)Spill(*folder, RecordOf(handle, tenant, 100 * t + i), text);
        if (const auto record = folder->Find(tenant, handle)) {
          const auto loaded = Load(*folder, *record);
          if (loaded.ok()) {
            EXPECT_EQ(*loaded, text);
          }
          folder->Touch(handle);
        }
        if (i % 3 == 0) folder->Delete(tenant, handle);
        if (i % 7 == 0) folder->WriteDeletes();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(folder->stats().bytes, 200'000);
  EXPECT_EQ(folder->stats().refused, 0);
}

}  // namespace
}  // namespace spaid::server
