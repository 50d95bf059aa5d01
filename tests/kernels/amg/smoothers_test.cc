#include "kernels/amg/smoothers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/amg/scaling.h"
#include "tests/kernels/amg/problems.h"

namespace spaid::kernels {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(Smoothers, AreChosenByBetaAndSymmetry) {
  EXPECT_EQ(ChooseSmoother(SmootherKind::kAuto, true, 3), SmootherKind::kL1Jacobi);
  EXPECT_EQ(ChooseSmoother(SmootherKind::kAuto, true, 3.1), SmootherKind::kAfsai);
  EXPECT_EQ(ChooseSmoother(SmootherKind::kAuto, false, 2), SmootherKind::kL1Jacobi);
  EXPECT_EQ(ChooseSmoother(SmootherKind::kAuto, false, 4), SmootherKind::kStaticSpai);
  EXPECT_EQ(ChooseSmoother(SmootherKind::kJacobi, false, 99), SmootherKind::kJacobi);
}

TEST(Smoothers, DiagonalsByHand) {
  const CscMatrix a = oracle::FromRows({{2, -1, 0}, {-1, 4, -1}, {0, -1, 2}});
  const auto l1 = MakeSmoother(SmootherKind::kL1Jacobi, a, true, {}, Threads(1));
  ASSERT_TRUE(l1.ok());
  EXPECT_THAT(l1->diagonal, ElementsAre(DoubleEq(1.6 / 3), DoubleEq(1.6 / 6), DoubleEq(1.6 / 3)));
  const auto jacobi = MakeSmoother(SmootherKind::kJacobi, a, true, {}, Threads(1));
  ASSERT_TRUE(jacobi.ok());
  EXPECT_EQ(jacobi->rho, 1.5);  // row sums of D⁻¹A
  EXPECT_DOUBLE_EQ(jacobi->diagonal[1], 1.6 / 1.5 / 4);
}

// S of a smoother as the dense matrix that x += S (r - A x) applies.
oracle::Dense MatrixOf(const Smoother& smoother, const oracle::Dense& a) {
  const int64_t n = a.rows;
  oracle::Dense s(n, n);
  switch (smoother.kind) {
    case SmootherKind::kFsai:
    case SmootherKind::kAfsai: {
      s = oracle::Multiply(DenseOf(smoother.transposed), DenseOf(smoother.rows));
      for (double& value : s.a) value *= smoother.omega;
      return s;
    }
    case SmootherKind::kStaticSpai:
      return DenseOf(smoother.rows);
    case SmootherKind::kChebyshev: {  // each unit vector through the recurrence
      for (int64_t c = 0; c < n; ++c) {
        oracle::Vector r(static_cast<size_t>(n), 0.0), d(r), x(r);
        r[static_cast<size_t>(c)] = 1;
        for (size_t i = 0; i < r.size(); ++i)
          d[i] = 4 / (3 * smoother.rho) * smoother.diagonal[i] * r[i];
        const auto degree = static_cast<int>(smoother.coefficients.size());
        for (int k = 1; k <= degree; ++k) {
          for (size_t i = 0; i < x.size(); ++i)
            x[i] += smoother.coefficients[static_cast<size_t>(k - 1)] * d[i];
          const oracle::Vector ad = oracle::Multiply(a, d);
          for (size_t i = 0; i < r.size(); ++i) {
            r[i] -= ad[i];
            d[i] = (2.0 * k - 1) / (2.0 * k + 3) * d[i] +
                   (8.0 * k + 4) / ((2.0 * k + 3) * smoother.rho) * smoother.diagonal[i] * r[i];
          }
        }
        for (int64_t i = 0; i < n; ++i) s(i, c) = x[static_cast<size_t>(i)];
      }
      return s;
    }
    default:
      for (int64_t i = 0; i < n; ++i) s(i, i) = smoother.diagonal[static_cast<size_t>(i)];
      return s;
  }
}

// |x - S A x|_A < |x|_A for every x: each smoother alone converges on every SPD matrix.
TEST(Smoothers, ConvergeOnEveryPositiveDefiniteMatrix) {
  for (const Problem& problem : Problems()) {
    if (!problem.symmetric || problem.name == "hubs") continue;
    auto scaled = ScaleToUnitDiagonal(problem.rows, true, Threads(1));
    ASSERT_TRUE(scaled.ok());
    const oracle::Dense a = DenseOf(scaled->rows);
    for (const SmootherKind kind :
         {SmootherKind::kL1Jacobi, SmootherKind::kJacobi, SmootherKind::kChebyshev,
          SmootherKind::kFsai, SmootherKind::kAfsai}) {
      SCOPED_TRACE(problem.name + ", " + std::string(Name(kind)));
      AmgOptions options;
      options.chebyshev_degree = 3;
      const auto smoother = MakeSmoother(kind, scaled->rows, true, options, Threads(1));
      ASSERT_TRUE(smoother.ok()) << smoother.status().message();
      const oracle::Dense s = MatrixOf(*smoother, a);
      // The energy norm of I - S A by power steps on its square.
      oracle::Random random(3);
      oracle::Vector x(static_cast<size_t>(a.rows));
      for (double& value : x) value = random.Uniform(-1, 1);
      const auto energy = [&](const oracle::Vector& v) {
        const oracle::Vector av = oracle::Multiply(a, v);
        double sum = 0;
        for (size_t i = 0; i < v.size(); ++i) sum += v[i] * av[i];
        return std::sqrt(sum);
      };
      double factor = 0;
      for (int step = 0; step < 200; ++step) {
        const double before = energy(x);
        if (before < 1e-200) break;
        const oracle::Vector correction = oracle::Multiply(s, oracle::Multiply(a, x));
        for (size_t i = 0; i < x.size(); ++i) x[i] = (x[i] - correction[i]) / before;
        factor = energy(x);
      }
      EXPECT_LT(factor, 1);
    }
  }
}

TEST(Smoothers, StaticSpaiIsThatOfTheEngine) {
  const CscMatrix a = oracle::ConvectionDiffusion(8, 7, 2.0);
  const CscMatrix rows = Transpose(CscView(a));
  const auto smoother = MakeSmoother(SmootherKind::kStaticSpai, rows, false, {}, Threads(2));
  ASSERT_TRUE(smoother.ok());
  const oracle::Dense expected = oracle::Spai(oracle::ToDense(a), a.pattern());
  const oracle::Dense got = DenseOf(smoother->rows);
  for (size_t k = 0; k < got.a.size(); ++k) ASSERT_NEAR(got.a[k], expected.a[k], 1e-12);
  EXPECT_EQ(smoother->transposed.n(), 0);
  const auto symmetric =
      MakeSmoother(SmootherKind::kStaticSpai, oracle::Laplacian2d(6, 6), true, {}, Threads(1));
  ASSERT_TRUE(symmetric.ok());
  EXPECT_EQ(DenseOf(symmetric->transposed).a, oracle::Transpose(DenseOf(symmetric->rows)).a);
}

}  // namespace
}  // namespace spaid::kernels
