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

bool Symmetric(const CscView& a, int threads = 1) {
  const auto symmetric =
      IsExactlySymmetric(a, Context{.stop = {}, .progress = nullptr, .threads = threads});
  EXPECT_TRUE(symmetric.ok());
  return symmetric.ok() && *symmetric;
}

TEST(Operators, ProductsEqualTheDenseOnes) {
  for (const oracle::NamedMatrix& named : oracle::Zoo(5)) {
    const Vector x = RandomVector(named.a.n_cols, 9);
    const Vector y = Apply(CsrOperator::FromColumns(named.a), x, 1);
    const Vector by_columns = Apply(ColumnOperator(named.a), x, 1);
    const Vector expected = Product(named.a, x);
    double scale = 0;
    for (const double v : expected) scale = std::max(scale, std::abs(v));
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(y[i], expected[i], 1e-13 * (scale + 1)) << named.name << " row " << i;
      EXPECT_NEAR(by_columns[i], expected[i], 1e-13 * (scale + 1)) << named.name << " row " << i;
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
  EXPECT_TRUE(Symmetric(symmetric));
  const CsrOperator borrowed = CsrOperator::FromColumns(symmetric);
  EXPECT_TRUE(borrowed.borrows());
  EXPECT_LT(borrowed.host_bytes(), 1024);

  const CscMatrix upwind = oracle::ConvectionDiffusion(9, 7, 1.0);
  EXPECT_FALSE(Symmetric(upwind));
  const CsrOperator owned = CsrOperator::FromColumns(upwind);
  EXPECT_FALSE(owned.borrows());
  EXPECT_GE(owned.host_bytes(), upwind.bytes());
}

TEST(Operators, SymmetryIsAskedOfEveryEntry) {
  EXPECT_TRUE(Symmetric(Rows({{1, 2, 0}, {2, 0, 5}, {0, 5, 3}})));
  EXPECT_FALSE(Symmetric(Rows({{1, 2, 0}, {2, 0, 5}, {0, 5.0000000000000009, 3}})));
  EXPECT_FALSE(Symmetric(Rows({{1, 2, 0}, {2, 0, 0}, {0, 5, 3}})));  // stored below only
  EXPECT_FALSE(Symmetric(Rows({{1, 2, 7}, {2, 0, 5}, {0, 5, 3}})));  // stored above only
  EXPECT_FALSE(Symmetric(CyclicShift(3)));
  EXPECT_TRUE(Symmetric(CyclicShift(2)));
}

TEST(Operators, SymmetryOfALargeMatrixIsTheSameOnEveryThread) {
  CscMatrix a = oracle::Laplacian2d(100, 90);  // several batches of columns
  for (const int threads : {1, 3}) EXPECT_TRUE(Symmetric(a, threads)) << threads;
  a.values.back() *= 2;  // the diagonal is its own mirror
  for (const int threads : {1, 3}) EXPECT_TRUE(Symmetric(a, threads)) << threads;
  a.values[a.values.size() - 2] *= 2;  // the last entry above the diagonal
  for (const int threads : {1, 3}) EXPECT_FALSE(Symmetric(a, threads)) << threads;
}

TEST(Operators, RowsAreTheSameFromAnyNumberOfThreads) {
  const CscMatrix a = oracle::ConvectionDiffusion(300, 250, 1.5);  // several parts
  const Vector x = RandomVector(a.n_cols, 2);
  const Vector serial = Apply(CsrOperator::FromColumns(a), x, 1);
  for (const int threads : {2, 5}) {
    const auto op =
        CsrOperator::FromColumns(a, Context{.stop = {}, .progress = nullptr, .threads = threads});
    ASSERT_TRUE(op.ok());
    EXPECT_EQ(Apply(*op, x, 1), serial) << threads;
  }
}

TEST(Operators, RowsStopWhenTold) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const Context context{.stop = cancel.token(), .progress = nullptr, .threads = 2};
  const CscMatrix a = oracle::ConvectionDiffusion(9, 7, 1.0);
  EXPECT_EQ(CsrOperator::FromColumns(a, context).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(IsExactlySymmetric(a, context).status().code(), StatusCode::kCancelled);
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
  EXPECT_EQ(ColumnOperator(Rows({{1, 2}, {0, 3}})).bytes_per_apply(), 3 * 12 + 2 * 24);
  const Vector d{1, 2, 3};
  EXPECT_EQ(DiagonalOperator(d).bytes_per_apply(), 72);
}

TEST(Operators, ValuesInFp32AreRoundedAndNothingElse) {
  CscMatrix a = oracle::RandomIrregular(3000, 30, 5);  // several blocks
  const CsrOperator rows = CsrOperator::FromColumns(a);
  const Vector x = RandomVector(a.n_cols, 3);
  const CsrFloatOperator stored(rows, 3);
  for (double& value : a.values) value = static_cast<float>(value);
  const Vector expected = Apply(CsrOperator::FromColumns(a), x, 1);
  EXPECT_NE(Apply(rows, x, 1), expected);
  for (const int threads : {1, 3}) EXPECT_EQ(Apply(stored, x, threads), expected) << threads;
  EXPECT_EQ(stored.bytes_per_apply(), rows.bytes_per_apply() - 4 * a.nnz());
}

TEST(Operators, WhatFp32CannotHoldIsFound) {
  const auto check = [](const CscMatrix& m) { return CheckFitsFloat(m, "column", 2); };
  EXPECT_TRUE(check(Rows({{1e38, 0}, {1e-60, 1e-37}})).ok()) << "one of a column may vanish";
  EXPECT_TRUE(check(Rows({{0, 0}, {0, 1}})).ok()) << "there may be nothing";
  const Status over = check(Rows({{1, 1e-60}, {2, -4e38}}));
  EXPECT_EQ(over.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(over.reason(), "FLOAT32_OVERFLOW");
  EXPECT_EQ(over.index(), 1);
  EXPECT_EQ(over.message().rfind("column 1 of M has values beyond", 0), 0u) << over.message();
  const Status under = check(Rows({{1e-39, 1}, {-1e-40, 4e38}}));
  EXPECT_EQ(under.reason(), "FLOAT32_UNDERFLOW");
  EXPECT_EQ(under.index(), 0) << "the first of both";
}

TEST(Operators, DiagonalMultipliesEntryByEntry) {
  const Vector d{2, -3, 0.5};
  EXPECT_EQ(Apply(DiagonalOperator(d), {1, 2, 4}, 1), (Vector{2, -6, 2}));
  const Vector large = RandomVector(100000, 6);
  EXPECT_EQ(Apply(DiagonalOperator(large), large, 1), Apply(DiagonalOperator(large), large, 3));
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
