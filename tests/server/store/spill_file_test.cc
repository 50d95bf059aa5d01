#include "server/store/spill_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "server/base/checksum.h"
#include "tests/server/store/spill_helpers.h"

namespace spaid::server {
namespace {

constexpr size_t kBlock = 1 << 20;
const Sha256 kName = Sha256Of("a name");

class SpillFileTest : public testing::Test {
 protected:
  absl::Status Write(const std::vector<std::string>& arrays, SpillStep step = {}) {
    SpillArrays bytes;
    for (const std::string& array : arrays) bytes.push_back(Bytes(array));
    const absl::Status status = WriteSpillFile(folder_.get(), "f", SpillKind::kValues, kName, bytes,
                                               SpillSync::kFull, step);
    if (status.ok()) {
      EXPECT_EQ(ReadWhole(file()).size(), static_cast<size_t>(SpillFileBytes(bytes)));
    }
    return status;
  }
  absl::StatusOr<std::vector<std::string>> Read(SpillKind kind = SpillKind::kValues,
                                                const Sha256& name = kName) {
    auto reader = SpillReader::Open(folder_.get(), "f", kind, name);
    if (!reader.ok()) return reader.status();
    std::vector<std::string> arrays;
    for (const int64_t size : reader->sizes()) {
      arrays.emplace_back(static_cast<size_t>(size), '\0');
      absl::Status status = reader->Next(
          std::as_writable_bytes(std::span(arrays.back().data(), arrays.back().size())));
      if (!status.ok()) return status;
    }
    return arrays;
  }
  std::string file() const { return temporary_ / "f"; }

