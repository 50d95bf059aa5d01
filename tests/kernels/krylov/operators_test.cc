#include "kernels/krylov/operators.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

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

// Rows of a node are multiplied together, of which 5 and 7 leave a rest.
TEST(Operators, OfNodesEqualTheDenseOnesForAnyNumberOfThreads) {
  for (int size = 2; size <= 7; ++size) {
    SCOPED_TRACE(size);
    const CscMatrix rows = OfNodes(oracle::ConvectionDiffusion(90, 40, 1.5).pattern(), size, 3);
    const Vector x = RandomVector(rows.n_cols, 2);
    Vector expected(x.size(), 0.0);
    ForEntries(rows, [&](int64_t j, int64_t i, double v) {
      expected[static_cast<size_t>(i)] += v * x[static_cast<size_t>(j)];
    });
    const CsrOperator op = CsrOperator::FromRows(rows);
    const Vector y = Apply(op, x, 1);
    const Vector in_floats = Apply(CsrFloatOperator(op, 2), x, 2);
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], expected[i], 1e-12) << i;
      ASSERT_NEAR(in_floats[i], expected[i], 1e-4) << i;
    }
    for (const int threads : {2, 3, 5}) {
      EXPECT_EQ(Apply(op, x, threads), y) << threads;
      const CsrOperator laid_out = CsrOperator::FromRows(rows, threads);
      EXPECT_EQ(laid_out.host_bytes(), op.host_bytes()) << threads;
      EXPECT_EQ(Apply(laid_out, x, 1), y) << threads;
    }
  }
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

// Row i of a lower triangular G as column i, every second entry of it missing.
CscMatrix LowerRows(int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix g;
  g.n_rows = g.n_cols = n;
  g.col_ptr.push_back(0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      if (j != i && random.Below(2) == 0) continue;
      g.row_idx.push_back(static_cast<int32_t>(j));
      g.values.push_back(random.Uniform(-1, 1) + (i == j ? 2 : 0));
    }
    g.col_ptr.push_back(g.nnz());
  }
  return g;
}

FactoredOperator Factored(const CscView& g_rows, int threads = 1) {
  return *FactoredOperator::FromRows(g_rows,
                                     Context{.stop = {}, .progress = nullptr, .threads = threads});
}

TEST(Factored, TwoByTwoByHand) {
  // G = (2 0; 1 3): G x = (2, 1 + 6), Gᵀ of that (4 + 7, 21).
  CscMatrix g;
  g.n_rows = g.n_cols = 2;
  g.col_ptr = {0, 1, 3};
  g.row_idx = {0, 0, 1};
  g.values = {2, 1, 3};
  EXPECT_EQ(Apply(Factored(g), {1, 2}, 1), (Vector{11, 21}));
}

TEST(Factored, EqualsTheDenseProducts) {
  for (const int64_t n : {1, 2, 31, 70}) {
    const CscMatrix g_rows = LowerRows(n, 3);
    const oracle::Dense transposed = oracle::ToDense(static_cast<CscView>(g_rows));
    const Vector x = RandomVector(n, 4);
    const Vector expected =
        oracle::Multiply(transposed, oracle::Multiply(oracle::Transpose(transposed), x));
    const FactoredOperator op = Factored(g_rows);
    const Vector y = Apply(op, x, 1);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(y[i], expected[i], 1e-12 * static_cast<double>(n));
    }
    EXPECT_EQ(op.bytes_per_apply(), 2 * (12 * g_rows.nnz() + 24 * n));
    EXPECT_GE(op.host_bytes(), g_rows.bytes());
  }
}

TEST(Factored, ThreadsDoNotChangeABit) {
  const CscMatrix g_rows = LowerRows(700, 5);
  const FactoredOperator op = Factored(g_rows, 2);
  const Vector x = RandomVector(700, 2);
  const Vector serial = Apply(op, x, 1);
  for (const int threads : {2, 3, 5}) EXPECT_EQ(Apply(op, x, threads), serial) << threads;
}

