// What AUTO sees of a matrix, where the answer is known.
#include "kernels/engine/local_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

// Pairs of unknowns [2 b; c 4]: each second one has the one before it.
CscMatrix Pairs(int pairs, double b, double c) {
  CscMatrix a;
  a.n_rows = a.n_cols = 2 * pairs;
  a.col_ptr.push_back(0);
  for (int32_t j = 0; j < 2 * pairs; ++j) {
    const int32_t first = j - j % 2;
    a.row_idx.insert(a.row_idx.end(), {first, first + 1});
    if (j % 2 == 0) {
      a.values.insert(a.values.end(), {2.0, c});
    } else {
      a.values.insert(a.values.end(), {b, 4.0});
    }
    a.col_ptr.push_back(2 * (j + 1));
  }
  return a;
}

// Share of the columns looked at that are second ones.
double Seconds(const LocalSample& sample) { return sample.entries; }

TEST(LocalSample, OfPairsIsTheirSchurComplement) {
  // ψ / a = (4 - 2 · 2 / 2) / 4 = 1/2 for second ones, 1 for first ones.
  const LocalSample sample = SampleLocally(Pairs(1000, 2, 2), true);
  EXPECT_GE(sample.columns, 200);
  EXPECT_NEAR(Seconds(sample), 0.5, 0.05) << "spread evenly, in step with no block";
  EXPECT_NEAR(sample.gain, Seconds(sample) * std::log(2.0), 1e-12);
  EXPECT_EQ(sample.growth, 0);
  EXPECT_FALSE(sample.negative_psi);
  EXPECT_EQ(sample.local_columns, 2);
  EXPECT_EQ(sample.local_entries, 4);
  // 1 - 2/2 and 1 - 2/4.
  EXPECT_EQ(sample.low_dominance, 0);
}

TEST(LocalSample, GrowthIsWhatEliminationAdds) {
  // ψ / a = (4 + 2 · 2 / 2) / 4 = 3/2.
  const LocalSample sample = SampleLocally(Pairs(1000, 2, -2), false);
  EXPECT_NEAR(sample.gain, -Seconds(sample) * std::log(1.5), 1e-12);
  EXPECT_NEAR(sample.growth, Seconds(sample) * std::pow(std::log(1.5), 2), 1e-12);
}

TEST(LocalSample, ANegativePivotShows) {
  EXPECT_TRUE(SampleLocally(Pairs(1000, 3, 3), true).negative_psi);  // 4 - 9/2 < 0
}

TEST(LocalSample, WithoutADiagonalGainIsAtItsLimit) {
  const CscMatrix a = Rows({{0, 1}, {1, 0}});
  EXPECT_NEAR(SampleLocally(a, true).gain, std::log(1e6), 1e-9);
}

TEST(LocalSample, OfADiagonalMatrixThereIsNothing) {
  const LocalSample sample = SampleLocally(Rows({{2, 0, 0}, {0, 3, 0}, {0, 0, 4}}), true);
  EXPECT_EQ(sample.gain, 0);
  EXPECT_EQ(sample.entries, 0);
  EXPECT_EQ(sample.dominance, 1);
}

TEST(LocalSample, PlacesAreDistinctAndInside) {
  std::set<int64_t> seen;
  for (int64_t k = 0; k < 100; ++k) {
    const int64_t i = SampledColumn(1000, k);
    EXPECT_GE(i, 0);
    EXPECT_LT(i, 1000);
    seen.insert(i);
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(SampledColumn(1, 7), 0);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
