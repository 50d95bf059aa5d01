#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using ::testing::HasSubstr;

SolveOptions Bicgstab(double rtol = 1e-10) { return {.method = Method::kBicgstab, .rtol = rtol}; }

TEST(Bicgstab, HalfAStepSolvesAMultipleOfTheIdentity) {
  const CscMatrix a = Diagonal({4, 4, 4});
  const Vector b{4, 8, -4};
  const SolveResult r = MustSolve(a, nullptr, b, Bicgstab());
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 1);
  EXPECT_DOUBLE_EQ(r.x[0], 1);
  EXPECT_DOUBLE_EQ(r.x[1], 2);
  EXPECT_DOUBLE_EQ(r.x[2], -1);
}

TEST(Bicgstab, FirstStepByHand) {
  // r = b = (1, 0); v = A r = (2, 1); α = 1/2; s = (0, −1/2); t = A s = (−1/2·0 + …) = (0, −1.5);
  // ω = tᵀs/tᵀt = 0.75/2.25 = 1/3; r1 = s − ω t = 0: one step.
  const CscMatrix a = Rows({{2, 0}, {1, 3}});
  const Vector b{1, 0};
  const SolveResult r = MustSolve(a, nullptr, b, Bicgstab());
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 1);
  EXPECT_NEAR(r.x[0], 0.5, 1e-15);
  EXPECT_NEAR(r.x[1], -1.0 / 6, 1e-15);
}

TEST(Bicgstab, FollowsTheTextbookIterationByIteration) {
  for (const bool jacobi : {false, true}) {
    const CscMatrix a = oracle::ConvectionDiffusion(8, 8, 1.0);
    const Vector b = RandomVector(a.n_cols, 4);
    Vector inverse = DiagonalOf(a);
    for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = (1 + 0.1 * (i % 3)) / inverse[i];
    const DiagonalOperator m(inverse);
    const oracle::Apply apply = [&](const Vector& v) {
      Vector y(v);
      for (size_t i = 0; i < y.size(); ++i) y[i] *= inverse[i];
      return y;
    };
    const oracle::KrylovRun expected =
        oracle::Bicgstab(oracle::ToDense(a), b, jacobi ? apply : oracle::Apply{}, 1e-8, 1000);
    const SolveResult r = MustSolve(a, jacobi ? &m : nullptr, b, Bicgstab(1e-8));
    ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
    ASSERT_LE(expected.residuals.size(), 51u) << "beyond, rounding decides the count";
    EXPECT_NEAR(static_cast<double>(r.rhs[0].iterations),
                static_cast<double>(expected.residuals.size() - 1), 2);
    for (size_t k = 0; k < std::min<size_t>(10, expected.residuals.size() - 1); ++k) {
      EXPECT_NEAR(r.rhs[0].history[k].relative_residual, expected.residuals[k],
                  1e-6 * expected.residuals[k])
          << k;
    }
    ExpectHonest(a, b, Bicgstab(1e-8), r, "convection-diffusion");
  }
}

TEST(Bicgstab, SkewMatrixBreaksDown) {
  // tᵀs = sᵀA s = 0 for every s: omega vanishes, whatever the shadow residual.
  const CscMatrix a = Rows({{0, 1}, {-1, 0}});
  const Vector b{1, 0};
  const SolveResult r = MustSolve(a, nullptr, b, Bicgstab());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown) << r.rhs[0].detail;
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("vanished"));
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("use GMRES"));
  ExpectHonest(a, b, Bicgstab(), r, "skew");
}

TEST(Bicgstab, ANewShadowCuresABreakdownOfTheFirstOne) {
  // r = e1, A r = e2: the denominator of alpha is zero with the shadow r, not with another.
  const CscMatrix a = Rows({{0, 1, 0}, {1, 0, 0}, {0, 0, 2}});
  const Vector b{1, 0, 0};
  const SolveResult r = MustSolve(a, nullptr, b, Bicgstab(1e-8));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_NEAR(r.x[1], 1, 1e-7);
  ExpectHonest(a, b, Bicgstab(1e-8), r, "permutation");
}

TEST(Bicgstab, ZeroPreconditionerBreaksDown) {
  const Vector zero{0, 0};
  const DiagonalOperator m(zero);
  const CscMatrix a = Diagonal({1, 2});
  const Vector b{1, 1};
  const SolveResult r = MustSolve(a, &m, b, Bicgstab());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].true_relative_residual, 1);
}

// The identity, but for one call that multiplies by `factor`: what a run meets whose recursion blew
// up.
class Glitch : public LinearOperator {
 public:
  Glitch(int call, double factor) : call_(call), factor_(factor) {}
  int64_t n() const override { return 40; }
  void Apply(std::span<const double> x, std::span<double> y, int) const override {
    const double factor = calls_++ == call_ ? factor_ : 1;
    for (size_t i = 0; i < x.size(); ++i) y[i] = factor * x[i];
  }
  int64_t bytes_per_apply() const override { return 640; }
  int calls() const { return calls_; }

 private:
  int call_;
  double factor_;
  mutable int calls_ = 0;
};

TEST(Bicgstab, ARunThatBlowsUpGoesOnFromItsBestIterate) {
  const CscMatrix a = oracle::RandomSpd(40, 4, 2);
  const CsrOperator op = CsrOperator::FromColumns(a);
  const Vector b = RandomVector(40, 5);
  // Call 6 is M p of the fourth iteration: p that overflows; call 7 is M s: x leaves by 1e20.
  for (const auto& [call, factor] :
       {std::pair{6, std::numeric_limits<double>::infinity()}, std::pair{7, 1e-20}}) {
    const Glitch m(call, factor);
    const auto r = Solve(op, &m, b, {}, Bicgstab(1e-9), {});
    ASSERT_TRUE(r.ok());
    EXPECT_GT(m.calls(), call + 2) << "the glitch was not met";
    EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged) << call << ": " << r->rhs[0].detail;
    ExpectHonest(a, b, Bicgstab(1e-9), *r, "glitch");
  }
}

TEST(Bicgstab, NonFiniteValuesAreNoticedWhereTheyArise) {
  const CscMatrix a = Diagonal({1, 2});
  const Vector b{1, 1};
  const Vector infinite{1, std::numeric_limits<double>::infinity()};
  const DiagonalOperator m(infinite);
  const SolveResult r = MustSolve(a, &m, b, Bicgstab());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("A M r is not finite"));
  ExpectHonest(a, b, Bicgstab(), r, "infinite M");
}

TEST(Bicgstab, ReturnsTheBestIterateOfAnErraticRun) {
  const CscMatrix a = oracle::ConvectionDiffusion(20, 20, 4.0);
  const Vector b = RandomVector(a.n_cols, 3);
  int behind = 0;
  for (int64_t k = 1; k <= 60; ++k) {
    SolveOptions options = Bicgstab(1e-14);
    options.max_iterations = k;
    const SolveResult r = MustSolve(a, nullptr, b, options);
    double best = 1;
    for (const ResidualPoint& p : r.rhs[0].history) best = std::min(best, p.relative_residual);
    EXPECT_LE(r.rhs[0].true_relative_residual, best * (1 + 1e-6) + 1e-14) << k;
    if (r.rhs[0].history.back().relative_residual > best) ++behind;
    ExpectHonest(a, b, options, r, "k = " + std::to_string(k));
  }
  EXPECT_GE(behind, 3) << "the run is not erratic enough to show anything";
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
