#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/sparse/pattern.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

// Column 0: 10, 1, 0; column 1: 4, 0.1 (diagonal), -2; column 2: 0 (stored), 3.
CscMatrix Sample() {
  return Make(3, 3, {0, 3, 6, 8}, {0, 1, 2, 0, 1, 2, 0, 2}, {10, 1, 0, 4, 0.1, -2, 0, 3});
}

TEST(PostFilterTest, ZeroKeepsEverything) {
  const CscMatrix m = PostFilter(Sample(), 0);
  EXPECT_EQ(m.row_idx, Sample().row_idx);
  EXPECT_EQ(m.values, Sample().values);
}

TEST(PostFilterTest, DropsUnderTheShareButNeverTheDiagonal) {
  const CscMatrix m = PostFilter(Sample(), 0.5);  // 2 = 0.5 * 4 is not under it
  ExpectCanonical(m.pattern());
  EXPECT_THAT(m.col_ptr, ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(m.row_idx, ElementsAre(0, 0, 1, 2, 2));
  EXPECT_THAT(m.values, ElementsAre(10, 4, 0.1, -2, 3));
}

TEST(PostFilterTest, ExplicitZerosGoForAnyShareAlsoInAZeroColumn) {
  const CscMatrix m = PostFilter(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1e-300, 0, 0, 0}), 1e-12);
  EXPECT_THAT(m.col_ptr, ElementsAre(0, 1, 2));
  EXPECT_THAT(m.row_idx, ElementsAre(0, 1));  // the diagonal stays, also as a zero
}

TEST(PostFilterTest, NonFiniteEntriesAreNotHidden) {
  const CscMatrix m = PostFilter(Make(2, 2, {0, 2, 3}, {0, 1, 1}, {1, NAN, 1}), 0.5);
  EXPECT_EQ(m.nnz(), 3);
}

TEST(PostFilterTest, LargerShareNeverKeepsMore) {
  for (const auto& [name, a, regular] : oracle::Zoo(3)) {
    SCOPED_TRACE(name);
    int64_t previous = a.nnz() + 1;
    for (const double delta : {0.0, 1e-9, 0.1, 0.5, 1.0}) {
      const CscMatrix m = PostFilter(a, delta);
      ExpectCanonical(m.pattern());
      EXPECT_LE(m.nnz(), previous);
      previous = m.nnz();
      const oracle::Dense before = oracle::ToDense(CscView(a)), after = oracle::ToDense(CscView(m));
      for (int64_t j = 0; j < a.n_cols; ++j) {
        EXPECT_EQ(before(j, j), after(j, j));
        double largest = 0;
        for (int64_t i = 0; i < a.n_rows; ++i) {
          largest = std::max(largest, std::abs(before(i, j)));
        }
        for (int64_t i = 0; i < a.n_rows; ++i) {
          if (i == j) continue;
          const double expected = std::abs(before(i, j)) < delta * largest ? 0 : before(i, j);
          EXPECT_EQ(after(i, j), expected) << i << "," << j;
        }
      }
    }
  }
}

TEST(PostFilterTest, ThreadsDoNotChangeAnEntry) {
  const CscMatrix a = oracle::ConvectionDiffusion(120, 110, 0.7);  // several batches of columns
  const CscMatrix serial = PostFilter(a, 0.3);
  ASSERT_LT(serial.nnz(), a.nnz());
  for (const int threads : {1, 2, 5}) {
    const auto m = PostFilter(a, 0.3, Context{.stop = {}, .progress = nullptr, .threads = threads});
    ASSERT_TRUE(m.ok());
    EXPECT_EQ(m->col_ptr, serial.col_ptr);
    EXPECT_EQ(m->row_idx, serial.row_idx);
    EXPECT_EQ(m->values, serial.values);
  }
}

TEST(PostFilterTest, Stops) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const Context context{.stop = cancel.token(), .progress = nullptr, .threads = 1};
  EXPECT_EQ(PostFilter(Sample(), 0.5, context).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
