// What must hold of every method on every matrix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

bool SameBits(std::span<const double> x, std::span<const double> y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

class EveryMethod : public ::testing::TestWithParam<Method> {
 protected:
  SolveOptions Options(double rtol) const { return {.method = GetParam(), .rtol = rtol}; }
};
INSTANTIATE_TEST_SUITE_P(Krylov, EveryMethod, ::testing::ValuesIn(MethodsHere()),
                         [](const auto& method) { return Name(method.param); });

TEST_P(EveryMethod, IsHonestOnTheWholeZoo) {
  int converged = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    for (const oracle::NamedMatrix& named : oracle::Zoo(seed)) {
      for (const bool jacobi : {false, true}) {
        SolveOptions options = Options(1e-8);
        options.max_iterations = 400;
        const Vector b = RandomVector(named.a.n_cols, seed + 40);
        Vector inverse = DiagonalOf(named.a);
        for (double& v : inverse) v = v == 0 ? 1 : 1 / v;
        const DiagonalOperator m(inverse);
        const SolveResult r = MustSolve(named.a, jacobi ? &m : nullptr, b, options);
        ExpectHonest(named.a, b, options, r, named.name + (jacobi ? " with Jacobi" : ""));
        if (r.rhs[0].outcome == Outcome::kConverged) ++converged;
      }
    }
  }
  EXPECT_GE(converged, 10) << "the test shows little where next to nothing converges";
}

TEST_P(EveryMethod, SolvesASampleProblem) {
  const CscMatrix a = oracle::Laplacian2d(30, 30);
  const Vector truth = RandomVector(a.n_cols, 7);
  const Vector b = Product(a, truth);
  const SolveResult r = MustSolve(a, nullptr, b, Options(1e-10));
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  for (size_t i = 0; i < truth.size(); ++i) EXPECT_NEAR(r.x[i], truth[i], 1e-6) << i;
  ExpectHonest(a, b, Options(1e-10), r, "Laplacian");
}

TEST_P(EveryMethod, AgreesWithADenseSolve) {
  for (const uint64_t seed : {5, 6}) {
    const CscMatrix a = oracle::RandomSpd(45, 5, seed);
    const Vector b = RandomVector(45, seed);
    const auto expected = oracle::LuSolve(oracle::ToDense(a), b);
    ASSERT_TRUE(expected.has_value());
    const SolveResult r = MustSolve(a, nullptr, b, Options(1e-12));
    ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
    for (size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(r.x[i], (*expected)[i], 1e-8) << i;
  }
}

TEST_P(EveryMethod, AnExactInitialGuessTakesNoIteration) {
  const CscMatrix a = Rows({{4, 1, 0}, {1, 3, 1}, {0, 1, 2}});
  const Vector x0{1, 2, 3};
  const Vector b = Product(a, x0);
  const SolveResult r = MustSolve(a, nullptr, b, Options(1e-12), x0);
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r.rhs[0].iterations, 0);
  EXPECT_EQ(Vector(r.x.begin(), r.x.end()), x0);
  EXPECT_EQ(r.rhs[0].true_residual, 0);
}

TEST_P(EveryMethod, AnInitialGuessThatIsNotFarHelps) {
  const CscMatrix a = oracle::Laplacian2d(25, 25);
  const Vector truth = RandomVector(a.n_cols, 8);
  const Vector b = Product(a, truth);
  Vector near(truth);
  for (size_t i = 0; i < near.size(); ++i) near[i] += 1e-6 * std::sin(static_cast<double>(i));
  const SolveResult cold = MustSolve(a, nullptr, b, Options(1e-8));
  const SolveResult warm = MustSolve(a, nullptr, b, Options(1e-8), near);
  ASSERT_EQ(cold.rhs[0].outcome, Outcome::kConverged);
  ASSERT_EQ(warm.rhs[0].outcome, Outcome::kConverged);
  EXPECT_LT(warm.rhs[0].iterations, cold.rhs[0].iterations);
  ExpectHonest(a, b, Options(1e-8), warm, "warm");
}

