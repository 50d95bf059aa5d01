#include "kernels/dense/lu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

oracle::Dense RandomDense(int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  oracle::Dense a(n, n);
  for (double& v : a.a) v = random.Uniform(-1, 1);
  return a;
}

Result<DenseLu> Factor(const oracle::Dense& a, const Context& context = {}) {
  return DenseLu::Factor(
      a.rows, [&](int64_t j, double* column) { std::copy_n(&a.a[a.rows * j], a.rows, column); },
      context);
}

oracle::Vector Solve(const DenseLu& lu, const oracle::Vector& b, int threads = 1) {
  oracle::Vector x(b.size());
  lu.Solve(b, x, threads);
  return x;
}

TEST(DenseLuTest, TwoByTwoByHand) {
  // [4 7; 2 6]: the inverse is [0.6 -0.7; -0.2 0.4].
  const auto lu = Factor(oracle::DenseOfRows({{4, 7}, {2, 6}}));
  ASSERT_TRUE(lu.ok());
  // Scaled to [1 7/4; 1/2 3/2], or by columns besides: nothing grows.
  EXPECT_NEAR(lu->growth(), 1, 1e-15);
  const oracle::Vector x = Solve(*lu, {1, 10});
  EXPECT_NEAR(x[0], -6.4, 1e-14);
  EXPECT_NEAR(x[1], 3.8, 1e-14);
}

TEST(DenseLuTest, OneByOneDivides) {
  for (const double v : {3.0, -7.0, 1e-300, 1e300}) {
    const auto lu = Factor(oracle::DenseOfRows({{v}}));
    ASSERT_TRUE(lu.ok());
    EXPECT_DOUBLE_EQ(Solve(*lu, {1})[0], 1 / v);
  }
}

TEST(DenseLuTest, APermutationIsExact) {
  const int64_t n = 150;
  oracle::Dense a(n, n);
  oracle::Vector b(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    a((67 * j + 5) % n, j) = 4;
    b[static_cast<size_t>((67 * j + 5) % n)] = static_cast<double>(j);
  }
  const auto lu = Factor(a);
  ASSERT_TRUE(lu.ok());
  const oracle::Vector x = Solve(*lu, b);
  for (int64_t j = 0; j < n; ++j) {
    EXPECT_EQ(x[static_cast<size_t>(j)], static_cast<double>(j) / 4);
  }
}

TEST(DenseLuTest, EqualsTheOracle) {
  // Around whole vectors, panels and strips.
  for (const int64_t n : {1, 2, 3, 7, 8, 9, 31, 32, 63, 64, 65, 72, 127, 128, 129, 200}) {
    const oracle::Dense a = RandomDense(n, static_cast<uint64_t>(n));
    const auto lu = Factor(a, Context{.threads = 2});
    ASSERT_TRUE(lu.ok());
    EXPECT_GE(lu->growth(), 0.5);
    oracle::Random random(7);
    oracle::Vector b(static_cast<size_t>(n));
    for (double& v : b) v = random.Uniform(-1, 1);
    const auto expected = oracle::LuSolve(a, b);
    ASSERT_TRUE(expected.has_value());
    const oracle::Vector x = Solve(*lu, b, 2);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(x[i], (*expected)[i], 1e-10 * oracle::Norm(*expected)) << n;
    }
  }
}

// ‖b − A x‖ is some ε ‖A‖ ‖x‖, whatever the condition.
TEST(DenseLuTest, LargerOnesAreBackwardStable) {
  const int64_t n = 1500;  // more rows than one piece of a product has
  oracle::Dense a = RandomDense(n, 11);
  for (int64_t i = 0; i < n; ++i) a(i, 3) = a(i, 2) * (1 + 1e-10 * a(i, 4));
  const auto lu = Factor(a, Context{.threads = 2});
  ASSERT_TRUE(lu.ok());
  EXPECT_LT(lu->growth(), 100);
  const oracle::Vector b(static_cast<size_t>(n), 1.0), x = Solve(*lu, b, 2);
  oracle::Vector r = b;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      r[static_cast<size_t>(i)] -= a(i, j) * x[static_cast<size_t>(j)];
    }
  }
  EXPECT_LE(oracle::Norm(r), 100 * kEps * oracle::Frobenius(a) * oracle::Norm(x));
}

