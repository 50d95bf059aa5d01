#include "kernels/dense/lu_inverse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/dense/inverse.h"
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

// ‖A X − E‖ and ‖X A − E‖ column by column, relative to the condition.
void ExpectInverse(const oracle::Dense& a, const oracle::Dense& x, double condition) {
  const int64_t n = a.rows;
  for (const oracle::Dense& product : {oracle::Multiply(a, x), oracle::Multiply(x, a)}) {
    double worst = 0;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) {
        worst = std::max(worst, std::abs(product(i, j) - (i == j ? 1 : 0)));
      }
    }
    EXPECT_LE(worst, 4 * kEps * condition) << n;
  }
}

TEST(InvertByLuTest, TwoByTwoByHand) {
  // As InvertInPlace: scaled to [1 7/4; 1/2 3/2], whose inverse is [12/5 -14/5; -4/5 8/5].
  std::vector<double> a = {4, 2, 7, 6};
  const auto lu = InvertByLu(2, a.data(), {});
  ASSERT_TRUE(lu.ok());
  EXPECT_NEAR(lu->condition, 3.25 * 4.4, 1e-12);
  EXPECT_NEAR(lu->growth, 1, 1e-15);
  const double expected[] = {0.6, -0.2, -0.7, 0.4};
  for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(a[k], expected[k], 4 * kEps) << k;
}

TEST(InvertByLuTest, OneByOneIsTheReciprocal) {
  for (const double v : {3.0, -7.0, 1e-300, 1e300}) {
    double a = v;
    const auto lu = InvertByLu(1, &a, {});
    ASSERT_TRUE(lu.ok());
    EXPECT_DOUBLE_EQ(lu->condition, 1);
    EXPECT_DOUBLE_EQ(a, 1 / v);
  }
}

TEST(InvertByLuTest, APermutationIsExact) {
  const int64_t n = 150;
  oracle::Dense a(n, n);
  for (int64_t j = 0; j < n; ++j) a((67 * j + 5) % n, j) = 4;
  oracle::Dense x = a;
  ASSERT_TRUE(InvertByLu(n, x.a.data(), {}).ok());
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(x(i, j), a(j, i) / 16);
  }
}

TEST(InvertByLuTest, EqualsTheOracleAndSmallInverses) {
  // Around whole vectors, panels and strips.
  for (const int64_t n : {1, 2, 3, 7, 8, 9, 31, 32, 63, 64, 65, 72, 127, 128, 129, 200}) {
    const oracle::Dense a = RandomDense(n, static_cast<uint64_t>(n));
    oracle::Dense x = a;
    const auto lu = InvertByLu(n, x.a.data(), Context{.threads = 2});
    ASSERT_TRUE(lu.ok());
    EXPECT_GE(lu->growth, 0.5);
    ExpectInverse(a, x, lu->condition);
    for (int64_t k = 0; k < n; k += 1 + n / 5) {
      oracle::Vector e(static_cast<size_t>(n), 0.0);
      e[static_cast<size_t>(k)] = 1;
      const auto expected = oracle::LuSolve(a, e);
      ASSERT_TRUE(expected.has_value());
      const double norm = oracle::Norm(*expected);
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NEAR(x(i, k), (*expected)[static_cast<size_t>(i)], 10 * lu->condition * kEps * norm)
            << n;
      }
    }
    if (n <= kMaxInverse) {
      oracle::Dense small = a;
      const double kappa = InvertInPlace(n, small.a.data());
      EXPECT_NEAR(lu->condition, kappa, 1e-9 * kappa);
    }
  }
}

TEST(InvertByLuTest, LargerOnesByTheirResiduals) {
  const int64_t n = 500;
  const oracle::Dense a = RandomDense(n, 11);
  oracle::Dense x = a;
  const auto lu = InvertByLu(n, x.a.data(), {});
  ASSERT_TRUE(lu.ok());
  EXPECT_LT(lu->growth, 100);
  ExpectInverse(a, x, lu->condition);
}

TEST(InvertByLuTest, ASymmetricOneStaysSymmetric) {
  const int64_t n = 130;
  oracle::Dense a = RandomDense(n, 3);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < j; ++i) a(i, j) = a(j, i);
  }
  oracle::Dense x = a;
  const auto lu = InvertByLu(n, x.a.data(), Context{.threads = 3});
  ASSERT_TRUE(lu.ok());
  ExpectInverse(a, x, lu->condition);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < j; ++i) EXPECT_EQ(x(i, j), x(j, i));
  }
}

TEST(InvertByLuTest, UnitsDoNotMatter) {
  const int64_t n = 90;
  const oracle::Dense a = RandomDense(n, 5);
  oracle::Dense plain = a, scaled = a;
  const auto row = [](int64_t i) { return static_cast<int>(13 * i * i % 400 - 200); };
  const auto column = [](int64_t j) { return static_cast<int>(97 * j % 400 - 200); };
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) scaled(i, j) = std::ldexp(a(i, j), row(i) + column(j));
  }
  const auto lu = InvertByLu(n, plain.a.data(), {});
  const auto other = InvertByLu(n, scaled.a.data(), {});
  ASSERT_TRUE(lu.ok() && other.ok());
  EXPECT_LT(other->condition, 100 * lu->condition);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(std::ldexp(scaled(i, j), column(i) + row(j)), plain(i, j),
                  1e-10 * oracle::Frobenius(plain));
    }
  }
}

TEST(InvertByLuTest, SingularOnesAreSaidAndLeftAsTheyWere) {
  const auto pivot = [](oracle::Dense a) {
    const oracle::Dense before = a;
    const auto lu = InvertByLu(a.rows, a.a.data(), {});
    EXPECT_EQ(lu.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(lu.status().reason(), "SINGULAR_MATRIX");
    EXPECT_EQ(lu.status().field(), "pivot");
    EXPECT_EQ(a.a, before.a);
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

TEST(InvertByLuTest, GrowthAndConditionTell) {
  // Hilbert's matrix: 10^13 at n = 10; and Wilkinson's, where partial pivoting grows as 2^(n - 1).
  oracle::Dense hilbert(10, 10);
  for (int64_t j = 0; j < 10; ++j) {
    for (int64_t i = 0; i < 10; ++i) hilbert(i, j) = 1.0 / static_cast<double>(i + j + 1);
  }
  EXPECT_GT(InvertByLu(10, hilbert.a.data(), {})->condition, 1e11);
  const int64_t n = 40;
  oracle::Dense wilkinson(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      wilkinson(i, j) = i == j || j == n - 1 ? 1 : i > j ? -1 : 0;
    }
  }
  EXPECT_DOUBLE_EQ(InvertByLu(n, wilkinson.a.data(), {})->growth, std::exp2(n - 1));
}

TEST(InvertByLuTest, ThreadsDoNotChangeABit) {
  const int64_t n = 333;
  const oracle::Dense a = RandomDense(n, 9);
  oracle::Dense one = a;
  const auto lu = InvertByLu(n, one.a.data(), Context{.threads = 1});
  for (const int threads : {2, 5}) {
    oracle::Dense many = a;
    const auto other = InvertByLu(n, many.a.data(), Context{.threads = threads});
    EXPECT_EQ(many.a, one.a);
    EXPECT_EQ(other->condition, lu->condition);
    EXPECT_EQ(other->growth, lu->growth);
  }
}

TEST(InvertByLuTest, Stops) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  oracle::Dense a = RandomDense(200, 1);
  EXPECT_EQ(InvertByLu(200, a.a.data(), Context{.stop = cancel.token()}).status().code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
