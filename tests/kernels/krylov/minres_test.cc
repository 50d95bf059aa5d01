#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/run.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using ::testing::HasSubstr;

SolveOptions Minres(double rtol = 1e-10) { return {.method = Method::kMinres, .rtol = rtol}; }

// Symmetric, indefinite: an SPD matrix less a multiple of the identity.
CscMatrix Shifted(int64_t n, uint64_t seed, double shift) {
  oracle::Dense dense = oracle::ToDense(oracle::RandomSpd(n, 5, seed));
  for (int64_t i = 0; i < n; ++i) dense(i, i) -= shift;
  return oracle::FromDense(dense);
}

// x after so many iterations, not the best one.
Vector IterateAfter(const CscView& a, const LinearOperator* m, const Vector& b, int64_t k) {
  const CsrOperator op = CsrOperator::FromColumns(a);
  SolveOptions options = Minres(1e-300);
  options.max_iterations = k;
  const Context context;
  krylov::Team team(a.n_cols, 1);
  Vector x(b.size(), 0.0);
  RhsResult out;
  const krylov::System system{.b = b, .x0 = {}, .x = x};
  const krylov::Terms terms{
      .b_norm = Norm(b), .target = 1e-300, .rhs = 0, .options = &options, .context = &context};
  krylov::Run run(op, m, system, terms, &team, &out);
  krylov::RunMinres(run);
  return x;
}

TEST(Minres, TwoByTwoByHand) {
  // v₁ = (1, 2)/√5; α = v₁ᵀAv₁ = −3/5. The least ‖b − t A b‖, A b = (1, −2): t = −3/5, so that
  // x₁ = (−0.6, −1.2) and r₁ = (1.6, 0.8).
  const CscMatrix a = Diagonal({1, -1});
  const Vector b{1, 2};
  const SolveResult r = MustSolve(a, nullptr, b, Minres());
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 2);
  EXPECT_NEAR(r.x[0], 1, 1e-14);
  EXPECT_NEAR(r.x[1], -2, 1e-14);
  ASSERT_EQ(r.rhs[0].history.size(), 3u);
  EXPECT_NEAR(r.rhs[0].history[1].relative_residual, std::hypot(1.6, 0.8) / std::sqrt(5.0), 1e-14);
}

TEST(Minres, AsManyStepsAsDistinctEigenvalues) {
  Vector d;
  for (int i = 0; i < 60; ++i) d.push_back(i % 3 == 0 ? -2 : 1 + i % 3);
  const CscMatrix a = Diagonal(d);
  const Vector b = RandomVector(60, 1);
  const SolveResult r = MustSolve(a, nullptr, b, Minres(1e-12));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 3);
  ExpectHonest(a, b, Minres(1e-12), r, "three eigenvalues");
}

TEST(Minres, ZeroCurvatureIsNoEnd) {
  // CG and the Lanczos process without look-ahead stop here: bᵀAb = 0.
  const CscMatrix a = Diagonal({1, -1});
  const Vector b{1, 1};
  const SolveResult r = MustSolve(a, nullptr, b, Minres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 2);
  EXPECT_NEAR(r.x[1], -1, 1e-14);
}

TEST(Minres, ReachesTheMinimumOfTheKrylovSpaceInEveryStep) {
  // In the norm of M, as without M on √M A √M.
  const CscMatrix a = Shifted(50, 21, 3);
  const Vector b = RandomVector(50, 22);
  for (const bool with_m : {false, true}) {
    Vector inverse(50, 1.0);
    if (with_m) {
      for (size_t i = 0; i < inverse.size(); ++i)
        inverse[i] = 0.2 + 0.1 * static_cast<double>(i % 9);
    }
    const DiagonalOperator m(inverse);
    oracle::Dense split = oracle::ToDense(a);
    Vector split_b = b;
    for (int64_t i = 0; i < 50; ++i) {
      for (int64_t j = 0; j < 50; ++j) split(i, j) *= std::sqrt(inverse[i] * inverse[j]);
      split_b[i] *= std::sqrt(inverse[i]);
    }
    const Vector expected = oracle::GmresResiduals(split, split_b, nullptr, 20);
    double before = std::numeric_limits<double>::infinity();
    for (int64_t k = 1; k <= 20; ++k) {
      Vector r =
          oracle::Residual(oracle::ToDense(a), IterateAfter(a, with_m ? &m : nullptr, b, k), b);
      for (size_t i = 0; i < r.size(); ++i) r[i] *= std::sqrt(inverse[i]);
      const double norm = Norm(r) / Norm(split_b);
      EXPECT_NEAR(norm, expected[k], 1e-6 * expected[k] + 1e-12) << "step " << k << " " << with_m;
      EXPECT_LE(norm, before * (1 + 1e-12)) << k;
      before = norm;
    }
  }
}