TEST(DenseLuTest, UnitsDoNotMatter) {
  const int64_t n = 90;
  const oracle::Dense a = RandomDense(n, 5);
  oracle::Dense scaled = a;
  const auto row = [](int64_t i) { return static_cast<int>(13 * i * i % 400 - 200); };
  const auto column = [](int64_t j) { return static_cast<int>(97 * j % 400 - 200); };
  oracle::Vector b(static_cast<size_t>(n), 1.0), b_scaled = b;
  for (int64_t j = 0; j < n; ++j) {
    b_scaled[static_cast<size_t>(j)] = std::ldexp(1.0, row(j));
    for (int64_t i = 0; i < n; ++i) scaled(i, j) = std::ldexp(a(i, j), row(i) + column(j));
  }
  const auto lu = Factor(a), other = Factor(scaled);
  ASSERT_TRUE(lu.ok() && other.ok());
  const oracle::Vector x = Solve(*lu, b), y = Solve(*other, b_scaled);
  for (int64_t j = 0; j < n; ++j) {
    EXPECT_NEAR(std::ldexp(y[static_cast<size_t>(j)], column(j)), x[static_cast<size_t>(j)],
                1e-10 * oracle::Norm(x));
  }
}

TEST(DenseLuTest, SingularOnesAreSaid) {
  const auto pivot = [](const oracle::Dense& a) {
    const auto lu = Factor(a);
    EXPECT_EQ(lu.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(lu.status().reason(), "SINGULAR_MATRIX");
    EXPECT_EQ(lu.status().field(), "pivot");
    return lu.status().index();
  };
  EXPECT_EQ(pivot(oracle::Dense(1, 1)), 0);
  EXPECT_EQ(pivot(oracle::Dense(100, 100)), 0);
  EXPECT_EQ(pivot(oracle::DenseOfRows({{1, 2}, {0, 0}})), 1);
  EXPECT_EQ(pivot(oracle::DenseOfRows({{1, 1}, {1, 1}})), 1);
  oracle::Dense empty_column = RandomDense(150, 3);
  for (int64_t i = 0; i < 150; ++i) empty_column(i, 71) = 0;
  EXPECT_EQ(pivot(empty_column), 71);
}

TEST(DenseLuTest, GrowthIsTold) {
  // Wilkinson's matrix, where partial pivoting grows as 2^(n - 1).
  const int64_t n = 40;
  oracle::Dense wilkinson(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      wilkinson(i, j) = i == j || j == n - 1 ? 1 : i > j ? -1 : 0;
    }
  }
  EXPECT_DOUBLE_EQ(Factor(wilkinson)->growth(), std::exp2(n - 1));
}

TEST(DenseLuTest, ThreadsDoNotChangeABit) {
  const int64_t n = 1100;
  const oracle::Dense a = RandomDense(n, 9);
  const oracle::Vector b(static_cast<size_t>(n), 1.0);
  const auto one = Factor(a, Context{.threads = 1});
  const oracle::Vector expected = Solve(*one, b, 1);
  for (const int threads : {2, 5}) {
    const auto many = Factor(a, Context{.threads = threads});
    EXPECT_EQ(Solve(*many, b, threads), expected);
    EXPECT_EQ(many->growth(), one->growth());
  }
}

// A watchdog takes silence for a hang.
TEST(DenseLuTest, ReportsEachPanel) {
  struct Sink : ProgressSink {
    std::vector<int64_t> columns;
    void OnProgress(Stage stage, int64_t done, int64_t total) override {
      EXPECT_EQ(stage, Stage::kBuild);
      EXPECT_EQ(total, 150);
      columns.push_back(done);
    }
    void OnResidual(const ResidualPoint&) override {}
  } sink;
  Context context;
  context.progress = &sink;
  ASSERT_TRUE(Factor(oracle::ToDense(oracle::RandomSpd(150, 5, 1)), context).ok());
  EXPECT_EQ(sink.columns, (std::vector<int64_t>{64, 128, 150}));
}

TEST(DenseLuTest, Stops) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  EXPECT_EQ(Factor(RandomDense(200, 1), Context{.stop = cancel.token()}).status().code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
