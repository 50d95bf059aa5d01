#include "client/load/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace spaid::load {
namespace {

TEST(Memory, OfThisProcessCanBeRead) {
  EXPECT_GT(ResidentMib(getpid()), 1);
  EXPECT_LT(ResidentMib(int64_t{1} << 40), 0);
}

// It fills up to 100 MiB, then grows by 1 KiB with every job, for longer than samples are kept.
TEST(MemoryTrack, TellsTheSlopeOfTheSecondHalf) {
  MemoryTrack track;
  EXPECT_TRUE(track.empty());
  EXPECT_EQ(track.KibPer1000Jobs(), 0);
  constexpr int64_t kJobs = 100'000;
  for (int64_t job = 1; job <= kJobs; ++job) {
    track.Add(job, job < kJobs / 4 ? 50.0 : 100.0 + static_cast<double>(job) / 1024);
  }
  EXPECT_EQ(track.first_mib(), 50);
  EXPECT_NEAR(track.last_mib(), 100 + kJobs / 1024.0, 0.1);
  EXPECT_NEAR(track.KibPer1000Jobs(), 1000, 1e-6);
}

}  // namespace
}  // namespace spaid::load
