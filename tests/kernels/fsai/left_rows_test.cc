// Rows that a device leaves: the host makes them, and the result is whole.
#include "kernels/fsai/left_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/kernels/fsai/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

// `whole` without every third row, and without what that says of them in its figures.
FsaiResult Without(const FsaiResult& whole, int64_t* missing) {
  FsaiResult part;
  const CscMatrix& g = whole.g_rows;
  part.g_rows.n_rows = part.g_rows.n_cols = g.n_cols;
  part.g_rows.col_ptr.push_back(0);
  part.psi_ratio = whole.psi_ratio;
  part.quality = whole.quality;
  part.quality.converged_rows = part.quality.not_spd_rows = 0;
  part.quality.first_not_spd = -1;
  for (int64_t i = 0; i < g.n_cols; ++i) {
    if (i % 3 == 1) {
      ++*missing;
      part.psi_ratio[static_cast<size_t>(i)] = 1;
    } else {
      const auto rows = g.pattern().column(i);
      const auto values = CscView(g).column_values(i);
      part.g_rows.row_idx.insert(part.g_rows.row_idx.end(), rows.begin(), rows.end());
      part.g_rows.values.insert(part.g_rows.values.end(), values.begin(), values.end());
    }
    part.g_rows.col_ptr.push_back(part.g_rows.nnz());
  }
  double log = 0;
  for (const double ratio : part.psi_ratio) log += std::log(ratio);
  part.quality.kaporin = std::exp(log / static_cast<double>(g.n_cols));
  return part;
}

void ExpectWhole(const FsaiResult& made, const FsaiResult& whole) {
  ASSERT_EQ(made.g_rows.col_ptr, whole.g_rows.col_ptr);
  ASSERT_EQ(made.g_rows.row_idx, whole.g_rows.row_idx);
  for (size_t p = 0; p < whole.g_rows.values.size(); ++p) {
    ASSERT_NEAR(made.g_rows.values[p], whole.g_rows.values[p], 1e-12) << p;
  }
  for (size_t i = 0; i < whole.psi_ratio.size(); ++i) {
    ASSERT_NEAR(made.psi_ratio[i], whole.psi_ratio[i], 1e-12) << i;
  }
  EXPECT_NEAR(made.quality.kaporin, whole.quality.kaporin, 1e-12);
  EXPECT_EQ(made.quality.nnz_row_max, whole.quality.nnz_row_max);
}

TEST(LeftRows, AreMadeByTheHost) {
  const CscMatrix a = oracle::RandomSpd(120, 6, 3);
  for (const double filter : {0.0, 0.05}) {
    for (const bool grow : {true, false}) {
      FsaiOptions options;
      options.adaptive = grow;
      options.k_max = 7;
      options.power = 2;
      options.post_filter = filter;
      const auto whole = BuildFsai(a, nullptr, options, {});
      ASSERT_TRUE(whole.ok()) << whole.status().message();
      Pattern rows;
      if (!grow) rows = *FsaiPattern(a, nullptr, options, {});
      const PatternView pattern = rows;
      int64_t missing = 0;
      FsaiResult part = Without(*whole, &missing);
      // As a device leaves them: steps of the rows that it made, and nothing of the others.
      if (grow) part.quality.kaporin_by_step.assign(8, 1.0);
      const auto left =
          MakeLeftRows(a, grow ? nullptr : &pattern, grow, options, {.threads = 2}, part);
      ASSERT_TRUE(left.ok()) << left.status().message();
      EXPECT_EQ(*left, missing);
      ExpectWhole(part, *whole);
      if (!grow || filter > 0) continue;
      // The rows of the last step alone.
      double log = 0;
      for (size_t i = 1; i < whole->psi_ratio.size(); i += 3) log += std::log(whole->psi_ratio[i]);
      EXPECT_NEAR(part.quality.kaporin_by_step.back(), std::exp(log / 120), 1e-12);
      EXPECT_EQ(part.quality.kaporin_by_step.front(), 1);
    }
  }
}

TEST(LeftRows, GrowFromAPattern) {
  const CscMatrix a = oracle::RandomSpd(60, 6, 5);
  FsaiOptions options;
  options.k_max = 3;
  options.adaptive = false;
  const Pattern lower = *FsaiPattern(a, nullptr, options, {});
  options.adaptive = true;
  const PatternView start = lower;
  const auto whole = BuildFsai(a, &start, options, {});
  ASSERT_TRUE(whole.ok());
  int64_t missing = 0;
  FsaiResult part = Without(*whole, &missing);
  ASSERT_TRUE(MakeLeftRows(a, &start, true, options, {}, part).ok());
  ExpectWhole(part, *whole);
}

TEST(LeftRows, OfNoneNothingIsDone) {
  const CscMatrix a = oracle::RandomSpd(30, 4, 7);
  auto whole = BuildFsai(a, nullptr, {}, {});
  ASSERT_TRUE(whole.ok());
  FsaiResult same = *whole;
  EXPECT_EQ(*MakeLeftRows(a, nullptr, true, {}, {}, same), 0);
  ExpectWhole(same, *whole);
}

TEST(LeftRows, CountWhatIsNotDefinite) {
  // Of the leading 2 x 2 block the determinant is 1 − 4: row 1, which is left, meets that.
  CscMatrix a;
  a.n_rows = a.n_cols = 3;
  a.col_ptr = {0, 2, 4, 5};
  a.row_idx = {0, 1, 0, 1, 2};
  a.values = {1, 2, 2, 1, 1};
  const auto whole = BuildFsai(a, nullptr, {}, {});
  ASSERT_TRUE(whole.ok());
  ASSERT_EQ(whole->quality.not_spd_rows, 1);
  int64_t missing = 0;
  FsaiResult part = Without(*whole, &missing);
  ASSERT_TRUE(MakeLeftRows(a, nullptr, true, {}, {}, part).ok());
  EXPECT_EQ(part.quality.not_spd_rows, 1);
  EXPECT_EQ(part.quality.first_not_spd, 1);
}

TEST(LeftRows, Stop) {
  StopSource source;
  source.Request(StopReason::kCancelled);
  const CscMatrix a = oracle::RandomSpd(30, 4, 7);
  const auto whole = BuildFsai(a, nullptr, {}, {});
  int64_t missing = 0;
  FsaiResult part = Without(*whole, &missing);
  EXPECT_EQ(MakeLeftRows(a, nullptr, true, {}, {.stop = source.token()}, part).status().reason(),
            "CANCELLED");
}

}  // namespace
}  // namespace spaid::kernels
