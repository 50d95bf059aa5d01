// Cases whose numbers are in the test.
#include <cmath>

#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

// The worked 4x4 example of the SPAI literature (Kierkegaard, Willén 2023, after Grote, Huckle
// 1997).
CscMatrix Example() {
  return FromRows({{10, 10, 0, 14}, {0, 10, 2, 0}, {13, 0, 0, 1}, {0, 5, 0, 0}});
}

class HandChecked : public ::testing::TestWithParam<LocalSolver> {};
INSTANTIATE_TEST_SUITE_P(Solvers, HandChecked,
                         ::testing::Values(LocalSolver::kAuto, LocalSolver::kQr,
                                           LocalSolver::kGram));

TEST_P(HandChecked, ColumnZeroWithItsDiagonal) {
  const CscMatrix a = Example();
  const Pattern diagonal = DiagonalPattern(4);
  const StaticSpaiResult result = Build(a, diagonal, With(GetParam()));
  EXPECT_NEAR(result.m.values[0], 10.0 / 269, 1e-16);
  EXPECT_NEAR(result.residual_norms[0], std::sqrt(169.0 / 269), 1e-15);
}

TEST_P(HandChecked, ColumnZeroWithZeroAndThreeIsExact) {
  const CscMatrix a = Example();
  Pattern pattern = DiagonalPattern(4);  // columns 1..3 keep their diagonals
  pattern.row_idx = {0, 3, 1, 2, 3};
  pattern.col_ptr = {0, 2, 3, 4, 5};
  const StaticSpaiResult result = Build(a, pattern, With(GetParam()));
  EXPECT_NEAR(result.m.values[0], -1.0 / 172, 1e-16);
  EXPECT_NEAR(result.m.values[1], 13.0 / 172, 1e-15);
  EXPECT_NEAR(result.residual_norms[0], 0, 1e-14);
}

TEST_P(HandChecked, RowThatNoColumnReachesGivesACountedZeroColumn) {
  // Entry (2, 2) of the example is not stored: with a diagonal pattern e_2 is out of reach; so is
  // e_3. Their columns are zero, their residuals 1.
  const CscMatrix a = Example();
  const Pattern diagonal = DiagonalPattern(4);
  const StaticSpaiResult result = Build(a, diagonal, With(GetParam()));
  EXPECT_EQ(result.quality.zero_columns, 2);
  EXPECT_EQ(result.quality.first_zero_column, 2);
  EXPECT_EQ(result.m.values[2], 0);
  EXPECT_EQ(result.residual_norms[2], 1);
  EXPECT_EQ(result.residual_norms[3], 1);
  // ensure_row adds the columns that hold row k, and cures it.
  StaticSpaiOptions options = With(GetParam());
  options.pattern.ensure_row = true;
  EXPECT_EQ(Build(a, diagonal, options).quality.zero_columns, 0);
}

TEST_P(HandChecked, OneByOne) {
  const CscMatrix a = FromRows({{-4}});
  const StaticSpaiResult result = Build(a, nullptr, With(GetParam()));
  EXPECT_DOUBLE_EQ(result.m.values[0], -0.25);
  EXPECT_NEAR(result.residual_norms[0], 0, 1e-16);
  EXPECT_EQ(result.quality.density, 1);
}

TEST_P(HandChecked, DuplicateColumnsAreRankDeficientAndStillMinimal) {
  // Columns 0 and 1 are equal: any split of the weight is minimal; residual of e_0 is that of
  // one column alone, √(1 − 1/2).
  const CscMatrix a = FromRows({{1, 1, 0}, {1, 1, 0}, {0, 0, 1}});
  const Pattern full = FullPattern(3);
  const StaticSpaiResult result = Build(a, full, With(GetParam()));
  EXPECT_NEAR(result.residual_norms[0], std::sqrt(0.5), 1e-15);
  EXPECT_NEAR(result.residual_norms[2], 0, 1e-15);
  EXPECT_EQ(result.quality.rank_deficient_columns, 3);
  EXPECT_EQ(result.quality.first_rank_deficient, 0);
  EXPECT_EQ(result.quality.qr_columns, 3);
  const int64_t rescued = GetParam() == LocalSolver::kGram ? 3 : result.quality.rescued_columns;
  EXPECT_EQ(result.quality.rescued_columns, rescued);
  if (rescued > 0) {
    EXPECT_EQ(result.quality.first_rescued, 0);
    EXPECT_LE(result.quality.min_scaled_pivot, 1e-10);
  }
}

TEST_P(HandChecked, FullDiagonalMatrixIsInverted) {
  const CscMatrix a = FromRows({{2, 0, 0}, {0, 4, 0}, {0, 0, 8}});
  const StaticSpaiResult result = Build(a, nullptr, With(GetParam()));
  EXPECT_DOUBLE_EQ(result.m.values[0], 0.5);
  EXPECT_DOUBLE_EQ(result.m.values[1], 0.25);
  EXPECT_DOUBLE_EQ(result.m.values[2], 0.125);
  EXPECT_EQ(result.quality.residual_quantiles.size(), 8u);
  EXPECT_NEAR(result.quality.residual_frobenius, 0, 1e-15);
}

TEST(StaticSpaiCountsTest, CountsOfTheExample) {
  const CscMatrix a = Example();
  Pattern pattern = DiagonalPattern(4);
  pattern.row_idx = {0, 3, 1, 2, 3};
  pattern.col_ptr = {0, 2, 3, 4, 5};
  const PatternView view = pattern;
  auto plan = PlanStaticSpai(a, &view, {}, {});
  ASSERT_TRUE(plan.ok());
  const StaticSpaiCounts& counts = Counts(**plan);
  EXPECT_EQ(counts.n, 4);
  EXPECT_EQ(counts.nnz_a, 8);
  EXPECT_EQ(counts.nnz_m, 5);
  EXPECT_EQ(counts.n2_max, 2);
  EXPECT_EQ(counts.n1_max, 3);
  EXPECT_EQ(counts.sum_n1, 2 + 3 + 1 + 2);
  // 2 n1 n2² − (2/3) n2³ + 4 n1 n2 by column: 16 − 16/3 + 16, 6 − 2/3 + 12, 2 − 2/3 + 4, 4 − 2/3
  // + 8.
  EXPECT_NEAR(counts.qr_flops, 68 - 16.0 / 3 - 2, 1e-12);
}

TEST(StaticSpaiPostFilter, DropsSmallEntriesAndReportsTheResidualsAfterwards) {
  // M = A⁻¹ = [1 −0.1; 0 1]: δ = 0.5 drops −0.1, then r_1 = A e_1 − e_1 = (0.1, 0).
  const CscMatrix a = FromRows({{1, 0.1}, {0, 1}});
  const Pattern full = FullPattern(2);
  StaticSpaiOptions options;
  options.post_filter = 0.5;
  const StaticSpaiResult result = Build(a, full, options);
  EXPECT_EQ(result.m.nnz(), 2);
  EXPECT_NEAR(result.residual_norms[1], 0.1, 1e-15);
  EXPECT_NEAR(result.quality.residual_frobenius, 0.1, 1e-15);
  EXPECT_NEAR(result.quality.density, 2.0 / 3, 1e-15);
}

}  // namespace
}  // namespace spaid::kernels
