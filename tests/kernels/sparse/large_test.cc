// Symbolic products with more than 2^31 entries: counted, never stored.
#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace spaid::kernels
