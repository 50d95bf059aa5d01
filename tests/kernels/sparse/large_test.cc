// Symbolic products with more than 2^31 entries: counted, never stored.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/base/device.h"
#include "kernels/sparse/pattern.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

// Every column of an arrow reaches every row in two steps.
constexpr int64_t kSize = 46400;
constexpr int64_t kEntries = kSize * kSize;
static_assert(kEntries > INT32_MAX);

TEST(LargePatternTest, CountsPastTwoToThe31) {
  const CscMatrix a = oracle::Arrow(kSize);
  const Result<int64_t> count = CountPattern(a.pattern(), nullptr, {.power = 2}, {});
  ASSERT_TRUE(count.ok()) << count.status().message();
  EXPECT_EQ(*count, kEntries);
}

TEST(LargePatternTest, ALimitRefusesBeforeAnythingIsAllocated) {
  const CscMatrix a = oracle::Arrow(kSize);
  const Status status = BuildPattern(a, nullptr, {.power = 2, .max_nnz = 10'000'000}, {}).status();
  EXPECT_EQ(status.reason(), "PATTERN_TOO_LARGE");
  const Result<int64_t> count =
      CountPattern(a.pattern(), nullptr, {.power = 2, .max_nnz = 10'000'000}, {});
  ASSERT_TRUE(count.ok());
  EXPECT_GT(*count, 10'000'000);
  EXPECT_LT(*count, kEntries);
}

TEST(LargePatternTest, TheMachineSetsTheLimitWhereTheCallerDoesNot) {
  // Its indices alone would fit (4 of the 32 bytes an entry); M and its rows would not.
  const int64_t fits = UsableMemoryBytes() / kBytesPerPatternEntry;
  const auto n = static_cast<int64_t>(std::sqrt(static_cast<double>(fits))) + 2;
  const CscMatrix a = oracle::Arrow(n);
  const Status status = BuildPattern(a, nullptr, {.power = 2}, {}).status();
  EXPECT_EQ(status.reason(), "PATTERN_TOO_LARGE") << n;
  EXPECT_NE(status.message().find("the memory of this machine holds " + std::to_string(fits)),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace spaid::kernels
