#include "kernels/krylov/operators.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

Vector Apply(const LinearOperator& op, const Vector& x, int threads) {
  Vector y(x.size(), std::numeric_limits<double>::quiet_NaN());
  op.Apply(x, y, threads);
  return y;
}

TEST(Operators, ProductsEqualTheDenseOnes) {
  for (const oracle::NamedMatrix& named : oracle::Zoo(5)) {
    const Vector x = RandomVector(named.a.n_cols, 9);
    const Vector y = Apply(CsrOperator::FromColumns(named.a), x, 1);
    const Vector expected = Product(named.a, x);
    double scale = 0;
    for (const double v : expected) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(y[i], expected[i], 1e-13 * (scale + 1)) << named.name << " row " << i;
    }
  }
}

TEST(Operators, ThreadsDoNotChangeABit) {
  const CscMatrix a = oracle::ConvectionDiffusion(300, 200, 1.5);
  const Vector x = RandomVector(a.n_cols, 2);
  const CsrOperator op = CsrOperator::FromColumns(a);
  const Vector serial = Apply(op, x, 1);
  for (const int threads : {2, 3, 5}) EXPECT_EQ(Apply(op, x, threads), serial) << threads;
}

TEST(Operators, SymmetricMatricesAreBorrowedOthersCopied) {
  const CscMatrix symmetric = oracle::Laplacian2d(9, 7);
  EXPECT_TRUE(IsExactlySymmetric(symmetric));
  const CsrOperator borrowed = CsrOperator::FromColumns(symmetric);
  EXPECT_TRUE(borrowed.borrows());
  EXPECT_LT(borrowed.host_bytes(), 1024);

  const CscMatrix upwind = oracle::ConvectionDiffusion(9, 7, 1.0);
  EXPECT_FALSE(IsExactlySymmetric(upwind));
  const CsrOperator owned = CsrOperator::FromColumns(upwind);
  EXPECT_FALSE(owned.borrows());
  EXPECT_GE(owned.host_bytes(), upwind.bytes());
}

TEST(Operators, SymmetryIsAskedOfEveryEntry) {
  EXPECT_TRUE(IsExactlySymmetric(Rows({{1, 2, 0}, {2, 0, 5}, {0, 5, 3}})));
  EXPECT_FALSE(IsExactlySymmetric(Rows({{1, 2, 0}, {2, 0, 5}, {0, 5.0000000000000009, 3}})));
  EXPECT_FALSE(IsExactlySymmetric(Rows({{1, 2, 0}, {2, 0, 0}, {0, 5, 3}})));  // stored below only
  EXPECT_FALSE(IsExactlySymmetric(Rows({{1, 2, 7}, {2, 0, 5}, {0, 5, 3}})));  // stored above only
  EXPECT_FALSE(IsExactlySymmetric(CyclicShift(3)));
  EXPECT_TRUE(IsExactlySymmetric(CyclicShift(2)));
}

TEST(Operators, AMovedOperatorStillMultiplies) {
  const CscMatrix a = oracle::RandomIrregular(40, 4, 3);
  const Vector x = RandomVector(40, 4);
  CsrOperator first = CsrOperator::FromColumns(a);
  const Vector expected = Apply(first, x, 1);
  const CsrOperator second = std::move(first);
  EXPECT_EQ(Apply(second, x, 1), expected);
}

TEST(Operators, EmptyRowsGiveZero) {
  const Vector y = Apply(CsrOperator::FromColumns(Rows({{0, 0}, {0, 3}})), {1, 1}, 1);
  EXPECT_EQ(y, (Vector{0, 3}));
}

TEST(Operators, BytesCountEveryArrayOnce) {
  // 3 entries of 12 bytes, 2 rows of a pointer, an x and a y.
  EXPECT_EQ(CsrOperator::FromColumns(Rows({{1, 2}, {0, 3}})).bytes_per_apply(), 3 * 12 + 2 * 24);
  const Vector d{1, 2, 3};
  EXPECT_EQ(DiagonalOperator(d).bytes_per_apply(), 72);
}

TEST(Operators, DiagonalMultipliesEntryByEntry) {
  const Vector d{2, -3, 0.5};
  EXPECT_EQ(Apply(DiagonalOperator(d), {1, 2, 4}, 1), (Vector{2, -6, 2}));
  const Vector large = RandomVector(100000, 6);
  EXPECT_EQ(Apply(DiagonalOperator(large), large, 1), Apply(DiagonalOperator(large), large, 3));
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