TEST_P(EveryMethod, ZeroRightHandSideGivesZero) {
  const CscMatrix a = Rows({{2, 1}, {1, 2}});
  const SolveResult r = MustSolve(a, nullptr, Vector{0, 0}, Options(1e-8), Vector{5, 6});
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r.rhs[0].iterations, 0);
  EXPECT_EQ(r.x[0], 0);
  EXPECT_EQ(r.x[1], 0);
  EXPECT_EQ(r.rhs[0].true_residual, 0);
  EXPECT_EQ(r.rhs[0].true_relative_residual, 0);
}

TEST_P(EveryMethod, OneByOne) {
  const SolveResult r = MustSolve(Rows({{4}}), nullptr, Vector{2}, Options(1e-14));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r.rhs[0].iterations, 1);
  EXPECT_EQ(r.x[0], 0.5);
}

TEST_P(EveryMethod, SingularConsistentSystemsConverge) {
  const CscMatrix a = Neumann(20);
  const Vector b = Product(a, RandomVector(20, 3));
  const SolveResult r = MustSolve(a, nullptr, b, Options(1e-9));
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  ExpectHonest(a, b, Options(1e-9), r, "consistent");
}

TEST_P(EveryMethod, SingularInconsistentSystemsNeverConverge) {
  const CscMatrix a = Neumann(20);
  Vector b(20, 0.0);
  b[3] = 1;  // 1/√20 of it lies in the null space and stays
  SolveOptions options = Options(1e-9);
  options.max_iterations = 500;
  const SolveResult r = MustSolve(a, nullptr, b, options);
  EXPECT_NE(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_GE(r.rhs[0].true_residual, (1 - 1e-9) / std::sqrt(20.0));
  ExpectHonest(a, b, options, r, "inconsistent");
}

TEST_P(EveryMethod, ZeroMatrixNeverConverges) {
  const CscMatrix a = Diagonal({0, 0, 0});
  const Vector b{1, 2, 3};
  const SolveResult r = MustSolve(a, nullptr, b, Options(1e-9));
  EXPECT_EQ(r.rhs[0].outcome,
            GetParam() == Method::kCg ? Outcome::kIndefinite : Outcome::kBreakdown)
      << Name(r.rhs[0].outcome);
  EXPECT_EQ(r.rhs[0].true_relative_residual, 1);
  ExpectHonest(a, b, Options(1e-9), r, "zero");
}

TEST_P(EveryMethod, AToleranceBelowRoundingStagnates) {
  const CscMatrix a = oracle::Laplacian2d(12, 12);
  const Vector b = RandomVector(a.n_cols, 3);
  const SolveOptions options = Options(1e-19);
  const SolveResult r = MustSolve(a, nullptr, b, options);
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated) << r.rhs[0].detail;
  EXPECT_LT(r.rhs[0].true_relative_residual, 1e-13);
  EXPECT_LT(r.rhs[0].iterations, 2000) << "noticed long after it happened";
  EXPECT_THAT(r.rhs[0].detail, ::testing::HasSubstr("ask for less"));
  ExpectHonest(a, b, options, r, "below rounding");
}

TEST_P(EveryMethod, IllConditionedRunsNeverClaimWhatTheyDoNotHold) {
  // Condition 1e12 and solutions of 1e12: recursion and truth come apart around 1e-5.
  Vector d;
  for (int i = 0; i < 60; ++i) d.push_back(std::pow(10.0, -12.0 * i / 59));
  CscMatrix a = Diagonal(d);
  const Vector b = RandomVector(60, 31);
  for (const double rtol : {1e-6, 1e-10, 1e-14}) {
    SolveOptions options = Options(rtol);
    options.max_iterations = 3000;
    const SolveResult r = MustSolve(a, nullptr, b, options);
    ExpectHonest(a, b, options, r, "rtol " + std::to_string(std::log10(rtol)));
  }
}

TEST_P(EveryMethod, MaxIterationsEndsThere) {
  const CscMatrix a = oracle::Laplacian2d(30, 30);
  const Vector b = RandomVector(a.n_cols, 7);
  SolveOptions options = Options(1e-12);
  options.max_iterations = 7;
  const SolveResult r = MustSolve(a, nullptr, b, options);
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kMaxIterations);
  EXPECT_EQ(r.rhs[0].iterations, 7);
  EXPECT_EQ(r.rhs[0].history.size(), 8u);
  EXPECT_LT(r.rhs[0].true_relative_residual, 1);
  ExpectHonest(a, b, options, r, "max");
}