TEST(Minres, ItsResidualsAreTheTrueOnes) {
  // The recursion has ‖r‖₂, also where M's norm is what falls.
  const CscMatrix a = Shifted(60, 5, 2);
  const Vector b = RandomVector(60, 6);
  Vector inverse = DiagonalOf(a);
  for (double& v : inverse) v = 1 / std::abs(v);
  const DiagonalOperator m(inverse);
  const SolveResult r = MustSolve(a, &m, b, Minres(1e-9));
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  ExpectHonest(a, b, Minres(1e-9), r, "Jacobi of sizes");
  for (int64_t k = 1; k < std::min<int64_t>(r.rhs[0].iterations, 25); ++k) {
    const double truth = ResidualNorm(a, IterateAfter(a, &m, b, k), b) / Norm(b);
    EXPECT_NEAR(r.rhs[0].history[k].relative_residual, truth, 1e-9 * truth + 1e-12) << k;
  }
}

TEST(Minres, ResidualsNeverRiseWithoutM) {
  const CscMatrix a = Shifted(200, 3, 2.5);
  const Vector b = RandomVector(200, 4);
  const SolveResult r = MustSolve(a, nullptr, b, Minres(1e-9));
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  ASSERT_GT(r.rhs[0].iterations, 20);
  for (size_t k = 1; k < r.rhs[0].history.size(); ++k) {
    EXPECT_LE(r.rhs[0].history[k].relative_residual,
              r.rhs[0].history[k - 1].relative_residual * (1 + 1e-12))
        << k;
  }
  ExpectHonest(a, b, Minres(1e-9), r, "indefinite");
}

TEST(Minres, IndefinitePreconditionerIsNamed) {
  const Vector minus{-1, -1};
  const DiagonalOperator m(minus);
  const SolveResult r = MustSolve(Diagonal({1, 2}), &m, Vector{1, 1}, Minres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kIndefinite);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("the preconditioner is not positive definite: rᵀMr = -2"));
  // Hidden from the first residual, met in the second vector.
  const Vector mixed{3, -1};
  const DiagonalOperator later(mixed);
  const CscMatrix a = Rows({{2, 1}, {1, 2}});
  const SolveResult s = MustSolve(a, &later, Vector{1, 1}, Minres());
  EXPECT_EQ(s.rhs[0].outcome, Outcome::kIndefinite) << s.rhs[0].detail;
  EXPECT_THAT(s.rhs[0].detail, HasSubstr("vᵀMv"));
  ExpectHonest(a, Vector{1, 1}, Minres(), s, "mixed M");
}

TEST(Minres, SingularPreconditionerIsNamed) {
  const CscMatrix a = Rows({{2, 1}, {1, 2}});
  const Vector b{0, 1}, d{1, 0};
  const DiagonalOperator m(d);
  const SolveResult r = MustSolve(a, &m, b, Minres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kIndefinite) << r.rhs[0].detail;
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("rᵀMr = 0"));
}

TEST(Minres, SingularAIsABreakdownAndTheLeastResidualComesBack) {
  const CscMatrix a = Diagonal({1, -2, 0});
  const Vector b{1, 1, 1};
  const SolveResult r = MustSolve(a, nullptr, b, Minres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown) << r.rhs[0].detail;
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("A is singular"));
  EXPECT_NEAR(r.rhs[0].true_residual, 1, 1e-12) << "the third row is out of reach";
  EXPECT_NEAR(r.x[0], 1, 1e-12);
  EXPECT_NEAR(r.x[1], -0.5, 1e-12);
  ExpectHonest(a, b, Minres(), r, "singular");
}

TEST(Minres, InfinitePreconditionerIsNonFinite) {
  const Vector d{1, std::numeric_limits<double>::infinity()};
  const DiagonalOperator m(d);
  const CscMatrix a = Diagonal({1, 2});
  const Vector b{1, 1};
  const SolveResult r = MustSolve(a, &m, b, Minres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite);
  ExpectHonest(a, b, Minres(), r, "infinite M");
}

TEST(Minres, OverflowingProductsAreNonFinite) {
  const CscMatrix a = Diagonal({1e308, -1.7e308});
  const Vector b{1e3, 1e3};
  const SolveResult r = MustSolve(a, nullptr, b, Minres());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite) << r.rhs[0].detail;
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("A M v is not finite"));
  ExpectHonest(a, b, Minres(), r, "overflow");
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
