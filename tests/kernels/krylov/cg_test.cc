#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using ::testing::HasSubstr;

SolveOptions Cg(double rtol = 1e-10) { return {.method = Method::kCg, .rtol = rtol}; }

TEST(Cg, TwoByTwoByHand) {
  // r0 = b − A x0 = (−8, −3); α = 73/331; x1 = x0 + α r0; r1 = r0 − α A r0 = (−0.2810, 0.7492).
  const CscMatrix a = Rows({{4, 1}, {1, 3}});
  const Vector b{1, 2}, x0{2, 1};
  const SolveResult r = MustSolve(a, nullptr, b, Cg(), x0);
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 2);
  EXPECT_NEAR(r.x[0], 1.0 / 11, 1e-14);
  EXPECT_NEAR(r.x[1], 7.0 / 11, 1e-14);
  ASSERT_EQ(r.rhs[0].history.size(), 3u);
  const double alpha = 73.0 / 331;
  const double r1 = std::hypot(-8 + alpha * 35, -3 + alpha * 17);
  EXPECT_NEAR(r.rhs[0].history[0].relative_residual, std::sqrt(73.0 / 5), 1e-14);
  EXPECT_NEAR(r.rhs[0].history[1].relative_residual, r1 / std::sqrt(5.0), 1e-14);
}

TEST(Cg, AsManyStepsAsDistinctEigenvalues) {
  Vector d;
  for (int i = 0; i < 60; ++i) d.push_back(1 + i % 3);
  const CscMatrix a = Diagonal(d);
  const Vector b = RandomVector(60, 1);
  const SolveResult r = MustSolve(a, nullptr, b, Cg(1e-12));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r.rhs[0].iterations, 3);
}

TEST(Cg, FollowsTheTextbookIterationByIteration) {
  for (const bool jacobi : {false, true}) {
    const CscMatrix a = oracle::RandomSpd(70, 6, 11);
    const Vector b = RandomVector(70, 12);
    Vector inverse = DiagonalOf(a);
    for (double& v : inverse) v = 1 / v;
    const DiagonalOperator m(inverse);
    const oracle::Apply apply = [&](const Vector& v) {
      Vector y(v);
      for (size_t i = 0; i < y.size(); ++i) y[i] *= inverse[i];
      return y;
    };
    const oracle::KrylovRun expected =
        oracle::Cg(oracle::ToDense(a), b, jacobi ? apply : oracle::Apply{}, 1e-9, 1000);
    const SolveResult r = MustSolve(a, jacobi ? &m : nullptr, b, Cg(1e-9));
    ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
    // Rounding grows from step to step: the curves are compared while they must agree, the counts
    // within 2.
    EXPECT_NEAR(static_cast<double>(r.rhs[0].iterations),
                static_cast<double>(expected.residuals.size() - 1), 2)
        << "jacobi " << jacobi;
    ASSERT_GT(expected.residuals.size(), 20u);
    for (size_t k = 0; k <= 20; ++k) {
      EXPECT_NEAR(r.rhs[0].history[k].relative_residual, expected.residuals[k],
                  1e-6 * expected.residuals[k])
          << k;
    }
    for (size_t i = 0; i < expected.x.size(); ++i) EXPECT_NEAR(r.x[i], expected.x[i], 1e-8);
  }
}

TEST(Cg, NegativeCurvatureIsIndefinite) {
  const CscMatrix a = Diagonal({1, -1});
  const Vector b{1, 2};  // pᵀAp = 1 − 4
  const SolveResult r = MustSolve(a, nullptr, b, Cg());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kIndefinite);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("pᵀAp = -3 at iteration 0"));
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("use BiCGSTAB"));
  ExpectHonest(a, b, Cg(), r, "indefinite");
}

TEST(Cg, ZeroCurvatureIsIndefinite) {
  const SolveResult r = MustSolve(Diagonal({1, -1}), nullptr, Vector{1, 1}, Cg());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kIndefinite);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("pᵀAp = 0"));
}

TEST(Cg, IndefinitePreconditionerIsNamed) {
  const Vector minus{-1, -1};
  const DiagonalOperator m(minus);
  const SolveResult r = MustSolve(Diagonal({1, 2}), &m, Vector{1, 1}, Cg());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kIndefinite);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("the preconditioner is not positive definite: rᵀMr = -2"));
}

TEST(Cg, IndefiniteLateReturnsTheBestIterate) {
  // The negative direction is hidden behind a small component of b: CG gains before it meets it.
  const CscMatrix a = Diagonal({1, 2, 3, -1e-3});
  const Vector b{1, 1, 1, 1e-6};
  const SolveResult r = MustSolve(a, nullptr, b, Cg(1e-12));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kIndefinite) << r.rhs[0].detail;
  EXPECT_LT(r.rhs[0].true_relative_residual, 1e-5);
  ExpectHonest(a, b, Cg(1e-12), r, "late");
}

TEST(Cg, InfinitePreconditionerIsNonFinite) {
  const Vector d{1, std::numeric_limits<double>::infinity()};
  const DiagonalOperator m(d);
  const CscMatrix a = Diagonal({1, 2});
  const Vector b{1, 1};
  const SolveResult r = MustSolve(a, &m, b, Cg());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite);
  ExpectHonest(a, b, Cg(), r, "infinite M");
}

TEST(Cg, OverflowingCurvatureIsNonFinite) {
  const CscMatrix a = Diagonal({1e308, 1.7e308});
  const Vector b{1e3, 1e3};
  const SolveResult r = MustSolve(a, nullptr, b, Cg());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite) << r.rhs[0].detail;
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("pᵀAp"));
  ExpectHonest(a, b, Cg(), r, "overflow");
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