TEST_P(EveryMethod, AtolIsALimitOfItsOwn) {
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  const Vector b = RandomVector(a.n_cols, 9);
  SolveOptions options = Options(0);
  options.atol = 1e-3;
  const SolveResult r = MustSolve(a, nullptr, b, options);
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(r.rhs[0].true_residual, 1e-3);
  EXPECT_GT(r.rhs[0].true_residual, 1e-6) << "went on long after the limit";
  options.rtol = 1e-12;  // the larger of the two counts
  const SolveResult same = MustSolve(a, nullptr, b, options);
  EXPECT_EQ(same.rhs[0].iterations, r.rhs[0].iterations);
}

TEST_P(EveryMethod, AGuessFarAboveATinyRightHandSideSurvives) {
  const CscMatrix a = Diagonal({2, 4});
  const Vector b{1e-300, 1e-300}, x0{1e9, 1};
  const SolveResult r = MustSolve(a, nullptr, b, Options(1e-8), x0);
  const RhsResult& rhs = r.rhs[0];
  EXPECT_NE(rhs.outcome, Outcome::kNonFinite) << rhs.detail;
  ASSERT_TRUE(std::isfinite(r.x[0]) && std::isfinite(r.x[1])) << r.x[0] << ", " << r.x[1];
  EXPECT_TRUE(std::isfinite(rhs.true_residual));
  EXPECT_LE(std::abs(r.x[0]), 1e-6) << "the guess is far off, and the first steps leave it";
  EXPECT_NEAR(rhs.true_residual, ResidualNorm(a, r.x, b), 1e-10 * rhs.true_residual);
}

TEST_P(EveryMethod, AGuessThatIsKeptIsKeptToTheBit) {
  // Scaled to b's size, the second element is under the range of fp64.
  const CscMatrix a = Diagonal({1, 1});
  const Vector b{1e300, 0}, x0{1e300, 1e-300};
  const SolveResult r = MustSolve(a, nullptr, b, Options(1e-8), x0);
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 0);
  EXPECT_EQ(r.x[0], 1e300);
  EXPECT_EQ(r.x[1], 1e-300);
}

TEST_P(EveryMethod, ASolutionOutsideFp64IsNoSuccess) {
  const CscMatrix tiny = Diagonal({1e-20, 1e-20});
  const Vector huge_b{1e300, 2e300};
  const SolveResult over = MustSolve(tiny, nullptr, huge_b, Options(1e-8));
  EXPECT_EQ(over.rhs[0].outcome, Outcome::kNonFinite) << over.rhs[0].detail;
  EXPECT_EQ(over.x[0], 0);
  EXPECT_EQ(over.x[1], 0);
  EXPECT_NEAR(over.rhs[0].true_relative_residual, 1, 1e-14) << "that of x = 0, which is returned";
  EXPECT_THAT(over.rhs[0].detail, ::testing::HasSubstr("exceeds the range"));

  const CscMatrix large = Diagonal({3e22, 7e22});
  const Vector tiny_b{1e-300, 1e-300};  // x is about 3e-323: one bit or two
  const SolveResult under = MustSolve(large, nullptr, tiny_b, Options(1e-8));
  EXPECT_EQ(under.rhs[0].outcome, Outcome::kStagnated) << under.rhs[0].detail;
  EXPECT_GT(under.rhs[0].true_relative_residual, 1e-6);
  EXPECT_NEAR(under.rhs[0].true_residual, ResidualNorm(large, under.x, tiny_b), 1e-308);
  EXPECT_THAT(under.rhs[0].detail, ::testing::HasSubstr("under the range"));
}

