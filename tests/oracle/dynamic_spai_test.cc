#include "tests/oracle/dynamic_spai.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spaid::oracle {
namespace {

// The worked 4x4 example (Kierkegaard, Willén 2023).
Dense Example() {
  Dense a(4, 4);
  const double rows[4][4] = {{10, 10, 0, 14}, {0, 10, 2, 0}, {13, 0, 0, 1}, {0, 5, 0, 0}};
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) a(i, j) = rows[i][j];
  }
  return a;
}

TEST(DynamicSpaiOracle, ScoresTheWorkedExample) {
  const SpaiScores scores = ScoreSpaiColumn(Example(), 0, {0});
  EXPECT_NEAR(scores.m[0], 10.0 / 269, 1e-16);
  EXPECT_NEAR(scores.residual * scores.residual, 169.0 / 269, 1e-15);
  EXPECT_NEAR(scores.rho2[1], 294905.0 / 651249, 1e-14);
  EXPECT_NEAR(scores.rho2[3], 3956121.0 / 14255117, 1e-14);
  // In J already, and not reached from where the residual is.
  EXPECT_EQ(scores.rho2[0], scores.residual * scores.residual);
  EXPECT_EQ(scores.rho2[2], scores.residual * scores.residual);
}

TEST(DynamicSpaiOracle, GrowsTheWorkedExample) {
  const GrownColumn column = GrowSpaiColumn(Example(), 0, {0}, 5, 1, 0.01, 0, 1e-20);
  EXPECT_EQ(column.pattern, (std::vector<int64_t>{0, 3}));
  ASSERT_EQ(column.residuals.size(), 2u);
  EXPECT_NEAR(column.residuals[0], std::sqrt(169.0 / 269), 1e-15);
  EXPECT_NEAR(column.residuals[1], 0, 1e-15);
}

}  // namespace
}  // namespace spaid::oracle