TEST(Factored, AppliesFromSeveralThreadsAtOnce) {
  const CscMatrix g_rows = LowerRows(300, 6);
  const FactoredOperator op = Factored(g_rows);
  const Vector x = RandomVector(300, 2), expected = Apply(op, x, 1);
  std::vector<std::thread> threads;
  std::vector<Vector> results(4);
  for (Vector& result : results) {
    threads.emplace_back([&] {
      for (int run = 0; run < 20; ++run) result = Apply(op, x, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Vector& result : results) EXPECT_EQ(result, expected);
}

TEST(Factored, StopsWhileItTransposes) {
  StopSource source;
  source.Request(StopReason::kCancelled);
  const auto op = FactoredOperator::FromRows(
      LowerRows(40, 1), Context{.stop = source.token(), .progress = nullptr, .threads = 1});
  ASSERT_FALSE(op.ok());
  EXPECT_EQ(op.status().reason(), "CANCELLED");
}

// G = D^(−1/2): M is Jacobi's.
TEST(Factored, ADiagonalGIsJacobi) {
  const CscMatrix a = oracle::RandomSpd(300, 6, 4);
  const Vector d = DiagonalOf(a);
  CscMatrix g;
  g.n_rows = g.n_cols = a.n_cols;
  g.col_ptr.push_back(0);
  Vector inverse;
  for (size_t i = 0; i < d.size(); ++i) {
    g.row_idx.push_back(static_cast<int32_t>(i));
    g.values.push_back(1 / std::sqrt(d[i]));
    g.col_ptr.push_back(g.nnz());
    inverse.push_back(1 / d[i]);
  }
  const Vector b = RandomVector(a.n_cols, 3);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-10};
  const auto op = CsrOperator::FromColumns(a);
  const FactoredOperator factored = Factored(g);
  const auto by_factor = Solve(op, &factored, b, {}, options, {});
  const DiagonalOperator jacobi(inverse);
  const auto by_jacobi = Solve(op, &jacobi, b, {}, options, {});
  ASSERT_TRUE(by_factor.ok() && by_jacobi.ok());
  EXPECT_EQ(by_factor->rhs[0].outcome, Outcome::kConverged);
  ASSERT_EQ(by_factor->rhs[0].history.size(), by_jacobi->rhs[0].history.size());
  for (size_t t = 0; t < by_jacobi->rhs[0].history.size(); ++t) {
    const double expected = by_jacobi->rhs[0].history[t].relative_residual;
    EXPECT_NEAR(by_factor->rhs[0].history[t].relative_residual, expected, 1e-6 * expected) << t;
  }
}

TEST(Factored, CgTakesTheIterationsOfADenseOne) {
  const CscMatrix a = oracle::Laplacian2d(12, 11);
  // Rows of G on the pattern of the lower triangle, by hand: (−a_ij / a_jj, 1) is close enough.
  CscMatrix g;
  g.n_rows = g.n_cols = a.n_cols;
  g.col_ptr.push_back(0);
  for (int64_t i = 0; i < a.n_cols; ++i) {
    const auto rows = static_cast<CscView>(a).column(i);
    const auto values = static_cast<CscView>(a).column_values(i);
    for (size_t p = 0; p < rows.size() && rows[p] <= i; ++p) {
      g.row_idx.push_back(rows[p]);
      g.values.push_back(rows[p] == i ? 0.5 : -values[p] / 8);
    }
    g.col_ptr.push_back(g.nnz());
  }
  const oracle::Dense transposed = oracle::ToDense(static_cast<CscView>(g));
  const auto apply = [&](const Vector& x) {
    return oracle::Multiply(transposed, oracle::Multiply(oracle::Transpose(transposed), x));
  };
  const Vector b = RandomVector(a.n_cols, 3);
  const oracle::KrylovRun dense =
      oracle::Cg(oracle::ToDense(static_cast<CscView>(a)), b, apply, 1e-9, 1000);
  const FactoredOperator m = Factored(g);
  const auto solved = Solve(CsrOperator::FromColumns(a), &m, b, {},
                            SolveOptions{.method = Method::kCg, .rtol = 1e-9}, {});
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  EXPECT_NEAR(static_cast<double>(solved->rhs[0].iterations),
              static_cast<double>(dense.residuals.size()) - 1, 1.0);
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