TEST_P(EveryMethod, TheScaleOfTheRightHandSideDoesNotMatter) {
  const CscMatrix a = oracle::RandomSpd(50, 5, 8);
  const Vector b = RandomVector(50, 9);
  const SolveResult plain = MustSolve(a, nullptr, b, Options(1e-9));
  ASSERT_EQ(plain.rhs[0].outcome, Outcome::kConverged);
  for (const int exponent : {-900, -600, 600, 900}) {
    Vector scaled(b);
    for (double& v : scaled) v = std::ldexp(v, exponent);
    const SolveResult r = MustSolve(a, nullptr, scaled, Options(1e-9));
    ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << exponent << r.rhs[0].detail;
    ASSERT_EQ(r.rhs[0].history.size(), plain.rhs[0].history.size()) << exponent;
    for (size_t k = 0; k < plain.rhs[0].history.size(); ++k) {
      EXPECT_DOUBLE_EQ(r.rhs[0].history[k].relative_residual,
                       plain.rhs[0].history[k].relative_residual);
    }
    for (size_t i = 0; i < b.size(); ++i) EXPECT_EQ(r.x[i], std::ldexp(plain.x[i], exponent)) << i;
  }
}

TEST_P(EveryMethod, RunsAndThreadsDoNotChangeABit) {
  // Large enough that vectors and products are shared out.
  const CscMatrix a = oracle::Laplacian2d(300, 250);
  const Vector b = RandomVector(a.n_cols, 10);
  Vector inverse = DiagonalOf(a);
  for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = (1 + 0.01 * (i % 5)) / inverse[i];
  const DiagonalOperator m(inverse);
  SolveOptions options = Options(1e-10);
  options.max_iterations = 25;
  options.restart = 10;
  const SolveResult one = MustSolve(a, &m, b, options, {}, Context{.stop = {}, .threads = 1});
  for (const int threads : {1, 2, 3, 4, 5}) {
    const SolveResult r = MustSolve(a, &m, b, options, {}, Context{.stop = {}, .threads = threads});
    EXPECT_EQ(std::memcmp(r.x.data(), one.x.data(), r.x.size() * sizeof(double)), 0) << threads;
    ASSERT_EQ(r.rhs[0].history.size(), one.rhs[0].history.size());
    for (size_t k = 0; k < one.rhs[0].history.size(); ++k) {
      EXPECT_EQ(r.rhs[0].history[k].relative_residual, one.rhs[0].history[k].relative_residual);
    }
  }
}

TEST_P(EveryMethod, EveryRightHandSideHasItsOwnEnd) {
  const CscMatrix a = oracle::Laplacian2d(15, 15);
  const int64_t n = a.n_cols;
  Vector b(static_cast<size_t>(3 * n), 0.0);
  const Vector truth = RandomVector(n, 1);
  const Vector first = RandomVector(n, 2), last = Product(a, truth);
  std::copy(first.begin(), first.end(), b.begin());  // the second stays zero
  std::copy(last.begin(), last.end(), b.begin() + 2 * n);
  Vector x0(b.size(), 0.0);
  std::copy(truth.begin(), truth.end(), x0.begin() + 2 * n);
  RecordingSink sink;
  const SolveResult r =
      MustSolve(a, nullptr, b, Options(1e-9), x0, Context{.stop = {}, .progress = &sink});
  ASSERT_EQ(r.rhs.size(), 3u);
  for (const RhsResult& rhs : r.rhs) EXPECT_EQ(rhs.outcome, Outcome::kConverged) << rhs.detail;
  EXPECT_GT(r.rhs[0].iterations, 3);
  EXPECT_EQ(r.rhs[1].iterations, 0);
  EXPECT_EQ(r.rhs[2].iterations, 0);
  ExpectHonest(a, b, Options(1e-9), r, "three");
  const SolveResult alone = MustSolve(a, nullptr, first, Options(1e-9));
  EXPECT_EQ(alone.rhs[0].iterations, r.rhs[0].iterations);
  EXPECT_EQ(std::memcmp(alone.x.data(), r.x.data(), alone.x.size() * sizeof(double)), 0);
  // The sink saw what the histories hold, of each right-hand side in its order.
  std::vector<size_t> at(r.rhs.size(), 0);
  for (const ResidualPoint& seen : sink.points) {
    const auto k = static_cast<size_t>(seen.rhs);
    ASSERT_LT(k, r.rhs.size());
    ASSERT_LT(at[k], r.rhs[k].history.size());
    const ResidualPoint& kept = r.rhs[k].history[at[k]++];
    EXPECT_EQ(kept.rhs, seen.rhs);
    EXPECT_EQ(kept.iteration, seen.iteration);
    EXPECT_EQ(kept.relative_residual, seen.relative_residual);
  }
  for (size_t k = 0; k < at.size(); ++k) EXPECT_EQ(at[k], r.rhs[k].history.size()) << k;
}

