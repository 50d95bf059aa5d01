#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/krylov/krylov.h"
#include "kernels/krylov/noise.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using ::testing::HasSubstr;

SolveOptions Idr(double rtol = 1e-10) { return {.method = Method::kIdr, .rtol = rtol}; }

double Dot(const Vector& x, const Vector& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

void Add(double factor, const Vector& x, Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] += factor * x[i];
}

// The shadow vectors of the method: noise, made orthonormal.
std::vector<Vector> Shadows(size_t n, int s) {
  std::vector<Vector> p;
  for (int k = 0; k < s; ++k) {
    Vector v(n);
    for (size_t i = 0; i < n; ++i) v[i] = krylov::Noise(static_cast<int64_t>(i), 8 * k);
    for (int twice = 0; twice < 2; ++twice) {
      for (const Vector& earlier : p) Add(-Dot(earlier, v), earlier, v);
    }
    const double norm = Norm(v);
    for (double& e : v) e /= norm;
    p.push_back(v);
  }
  return p;
}

// IDR(s) as in van Gijzen and Sonneveld 2011, figure 2: relative residuals of each product.
Vector TextbookIdr(const oracle::Dense& a, const Vector& b, const oracle::Apply& m, int s,
                   size_t steps) {
  const size_t n = b.size();
  const std::vector<Vector> p = Shadows(n, s);
  std::vector<Vector> u(s, Vector(n, 0.0)), g(s, Vector(n, 0.0));
  oracle::Dense small = oracle::Identity(s);
  Vector r = b, residuals{1};
  double omega = 1;
  const auto note = [&] { residuals.push_back(Norm(r) / Norm(b)); };
  while (residuals.size() <= steps) {
    Vector f(s);
    for (int i = 0; i < s; ++i) f[i] = Dot(p[i], r);
    for (int k = 0; k < s; ++k) {
      Vector c(s, 0.0), v = r, step(n, 0.0);
      for (int i = k; i < s; ++i) {
        c[i] = f[i];
        for (int j = k; j < i; ++j) c[i] -= small(i, j) * c[j];
        c[i] /= small(i, i);
      }
      for (int i = k; i < s; ++i) Add(-c[i], g[i], v);
      if (m) v = m(v);
      Add(omega, v, step);
      for (int i = k; i < s; ++i) Add(c[i], u[i], step);
      u[k] = step;
      g[k] = oracle::Multiply(a, u[k]);
      for (int i = 0; i < k; ++i) {
        const double alpha = Dot(p[i], g[k]) / small(i, i);
        Add(-alpha, g[i], g[k]);
        Add(-alpha, u[i], u[k]);
      }
      for (int i = k; i < s; ++i) small(i, k) = Dot(p[i], g[k]);
      const double beta = f[k] / small(k, k);
      Add(-beta, g[k], r);
      note();
      for (int i = k + 1; i < s; ++i) f[i] -= beta * small(i, k);
    }
    const Vector v = m ? m(r) : r;
    const Vector t = oracle::Multiply(a, v);
    const double cosine = Dot(t, r) / (Norm(t) * Norm(r));
    omega = Dot(t, r) / Dot(t, t);
    if (std::abs(cosine) < 0.7) omega *= 0.7 / std::abs(cosine);
    Add(-omega, t, r);
    note();
  }
  return residuals;
}

TEST(Idr, AMultipleOfTheIdentityTakesOneStep) {
  const CscMatrix a = Diagonal({4, 4, 4});
  const Vector b{4, 8, -4};
  const SolveResult r = MustSolve(a, nullptr, b, Idr());
  ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].iterations, 1);
  EXPECT_DOUBLE_EQ(r.x[0], 1);
  EXPECT_DOUBLE_EQ(r.x[1], 2);
  EXPECT_DOUBLE_EQ(r.x[2], -1);
}

TEST(Idr, FollowsTheTextbookProductByProduct) {
  for (const auto& [jacobi, s] : {std::pair{false, 4}, {true, 4}, {false, 1}, {true, 7}}) {
    const CscMatrix a = oracle::ConvectionDiffusion(9, 9, 1.0);
    const Vector b = RandomVector(a.n_cols, 4);
    Vector inverse = DiagonalOf(a);
    for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = (1 + 0.1 * (i % 5)) / inverse[i];
    const DiagonalOperator m(inverse);
    const oracle::Apply apply = [&](const Vector& v) {
      Vector y(v);
      for (size_t i = 0; i < y.size(); ++i) y[i] *= inverse[i];
      return y;
    };
    const Vector expected =
        TextbookIdr(oracle::ToDense(a), b, jacobi ? apply : oracle::Apply{}, s, 25);
    SolveOptions options = Idr(1e-8);
    options.shadow_vectors = s;
    const SolveResult r = MustSolve(a, jacobi ? &m : nullptr, b, options);
    ASSERT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
    ASSERT_GT(r.rhs[0].history.size(), 20u);
    for (size_t k = 0; k <= 20; ++k) {
      EXPECT_NEAR(r.rhs[0].history[k].relative_residual, expected[k], 1e-6 * expected[k])
          << k << ", jacobi " << jacobi << ", s " << s;
    }
    ExpectHonest(a, b, Idr(1e-8), r, "convection-diffusion");
  }
}

