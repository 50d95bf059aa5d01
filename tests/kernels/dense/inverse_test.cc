#include "kernels/dense/inverse.h"

#include <gtest/gtest.h>

#include <cmath>
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

oracle::Dense RandomGram(int64_t n, uint64_t seed) {
  const oracle::Dense b = RandomDense(n, seed);
  oracle::Dense a = oracle::Multiply(oracle::Transpose(b), b);
  for (int64_t i = 0; i < n; ++i) a(i, i) += 0.1;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < j; ++i) a(i, j) = a(j, i);
  }
  return a;
}

void ExpectSymmetric(const oracle::Dense& a) {
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < j; ++i) EXPECT_EQ(a(i, j), a(j, i)) << i << ' ' << j;
  }
}

TEST(InvertInPlace, TwoByTwoByHand) {
  // [4 7; 2 6] has determinant 10; rows scaled by 1/4, then the second column by 1 (both 1 to 2):
  // [1 7/4; 1/2 3/2], whose inverse is [12/5 -14/5; -4/5 8/5]: 13/4 times 22/5.
  std::vector<double> a = {4, 2, 7, 6};
  EXPECT_NEAR(InvertInPlace(2, a.data()), 3.25 * 4.4, 1e-12);
  const double expected[] = {0.6, -0.2, -0.7, 0.4};
  for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(a[k], expected[k], 4 * kEps) << k;
}

TEST(InvertInPlace, SymmetricDefiniteAndIndefiniteByHand) {
  std::vector<double> definite = {2, 1, 1, 2};
  EXPECT_LT(InvertInPlace(2, definite.data()), 10);
  const double thirds[] = {2.0 / 3, -1.0 / 3, -1.0 / 3, 2.0 / 3};
  for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(definite[k], thirds[k], 2 * kEps);
  std::vector<double> indefinite = {0, 4, 4, 0};  // no pivot on the diagonal
  EXPECT_EQ(InvertInPlace(2, indefinite.data()), 1);
  EXPECT_EQ(indefinite, (std::vector<double>{0, 0.25, 0.25, 0}));
  std::vector<double> by_lu = {1, 2, 2, 1};  // a positive diagonal, and yet
  EXPECT_LT(InvertInPlace(2, by_lu.data()), 10);
  const double own[] = {-1.0 / 3, 2.0 / 3, 2.0 / 3, -1.0 / 3};
  for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(by_lu[k], own[k], 2 * kEps);
}

TEST(InvertInPlace, OneByOneIsTheReciprocal) {
  for (const double v : {3.0, -7.0, 1e-300, 0.1, 1e300}) {
    double a = v;
    EXPECT_DOUBLE_EQ(InvertInPlace(1, &a), 1) << v;
    EXPECT_EQ(a, 1 / v);
  }
}

TEST(InvertInPlace, EqualsTheOracle) {
  for (int64_t n = 1; n <= kMaxInverse; ++n) {
    for (const bool gram : {false, true}) {
      const oracle::Dense a =
          gram ? RandomGram(n, static_cast<uint64_t>(n)) : RandomDense(n, static_cast<uint64_t>(n));
      oracle::Dense inverse = a;
      const double kappa = InvertInPlace(n, inverse.a.data());
      ASSERT_TRUE(std::isfinite(kappa));
      for (int64_t k = 0; k < n; ++k) {
        oracle::Vector e(static_cast<size_t>(n), 0.0);
        e[static_cast<size_t>(k)] = 1;
        const auto expected = oracle::LuSolve(a, e);
        ASSERT_TRUE(expected.has_value());
        const double norm = oracle::Norm(*expected);
        for (int64_t i = 0; i < n; ++i) {
          EXPECT_NEAR(inverse(i, k), (*expected)[static_cast<size_t>(i)], 10 * kappa * kEps * norm)
              << n << ' ' << gram;
        }
      }
      if (gram) ExpectSymmetric(inverse);
    }
  }
}

TEST(InvertInPlace, ASymmetricIndefiniteOneStaysSymmetric) {
  for (const int64_t n : {2, 3, 9, 32}) {
    oracle::Dense a = RandomDense(n, 77);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < j; ++i) a(i, j) = a(j, i);
    }
    ASSERT_LT(InvertInPlace(n, a.a.data()), 1e8);
    ExpectSymmetric(a);
  }
}

TEST(InvertInPlace, UnitsDoNotMatter) {
  // Rows and columns scaled over 200 decades: the same digits, the same condition number.
  const int64_t n = 7;
  for (const bool gram : {false, true}) {
    const oracle::Dense a = gram ? RandomGram(n, 3) : RandomDense(n, 3);
    oracle::Dense plain = a, scaled = a;
    const auto row = [&](int64_t i) { return static_cast<int>(gram ? 40 * i : 13 * i * i % 300); };
    const auto column = [&](int64_t j) { return static_cast<int>(gram ? 40 * j : -97 * j); };
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) scaled(i, j) = std::ldexp(a(i, j), row(i) + column(j));
    }
    const double kappa = InvertInPlace(n, plain.a.data());
    EXPECT_LT(kappa, 1e5);
    EXPECT_LT(InvertInPlace(n, scaled.a.data()), 100 * kappa);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NEAR(std::ldexp(scaled(i, j), column(i) + row(j)), plain(i, j),
                    1e-10 * oracle::Frobenius(plain));
      }
    }
  }
}

TEST(InvertInPlace, SingularOnesAreSaid) {
  std::vector<double> zero_row = {1, 0, 2, 0};
  EXPECT_EQ(InvertInPlace(2, zero_row.data()), std::numeric_limits<double>::infinity());
  std::vector<double> zero_column = {0, 0, 2, 1};
  EXPECT_EQ(InvertInPlace(2, zero_column.data()), std::numeric_limits<double>::infinity());
  std::vector<double> equal = {1, 1, 1, 1};
  EXPECT_EQ(InvertInPlace(2, equal.data()), std::numeric_limits<double>::infinity());
  // Singular but for rounding, and but for the last bit.
  std::vector<double> thirds = {1, 4, 7, 2, 5, 8, 3, 6, 9};
  EXPECT_FALSE(InvertInPlace(3, thirds.data()) < 1 / kEps);
  std::vector<double> nearly = {1, 1, 1, 1 + kEps};
  EXPECT_FALSE(InvertInPlace(2, nearly.data()) < 1 / kEps);
  std::vector<double> zero = {0};
  EXPECT_EQ(InvertInPlace(1, zero.data()), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace spaid::kernels