TEST_P(EveryMethod, ACancelStopsSoon) {
  const CscMatrix a = oracle::Laplacian2d(30, 30);
  Vector b = RandomVector(2 * a.n_cols, 7);
  StopSource source;
  RecordingSink sink;
  sink.on_residual = [&](const ResidualPoint& p) {
    if (p.rhs == 0 && p.iteration == 5) source.Request(StopReason::kCancelled);
  };
  const SolveResult r = MustSolve(a, nullptr, b, Options(1e-12), {},
                                  Context{.stop = source.token(), .progress = &sink});
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kCancelled);
  EXPECT_GE(r.rhs[0].iterations, 5);
  EXPECT_LE(r.rhs[0].iterations, 5 + IterationsAfterStop());
  EXPECT_LT(r.rhs[0].true_relative_residual, 1) << "these iterations are not lost";
  EXPECT_EQ(r.rhs[1].outcome, Outcome::kCancelled);
  EXPECT_LE(r.rhs[1].iterations, ColumnsAtOnce() > 1 ? 5 + IterationsAfterStop() : 0);
  if (r.rhs[1].iterations == 0) {
    EXPECT_EQ(r.rhs[1].true_relative_residual, 1);
  }
  ExpectHonest(a, b, Options(1e-12), r, "cancel");
}

TEST_P(EveryMethod, APassedTimeLimitIsAnOutcome) {
  const CscMatrix a = oracle::Laplacian2d(10, 10);
  const Vector b = RandomVector(a.n_cols, 7);
  StopSource source;
  source.SetTimeLimit(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  const SolveResult r =
      MustSolve(a, nullptr, b, Options(1e-9), {}, Context{.stop = source.token()});
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kTimeLimit);
  EXPECT_EQ(r.rhs[0].iterations, 0);
  EXPECT_THAT(r.rhs[0].detail, ::testing::HasSubstr("time limit"));
  ExpectHonest(a, b, Options(1e-9), r, "time");
}

// Whose turn is over again and again; others solve meanwhile, on the same device.
class Interrupted : public Turn {
 public:
  explicit Interrupted(std::function<void()> others) : others_(std::move(others)) {}
  bool Over() const override { return ++asked_ % 3 == 0; }
  void Yield() override {
    ++yields_;
    others_();
  }
  int yields() const { return yields_; }

 private:
  const std::function<void()> others_;
  mutable int asked_ = 0;
  int yields_ = 0;
};

TEST_P(EveryMethod, TurnsOfOthersChangeNoBit) {
  const CscMatrix a = oracle::Laplacian2d(40, 40), other = oracle::Laplacian2d(25, 30);
  const Vector b = RandomVector(2 * a.n_cols, 7), other_b = RandomVector(other.n_cols, 8);
  SolveOptions options = Options(1e-10);
  options.restart = 7;
  const SolveResult alone = MustSolve(a, nullptr, b, options);
  const SolveResult other_alone = MustSolve(other, nullptr, other_b, Options(1e-8));
  int alike = 0;
  Interrupted turn([&] {
    const SolveResult between = MustSolve(other, nullptr, other_b, Options(1e-8));
    alike += SameBits(between.x, other_alone.x) ? 1 : 0;
  });
  options.turn = &turn;
  const SolveResult shared = MustSolve(a, nullptr, b, options);
  EXPECT_GT(turn.yields(), 0);
  EXPECT_EQ(alike, turn.yields());
  EXPECT_TRUE(SameBits(shared.x, alone.x));
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(shared.rhs[k].iterations, alone.rhs[k].iterations);
    EXPECT_EQ(shared.rhs[k].true_residual, alone.rhs[k].true_residual);
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
