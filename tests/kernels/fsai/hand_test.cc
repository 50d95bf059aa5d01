// Matrices under 5 x 5 with the answer in the test.
#include "kernels/fsai/sampled_kaporin.h"
#include "tests/kernels/fsai/helpers.h"

namespace spaid::kernels {
namespace {

// L Lᵀ with L = (2; 1 2; 0 1 2).
CscMatrix Three() { return FromRows({{4, 2, 0}, {2, 5, 2}, {0, 2, 5}}); }

void ExpectRow(const FsaiResult& g, int64_t i, const oracle::Vector& expected) {
  const oracle::Vector row = Row(g, i);
  for (size_t j = 0; j < expected.size(); ++j) {
    EXPECT_NEAR(row[j], expected[j], 1e-15) << "(" << i << ", " << j << ")";
  }
}

TEST(FsaiHand, OneStepTakesTheLargestGradient) {
  const FsaiResult g = Build(Three(), Grow(1));
  ExpectRow(g, 0, {0.5, 0, 0});
  ExpectRow(g, 1, {-0.25, 0.5, 0});  // g̃ = −2/4, ψ = 5 − 1
  // Of row 2 a_02 = 0, a_12 = 2: g̃ = −2/5, ψ = 5 − 4/5.
  const double root = std::sqrt(4.2);
  ExpectRow(g, 2, {0, -0.4 / root, 1 / root});
  EXPECT_EQ(g.g_rows.nnz(), 5);
  EXPECT_DOUBLE_EQ(g.psi_ratio[1], 0.8);
  EXPECT_DOUBLE_EQ(g.psi_ratio[2], 0.84);
  ASSERT_EQ(g.quality.kaporin_by_step.size(), 2u);
  EXPECT_EQ(g.quality.kaporin_by_step[0], 1.0);
  EXPECT_NEAR(g.quality.kaporin_by_step[1], std::cbrt(0.8 * 0.84), 1e-15);
  EXPECT_NEAR(g.quality.kaporin, std::cbrt(0.8 * 0.84), 1e-15);
  EXPECT_NEAR(g.quality.density, 5.0 / 7, 1e-15);
  EXPECT_EQ(g.quality.nnz_row_max, 2);
}

// All three rows are the sample; and D A D, of other units, is the same to it.
TEST(FsaiHand, ASampleOfAllRowsIsTheWhole) {
  EXPECT_NEAR(SampledKaporin(Three(), Grow(1), 100), std::cbrt(0.8 * 0.84), 1e-15);
  const CscMatrix units = FromRows({{400, 2, 0}, {2, 0.05, 0.02}, {0, 0.02, 0.05}});
  EXPECT_NEAR(SampledKaporin(units, Grow(1), 100), std::cbrt(0.8 * 0.84), 1e-14);
  EXPECT_EQ(SampledKaporin(FromRows({{3, 0}, {0, 7}}), Grow(3), 8), 1.0);
}

TEST(FsaiHand, TwoStepsGiveTheInverseFactor) {
  // Row 2, step 2: y_0 = a_01 g̃_1 = −4/5; then 4 g0 + 2 g1 = 0, 2 g0 + 5 g1 = −2: (1/4, −1/2), ψ 4.
  for (const FsaiOptions& options : {Grow(2), Static(2)}) {
    const FsaiResult g = Build(Three(), options);
    ExpectRow(g, 1, {-0.25, 0.5, 0});
    ExpectRow(g, 2, {0.125, -0.25, 0.5});
  }
}

// With s = 2 the gradient of an index that is zero at first is not taken.
TEST(FsaiHand, ZeroGradientsAreNoCandidates) {
  const FsaiResult g = Build(Three(), Grow(1, 2));
  EXPECT_EQ(Row(g, 2)[0], 0.0);
  EXPECT_EQ(g.g_rows.nnz(), 5);
}

TEST(FsaiHand, TiesGoToTheLowerIndex) {
  const CscMatrix a = FromRows({{4, 0, 0, 1}, {0, 4, 0, -1}, {0, 0, 4, 1}, {1, -1, 1, 4}});
  const FsaiResult one = Build(a, Grow(1));
  EXPECT_NE(Row(one, 3)[0], 0.0);
  EXPECT_EQ(Row(one, 3)[1], 0.0);
  EXPECT_EQ(Row(one, 3)[2], 0.0);
  EXPECT_NEAR(one.quality.kaporin_by_step[1], std::pow(15.0 / 16, 0.25), 1e-15);
  const FsaiResult two = Build(a, Grow(1, 2));
  EXPECT_NE(Row(two, 3)[1], 0.0);
  EXPECT_EQ(Row(two, 3)[2], 0.0);
}

TEST(FsaiHand, EpsilonEndsARow) {
  // Row 1 has ψ / a = 4/5, row 2 21/25 after one step.
  const FsaiResult g = Build(Three(), Grow(5, 1, 0.85));
  EXPECT_EQ(g.g_rows.nnz(), 5);
  EXPECT_EQ(g.quality.converged_rows, 2);
}

TEST(FsaiHand, AStepThatGainsLittleIsTheLast) {
  // Row 1 gains 1/5, row 2 4/25 by its first step and 1/21 by its second.
  FsaiOptions options = Grow(2);
  options.min_gain = 0.15;
  EXPECT_EQ(Build(Three(), options).g_rows.nnz(), 6);
  options.min_gain = 0.17;
  const FsaiResult g = Build(Three(), options);
  EXPECT_EQ(g.g_rows.nnz(), 5);
  EXPECT_DOUBLE_EQ(g.psi_ratio[2], 0.84) << "that step counts";
  EXPECT_EQ(g.quality.converged_rows, 0);
}

TEST(FsaiHand, PostFilterDropsAndScales) {
  FsaiOptions options = Static(2);
  options.post_filter = 0.4;  // of row 2, (1, −2, 4)/8, the first: 1/√21 < 0.4 < 2/√21
  const FsaiResult g = Build(Three(), options);
  // ĝ = (0, −1/2, 1): ĝ A ĝᵀ = 5/4 − 2 + 5.
  const double root = std::sqrt(4.25);
  ExpectRow(g, 2, {0, -0.5 / root, 1 / root});
  EXPECT_EQ(g.g_rows.nnz(), 5);
  EXPECT_NEAR(g.psi_ratio[2], 4.25 / 5, 1e-15);
}

TEST(FsaiHand, DropTolLeavesWhatIsSmallBesideTheDiagonal) {
  // |a_ij| / √(a_ii a_jj): 2/√20 = 0.447, 2/5 = 0.4.
  FsaiOptions options = Static();
  options.drop_tol = 0.42;
  const FsaiResult g = Build(Three(), options);
  ExpectRow(g, 1, {-0.25, 0.5, 0});
  ExpectRow(g, 2, {0, 0, 1 / std::sqrt(5.0)});
  EXPECT_EQ(g.g_rows.nnz(), 4);
}

TEST(FsaiHand, GrowsFromAGivenPattern) {
  const CscMatrix a = Three();
  Pattern start;  // row 2 from {0}
  start.n_rows = start.n_cols = 3;
  start.col_ptr = {0, 0, 0, 1};
  start.row_idx = {0};
  const PatternView view = start;
  const FsaiResult none = Build(a, Grow(0), 1, &view);
  EXPECT_EQ(none.g_rows.nnz(), 4);  // a_02 = 0: its value is zero
  const FsaiResult g = Build(a, Grow(1), 1, &view);
  ExpectRow(g, 2, {0.125, -0.25, 0.5});
}

}  // namespace
}  // namespace spaid::kernels