TEST(Idr, EndsAfterNAndAnSthOfNProducts) {
  for (const auto& [n, s] : {std::pair{4, 4}, {8, 4}, {12, 4}, {6, 1}, {8, 2}, {12, 12}, {5, 16}}) {
    const CscMatrix a = oracle::RandomIrregular(n, 4, 3);
    const Vector b = RandomVector(n, 5);
    SolveOptions options = Idr(1e-8);
    options.shadow_vectors = s;
    const SolveResult r = MustSolve(a, nullptr, b, options);
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
    EXPECT_LE(r.rhs[0].iterations, n + n / std::min(n, s)) << n << ", s " << s;
    ExpectHonest(a, b, Idr(1e-9), r, "small");
  }
}

TEST(Idr, SkewMatricesAreNoBreakdown) {
  // tᵀr = 0 for every r: the omega of least residual is zero, where BiCGSTAB ends.
  const CscMatrix two = Rows({{0, 1}, {-1, 0}});
  const Vector b{1, 0};
  const SolveResult r = MustSolve(two, nullptr, b, Idr());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << r.rhs[0].detail;
  EXPECT_LE(r.rhs[0].iterations, 3);
  oracle::Dense dense(40, 40);
  for (int64_t i = 0; i + 1 < 40; ++i) {
    dense(i, i + 1) = 1 + 0.1 * static_cast<double>(i % 3);
    dense(i + 1, i) = -dense(i, i + 1);
  }
  const CscMatrix a = oracle::FromDense(dense);
  const Vector c = Product(a, RandomVector(40, 7));
  const SolveResult s = MustSolve(a, nullptr, c, Idr(1e-8));
  EXPECT_EQ(s.rhs[0].outcome, Outcome::kConverged) << s.rhs[0].detail;
  ExpectHonest(a, c, Idr(1e-8), s, "skew");
}

TEST(Idr, RunsRepeat) {
  const CscMatrix a = oracle::ConvectionDiffusion(20, 20, 4.0);
  const Vector b = RandomVector(a.n_cols, 3);
  const SolveResult first = MustSolve(a, nullptr, b, Idr());
  const SolveResult second = MustSolve(a, nullptr, b, Idr());
  EXPECT_EQ(first.x, second.x);
  EXPECT_EQ(first.rhs[0].iterations, second.rhs[0].iterations);
}

TEST(Idr, NilpotentMatrixBreaksDownHonestly) {
  const CscMatrix a = Rows({{0, 1}, {0, 0}});
  const Vector b{1, 0};  // solved by (0, 1), which no Krylov space of b holds
  const SolveResult r = MustSolve(a, nullptr, b, Idr());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("use GMRES"));
  ExpectHonest(a, b, Idr(), r, "nilpotent");
}

TEST(Idr, ZeroPreconditionerBreaksDown) {
  const Vector zero{0, 0};
  const DiagonalOperator m(zero);
  const CscMatrix a = Diagonal({1, 2});
  const Vector b{1, 1};
  const SolveResult r = MustSolve(a, &m, b, Idr());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kBreakdown) << r.rhs[0].detail;
  EXPECT_EQ(r.rhs[0].true_relative_residual, 1);
}

TEST(Idr, NonFiniteValuesAreNoticedWhereTheyArise) {
  const CscMatrix a = Diagonal({1, 2});
  const Vector b{1, 1};
  const Vector infinite{1, std::numeric_limits<double>::infinity()};
  const DiagonalOperator m(infinite);
  const SolveResult r = MustSolve(a, &m, b, Idr());
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kNonFinite);
  EXPECT_THAT(r.rhs[0].detail, HasSubstr("A M r is not finite"));
  ExpectHonest(a, b, Idr(), r, "infinite M");
  const CscMatrix huge = Diagonal({1e308, 1.7e308});
  const Vector c{1e3, 1e3};
  const SolveResult over = MustSolve(huge, nullptr, c, Idr());
  EXPECT_EQ(over.rhs[0].outcome, Outcome::kNonFinite) << over.rhs[0].detail;
  ExpectHonest(huge, c, Idr(), over, "overflow");
}

// The identity, but for one call that multiplies by `factor`.
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

TEST(Idr, ARunThatBlowsUpGoesOnFromItsBestIterate) {
  const CscMatrix a = oracle::RandomSpd(40, 4, 2);
  const CsrOperator op = CsrOperator::FromColumns(a);
  const Vector b = RandomVector(40, 5);
  for (const auto& [call, factor] :
       {std::pair{6, std::numeric_limits<double>::infinity()}, std::pair{9, 1e-20}}) {
    const Glitch m(call, factor);
    const auto r = Solve(op, &m, b, {}, Idr(1e-9), {});
    ASSERT_TRUE(r.ok());
    EXPECT_GT(m.calls(), call + 2) << "the glitch was not met";
    EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged) << call << ": " << r->rhs[0].detail;
    ExpectHonest(a, b, Idr(1e-9), *r, "glitch");
  }
}

TEST(Idr, ReturnsTheBestIterateOfAnErraticRun) {
  const CscMatrix a = oracle::ConvectionDiffusion(20, 20, 4.0);
  const Vector b = RandomVector(a.n_cols, 3);
  int behind = 0;
  for (int64_t k = 1; k <= 60; ++k) {
    SolveOptions options = Idr(1e-14);
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
