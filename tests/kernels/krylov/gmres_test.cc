#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using ::testing::HasSubstr;

SolveOptions Gmres(double rtol = 1e-10, int64_t restart = 50) {
  return {.method = Method::kGmres, .rtol = rtol, .restart = restart};
}

TEST(Gmres, AnEigenvectorTakesOneStep) {
  const CscMatrix a = Rows({{2, 1}, {1, 2}});
  const Vector b{3, 3};  // A (1, 1) = (3, 3): the space ends happily after one step
  const SolveResult r = MustSolve(a, nullptr, b, Gmres());
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 1);
  EXPECT_NEAR(r.x[0], 1, 1e-15);
  EXPECT_NEAR(r.x[1], 1, 1e-15);
}

TEST(Gmres, CyclicShiftNeedsAllOfItsSteps) {
  const CscMatrix a = CyclicShift(6);
  const Vector b{1, 0, 0, 0, 0, 0};
  const SolveResult full = MustSolve(a, nullptr, b, Gmres(1e-10, 6));
  ASSERT_EQ(full.rhs[0].outcome, Outcome::kConverged) << full.rhs[0].detail;
  EXPECT_EQ(full.rhs[0].iterations, 6);
  for (int k = 0; k < 6; ++k) EXPECT_DOUBLE_EQ(full.rhs[0].history[k].relative_residual, 1) << k;
  EXPECT_NEAR(full.x[5], 1, 1e-15);
}

TEST(Gmres, CyclesWithoutGainStagnate) {
  const CscMatrix a = CyclicShift(6);
  const Vector b{1, 0, 0, 0, 0, 0};
  const SolveResult r = MustSolve(a, nullptr, b, Gmres(1e-10, 5));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated);
  EXPECT_EQ(r.rhs[0].iterations, 10);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("raise restart"));
  ExpectHonest(a, b, Gmres(1e-10, 5), r, "shift");
}

TEST(Gmres, ACycleThatMayGrowNeedsNoRestart) {
  if (!OnHost()) GTEST_SKIP() << "the host's alone";
  const CscMatrix a = CyclicShift(6);
  const Vector b{1, 0, 0, 0, 0, 0};
  SolveOptions options = Gmres(1e-10, 5);
  options.basis_bytes = 8 * 7 * 6 + 4 * 36;
  const SolveResult r = MustSolve(a, nullptr, b, options);
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 6);
  --options.basis_bytes;
  EXPECT_EQ(MustSolve(a, nullptr, b, options).rhs[0].outcome, Outcome::kStagnated);
}

TEST(Gmres, AGrownCycleHasTheBitsOfALongOne) {
  if (!OnHost()) GTEST_SKIP() << "the host's alone";
  const CscMatrix a = oracle::ConvectionDiffusion(16, 16, 2.0);
  const Vector b = RandomVector(a.n_cols, 5);
  SolveOptions grown = Gmres(1e-9, 7);
  grown.basis_bytes = int64_t{1} << 30;
  const SolveResult r = MustSolve(a, nullptr, b, grown);
  const SolveResult full = MustSolve(a, nullptr, b, Gmres(1e-9, a.n_cols));
  EXPECT_EQ(r.x, full.x);
  EXPECT_LT(r.rhs[0].iterations, MustSolve(a, nullptr, b, Gmres(1e-9, 7)).rhs[0].iterations);
}

TEST(Gmres, ReachesTheMinimumOfTheKrylovSpaceInEveryStep) {
  const CscMatrix a = oracle::RandomIrregular(50, 5, 21);
  const Vector b = RandomVector(50, 22);
  for (const bool jacobi : {false, true}) {
    Vector inverse = DiagonalOf(a);
    for (double& v : inverse) v = 1 / v;
    const DiagonalOperator m(inverse);
    const oracle::Apply apply = [&](const Vector& v) {
      Vector y(v);
      for (size_t i = 0; i < y.size(); ++i) y[i] *= inverse[i];
      return y;
    };
    const Vector expected =
        oracle::GmresResiduals(oracle::ToDense(a), b, jacobi ? apply : oracle::Apply{}, 20);
    SolveOptions options = Gmres(1e-15, 60);
    options.max_iterations = 20;
    const SolveResult r = MustSolve(a, jacobi ? &m : nullptr, b, options);
    ASSERT_EQ(r.rhs[0].history.size(), 21u) << r.rhs[0].detail;
    for (size_t k = 0; k <= 20; ++k) {
      EXPECT_NEAR(r.rhs[0].history[k].relative_residual, expected[k], 1e-6 * expected[k] + 1e-12)
          << "step " << k << ", jacobi " << jacobi;
    }
    EXPECT_NEAR(r.rhs[0].true_relative_residual, expected[20], 1e-6 * expected[20] + 1e-12);
  }
}

TEST(Gmres, ResidualsNeverRiseAlsoAcrossRestarts) {
  const CscMatrix a = oracle::ConvectionDiffusion(16, 16, 2.0);
  const Vector b = RandomVector(a.n_cols, 5);
  const SolveResult r = MustSolve(a, nullptr, b, Gmres(1e-9, 7));
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  ASSERT_GT(r.rhs[0].iterations, 14);
  for (size_t k = 1; k < r.rhs[0].history.size(); ++k) {
    EXPECT_LE(r.rhs[0].history[k].relative_residual,
              r.rhs[0].history[k - 1].relative_residual * (1 + 1e-9))
        << k;
  }
  ExpectHonest(a, b, Gmres(1e-9, 7), r, "restarts");
}

TEST(Gmres, ReorthogonalisationKeepsAnIllConditionedBasisUseful) {
  // Graded over ten decades: plain Gram-Schmidt loses the basis here.
  Vector d;
  for (int i = 0; i < 40; ++i) d.push_back(std::pow(10.0, -10.0 * i / 39));
  CscMatrix a = Diagonal(d);
  const Vector b(40, 1.0);
  const SolveResult r = MustSolve(a, nullptr, b, Gmres(1e-8, 40));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  // All of its dimensions, and a few steps that remove what rounding left; without it twice 40.
  EXPECT_LE(r.rhs[0].iterations, 43);
  ExpectHonest(a, b, Gmres(1e-8, 40), r, "graded");
}

TEST(Gmres, NilpotentMatrixBreaksDownHonestly) {
  const CscMatrix a = Rows({{0, 1}, {0, 0}});
  const Vector b{1, 0};  // solved by (0, 1), which no Krylov space of b holds
  const SolveResult r = MustSolve(a, nullptr, b, Gmres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("A is singular"));
  ExpectHonest(a, b, Gmres(), r, "nilpotent");
}

TEST(Gmres, SingularPreconditionerIsNamed) {
  const CscMatrix a = Diagonal({1, 2, 3});
  const Vector b{1, 1, 1};
  const Vector d{1, 1, 0};
  const DiagonalOperator m(d);
  const SolveResult r = MustSolve(a, &m, b, Gmres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown) << r.rhs[0].detail;
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("the preconditioner is singular"));
  EXPECT_NEAR(r.rhs[0].true_residual, 1,
              1e-12);  // the third row is out of reach, the others are met
  ExpectHonest(a, b, Gmres(), r, "singular M");
}

TEST(Gmres, InfiniteOperatorIsNonFinite) {
  const CscMatrix a = Diagonal({1, 2});
  const Vector b{1, 1};
  const Vector d{1, std::numeric_limits<double>::infinity()};
  const DiagonalOperator m(d);
  const SolveResult r = MustSolve(a, &m, b, Gmres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite);
  ExpectHonest(a, b, Gmres(), r, "infinite M");
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
