#include "server/base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>

namespace spaid::server {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

TEST(Process, CountsItsDescriptors) {
  const int64_t before = ReadProcess().open_descriptors;
  EXPECT_GE(before, 3);  // standard input, output and error
  const int one = open("/dev/null", O_RDONLY), other = open("/dev/null", O_RDONLY);
  EXPECT_EQ(ReadProcess().open_descriptors, before + 2);
  close(one);
  close(other);
  EXPECT_EQ(ReadProcess().open_descriptors, before);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(ReadProcess().max_descriptors, static_cast<int64_t>(limit.rlim_cur));
}

TEST(Process, CountsTimeAndMemory) {
  const ProcessFigures before = ReadProcess();
  EXPECT_LE(before.start_seconds, Now() + 0.02);
  EXPECT_GT(before.start_seconds, Now() - 3600);
  const double began = Now();
  constexpr size_t kBytes = 64 << 20;
  const auto memory = std::make_unique<char[]>(kBytes);
  for (int turn = 1; ReadProcess().cpu_seconds < before.cpu_seconds + 0.05; ++turn) {
    std::memset(memory.get(), turn, kBytes);
    ASSERT_LT(Now() - began, 60) << "it works, and its time does not grow";
  }
  const ProcessFigures after = ReadProcess();
  EXPECT_GT(after.resident_bytes, before.resident_bytes + static_cast<int64_t>(kBytes / 2));
  EXPECT_EQ(after.start_seconds, before.start_seconds);
}

}  // namespace
}  // namespace spaid::server
