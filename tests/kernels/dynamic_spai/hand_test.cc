// Cases whose patterns are in the test.
#include "tests/kernels/dynamic_spai/helpers.h"

namespace spaid::kernels {
namespace {

// The worked 4x4 example of the SPAI literature (Kierkegaard, Willén 2023, after Grote, Huckle
// 1997).
CscMatrix Example() {
  return FromRows({{10, 10, 0, 14}, {0, 10, 2, 0}, {13, 0, 0, 1}, {0, 5, 0, 0}});
}

TEST(DynamicHand, ColumnZeroTakesThree) {
  const CscMatrix a = Example();
  for (const bool fp32 : {false, true}) {
    DynamicSpaiOptions options = Steps(5, 1, 0.01);
    options.growth_precision = fp32 ? Precision::kFp32 : Precision::kFp64;
    const DynamicSpaiPattern grown = Grow(a, options);
    EXPECT_EQ(Column(grown.m, 0), (std::vector<int64_t>{0, 3}));
    const StaticSpaiResult m = Numbers(a, grown, options);
    EXPECT_NEAR(m.m.values[0], -1.0 / 172, 1e-15);
    EXPECT_NEAR(m.m.values[1], 13.0 / 172, 1e-15);
    EXPECT_NEAR(m.residual_norms[0], 0, 1e-14);
  }
}

TEST(DynamicHand, NoStepsLeaveTheDiagonal) {
  const DynamicSpaiPattern grown = Grow(Example(), Steps(0));
  EXPECT_EQ(grown.m.col_ptr, DiagonalPattern(4).col_ptr);
  EXPECT_EQ(grown.m.row_idx, DiagonalPattern(4).row_idx);
  // ‖r_0‖² = 169/269; columns 1 to 3 of the diagonal: a_kk² / ‖A e_k‖² of it are explained.
  const double r1 = 1 - 100.0 / 225;
  ASSERT_EQ(grown.quality.residual_by_step.size(), 1u);
  EXPECT_NEAR(grown.quality.residual_by_step[0], std::pow(169.0 / 269 * r1, 1.0 / 8), 1e-14);
  EXPECT_EQ(grown.quality.converged_columns, 0);
}

// a_kk = 0 gains nothing, and is where a column begins all the same.
TEST(DynamicHand, AZeroOnTheDiagonalIsNoEnd) {
  const CscMatrix a = FromRows({{0, 2}, {5, 0}});
  const DynamicSpaiPattern grown = Grow(a, Steps(1));
  EXPECT_EQ(Column(grown.m, 0), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(Column(grown.m, 1), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(grown.quality.converged_columns, 2);
  const StaticSpaiResult m = Numbers(a, grown, Steps(1));
  EXPECT_EQ(m.quality.zero_columns, 0);
  EXPECT_NEAR(m.quality.residual_frobenius, 0, 1e-15);
}

TEST(DynamicHand, AnIdentityIsItsOwnInverse) {
  const CscMatrix a = FromRows({{1, 0, 0}, {0, -4, 0}, {0, 0, 1e-30}});
  const DynamicSpaiPattern grown = Grow(a, Steps(3, 2));
  EXPECT_EQ(grown.m.row_idx, DiagonalPattern(3).row_idx);
  EXPECT_EQ(grown.quality.converged_columns, 3);
  EXPECT_EQ(grown.quality.gram_nnz, 3);
}

TEST(DynamicHand, OneUnknown) {
  const DynamicSpaiPattern grown = Grow(FromRows({{-3}}), Steps(7, 3));
  EXPECT_EQ(grown.m.row_idx, (Array<int32_t>{0}));
  EXPECT_EQ(grown.quality.nnz_column_max, 1);
}

// Equal scores: the lower index.
TEST(DynamicHand, TiesGoToTheLowerIndex) {
  const CscMatrix a = FromRows({{4, 1, 1, 1}, {1, 4, 0, 0}, {1, 0, 4, 0}, {1, 0, 0, 4}});
  EXPECT_EQ(Column(Grow(a, Steps(1)).m, 0), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(Column(Grow(a, Steps(2)).m, 0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(Column(Grow(a, Steps(1, 2)).m, 0), (std::vector<int64_t>{0, 1, 2}));
}

// Columns 0 and 1 are one: the second of them to join is refused.
TEST(DynamicHand, DependentColumnsEndGrowth) {
  const CscMatrix a = FromRows({{2, 2, 0, 1}, {1, 1, 0, 0}, {0, 0, 3, 0}, {1, 1, 1, 5}});
  const DynamicSpaiPattern grown = Grow(a, Steps(1, 2));
  // Column 2 begins with 2, and what 0 and 1 gain for it is the same.
  const CscMatrix all = FromRows({{1, 1, 0}, {1, 1, 1}, {0, 0, 1}});
  const DynamicSpaiPattern both = Grow(all, Steps(1, 2));
  EXPECT_EQ(Column(both.m, 2), (std::vector<int64_t>{0, 2}));
  EXPECT_GE(both.quality.dependent_columns, 1);
  EXPECT_EQ(both.quality.first_dependent, 2);
  ExpectCanonical(grown.m, "singular");
}

}  // namespace
}  // namespace spaid::kernels