  TemporaryFolder temporary_;
  Descriptor folder_{open(temporary_.path().c_str(), O_RDONLY | O_DIRECTORY)};
};

std::string Pseudo(size_t size) {
  std::string text(size, '\0');
  uint32_t state = 1;
  for (char& c : text) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return text;
}

TEST_F(SpillFileTest, ComesBackAsItWasAtEverySize) {
  for (const size_t size :
       {size_t{0}, size_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock, 3 * kBlock + 5}) {
    const std::vector<std::string> arrays{Pseudo(size), "", Pseudo(7), Pseudo(size / 2)};
    ASSERT_TRUE(Write(arrays).ok());
    const auto read = Read();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, arrays) << size;
  }
  struct stat there = {};
  ASSERT_EQ(stat(file().c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 07777, 0600u);
}

// An array that is brought while it is written, and taken while it is read, is the same file.
TEST_F(SpillFileTest, ArraysMayComeAndGoInPieces) {
  for (const size_t size : {size_t{0}, size_t{1}, kBlock, kBlock + 1, 3 * kBlock + 5}) {
    const std::string text = Pseudo(size);
    ASSERT_TRUE(Write({text, Pseudo(7)}).ok());
    const std::string whole = ReadWhole(file());
    size_t at = 0;
    const auto bring = [&](std::span<std::byte> piece) {
      EXPECT_TRUE(piece.size() == kBlock || at + piece.size() == size);
      std::memcpy(piece.data(), text.data() + at, piece.size());
      at += piece.size();
      return absl::OkStatus();
    };
    const std::string last = Pseudo(7);
    const SpillArrays arrays{SpillArray(static_cast<int64_t>(size), bring), Bytes(last)};
    ASSERT_TRUE(
        WriteSpillFile(folder_.get(), "f", SpillKind::kValues, kName, arrays, SpillSync::kNone, {})
            .ok());
    EXPECT_EQ(at, size);
    EXPECT_TRUE(ReadWhole(file()) == whole) << size;
    auto reader = SpillReader::Open(folder_.get(), "f", SpillKind::kValues, kName);
    ASSERT_TRUE(reader.ok());
    std::string taken;
    const auto take = [&](std::span<const std::byte> piece) {
      taken.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return absl::OkStatus();
    };
    ASSERT_TRUE(reader->Next(take).ok());
    EXPECT_TRUE(taken == text) << size;
    taken.clear();
    ASSERT_TRUE(reader->Next(take).ok());
    EXPECT_EQ(taken, last);
    EXPECT_TRUE(absl::IsDataLoss(reader->Next(take)));
  }
}

TEST_F(SpillFileTest, WhatFailsInTheMiddleLeavesNothing) {
  int pieces = 0;
  const auto bring = [&](std::span<std::byte>) {
    return ++pieces < 3 ? absl::OkStatus() : absl::UnavailableError("a rank is lost");
  };
  const absl::Status status =
      WriteSpillFile(folder_.get(), "f", SpillKind::kValues, kName,
                     {SpillArray(static_cast<int64_t>(5 * kBlock), bring)}, SpillSync::kNone, {});
  EXPECT_EQ(status.message(), "a rank is lost");
  EXPECT_EQ(pieces, 3);
  EXPECT_NE(access(file().c_str(), F_OK), 0);
  EXPECT_NE(access((file() + ".part").c_str(), F_OK), 0);
  // A reader that has enough ends it, too; and what is damaged in the middle is told there.
  ASSERT_TRUE(Write({Pseudo(3 * kBlock)}).ok());
  auto reader = SpillReader::Open(folder_.get(), "f", SpillKind::kValues, kName);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->Next([](std::span<const std::byte>) { return absl::AbortedError("enough"); }),
            absl::AbortedError("enough"));
  std::string damaged = ReadWhole(file());
  damaged[damaged.size() - 100] ^= 1;
  WriteWhole(file(), damaged);
  reader = SpillReader::Open(folder_.get(), "f", SpillKind::kValues, kName);
  ASSERT_TRUE(reader.ok());
  int taken = 0;
  const absl::Status read = reader->Next([&](std::span<const std::byte>) {
    ++taken;
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_EQ(taken, 2);
}

TEST_F(SpillFileTest, RefusesEveryFlippedBit) {
  ASSERT_TRUE(Write({Pseudo(40), Pseudo(9)}).ok());
  const std::string whole = ReadWhole(file());
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    WriteWhole(file(), damaged);
    EXPECT_TRUE(absl::IsDataLoss(Read().status())) << "bit " << bit << ": " << Read().status();
  }
  WriteWhole(file(), whole);
  EXPECT_TRUE(Read().ok());
}

TEST_F(SpillFileTest, RefusesBlocksAtAnothersPlace) {
  ASSERT_TRUE(Write({Pseudo(kBlock) + Pseudo(kBlock)}).ok());
  std::string whole = ReadWhole(file());
  // Two blocks of equal bytes, each with its own sum.
  const size_t first = 128 + kBlock, second = first + 8 + kBlock;
  EXPECT_NE(whole.substr(first, 8), whole.substr(second, 8));
  const std::string sum = whole.substr(first, 8);
  whole.replace(first, 8, whole.substr(second, 8)).replace(second, 8, sum);
  WriteWhole(file(), whole);
  EXPECT_TRUE(absl::IsDataLoss(Read().status()));
}

TEST_F(SpillFileTest, RefusesEveryOtherLength) {
  ASSERT_TRUE(Write({Pseudo(20), Pseudo(9)}).ok());
  const std::string whole = ReadWhole(file());
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteWhole(file(), whole.substr(0, size));
    EXPECT_TRUE(absl::IsDataLoss(Read().status())) << size;
  }
  WriteWhole(file(), whole + '\0');
  EXPECT_TRUE(absl::IsDataLoss(Read().status()));
}

TEST_F(SpillFileTest, CutShortWhileItIsReadIsAnError) {
  ASSERT_TRUE(Write({Pseudo(3 * kBlock), Pseudo(3 * kBlock)}).ok());
  auto reader = SpillReader::Open(folder_.get(), "f", SpillKind::kValues, kName);
  ASSERT_TRUE(reader.ok());
  std::vector<std::byte> to(3 * kBlock);
  ASSERT_TRUE(reader->Next(to).ok());
  ASSERT_EQ(truncate(file().c_str(), 4 * kBlock), 0);
  EXPECT_TRUE(absl::IsDataLoss(reader->Next(to)));
}

TEST_F(SpillFileTest, RefusesAnotherVersion) {
  ASSERT_TRUE(Write({"x"}).ok());
  std::string whole = ReadWhole(file());
  whole[8] = static_cast<char>(kSpillFileVersion + 1);
  const uint64_t sum = Checksum(whole.data(), 120);
  std::memcpy(whole.data() + 120, &sum, sizeof sum);
  WriteWhole(file(), whole);
  const absl::Status status = Read().status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("version 2; this daemon reads 1"), std::string::npos) << status;
}

TEST_F(SpillFileTest, RefusesAnothersNameAndKind) {
  ASSERT_TRUE(Write({"x"}).ok());
  EXPECT_TRUE(absl::IsDataLoss(Read(SpillKind::kValues, Sha256Of("another")).status()));
  EXPECT_TRUE(absl::IsDataLoss(Read(SpillKind::kPattern).status()));
}

TEST_F(SpillFileTest, FollowsNoLinkAndReadsNoPipe) {
  ASSERT_TRUE(Write({"x"}).ok());
  ASSERT_EQ(rename(file().c_str(), (temporary_ / "g").c_str()), 0);
  ASSERT_EQ(symlink((temporary_ / "g").c_str(), file().c_str()), 0);
  EXPECT_TRUE(absl::IsDataLoss(Read().status()));
  ASSERT_EQ(unlink(file().c_str()), 0);
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsDataLoss(Read().status()));
}

TEST_F(SpillFileTest, AFailedStepLeavesNothing) {
  for (const std::string at : {"create", "header", "write", "sync", "rename"}) {
    const absl::Status status =
        Write({Pseudo(2 * kBlock)}, [&](std::string_view step) { return step == at ? ENOSPC : 0; });
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << at << ": " << status;
    EXPECT_TRUE(std::filesystem::is_empty(temporary_.path())) << at;
  }
  const absl::Status status =
      Write({"x"}, [](std::string_view step) { return step == "write" ? EIO : 0; });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace spaid::server
