#include "kernels/dense/cholesky.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dense/simd.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

// A padded copy of a symmetric matrix; what the factorisation must not read is NaN.
struct Padded {
  int64_t n, np, ld;
  AlignedBuffer storage, inverse_storage;
  double* a;
  double* inverse;

  explicit Padded(const oracle::Dense& dense)
      : n(dense.rows), np(PadToLanes(n)), ld(PaddedLeadingDimension(n)) {
    a = storage.Ensure(np * ld);
    inverse = inverse_storage.Ensure(np);
    for (int64_t j = 0; j < np; ++j) {
      for (int64_t i = 0; i < ld; ++i) {
        double& entry = a[j * ld + i];
        if (i / kLanes < j / kLanes || i >= np) {
          entry = std::numeric_limits<double>::quiet_NaN();
        } else if (i < n && j < n) {
          entry = dense(i, j);
        } else {
          entry = i == j ? 1 : 0;
        }
      }
    }
  }
};

oracle::Dense RandomGram(int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  oracle::Dense b(n + 3, n);
  for (double& v : b.a) v = random.Uniform(-1, 1);
  return oracle::Multiply(oracle::Transpose(b), b);
}

TEST(Cholesky, TwoByTwoByHand) {
  // [4 2; 2 10] = L Lᵀ with L = [2 0; 1 3]; scaled pivots 1 and 9/10.
  oracle::Dense dense(2, 2);
  dense.a = {4, 2, 2, 10};
  Padded p(dense);
  double determinant = 0;
  EXPECT_DOUBLE_EQ(CholeskyFactor(p.np, p.ld, p.a, p.inverse, 1e-10, &determinant), 0.9);
  EXPECT_DOUBLE_EQ(determinant, 36.0 / 40);  // of the matrix over that of its diagonal
  EXPECT_DOUBLE_EQ(p.inverse[0], 0.5);
  EXPECT_DOUBLE_EQ(p.inverse[1], 1.0 / 3);
  EXPECT_DOUBLE_EQ(p.a[1], 1);
  AlignedBuffer buffer;
  double* x = buffer.Ensure(8);
  std::fill(x, x + 8, 0.0);
  x[0] = 6;  // [4 2; 2 10] (1, 1) = (6, 12)
  x[1] = 12;
  CholeskySolve(p.np, p.ld, p.a, p.inverse, x);
  EXPECT_DOUBLE_EQ(x[0], 1);
  EXPECT_DOUBLE_EQ(x[1], 1);
}

TEST(Cholesky, SolvesAgreeWithElimination) {
  for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 40, 64, 65, 130}) {
    const oracle::Dense dense = RandomGram(n, static_cast<uint64_t>(n));
    Padded p(dense);
    ASSERT_GT(CholeskyFactor(p.np, p.ld, p.a, p.inverse, 1e-14), 1e-14) << n;
    oracle::Random random(7);
    oracle::Vector b(static_cast<size_t>(n));
    for (double& v : b) v = random.Uniform(-1, 1);
    const oracle::Vector expected = *oracle::LuSolve(dense, b);
    const double size = oracle::Norm(expected);
    AlignedBuffer buffer1, buffer4, buffer8;
    double* x1 = buffer1.Ensure(p.np);
    double* x4 = buffer4.Ensure(p.np * 4);
    double* x8 = buffer8.Ensure(p.np * 8);
    std::fill(x1, x1 + p.np, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      x1[i] = b[static_cast<size_t>(i)];
      for (int w = 0; w < 4; ++w) x4[i * 4 + w] = (w + 1) * b[static_cast<size_t>(i)];
      for (int w = 0; w < 8; ++w) x8[i * 8 + w] = (w + 1) * b[static_cast<size_t>(i)];
    }
    CholeskySolve(p.np, p.ld, p.a, p.inverse, x1);
    CholeskySolve4(n, p.ld, p.a, p.inverse, x4);
    CholeskySolve8(n, p.ld, p.a, p.inverse, x8);
    for (int64_t i = 0; i < n; ++i) {
      const double e = expected[static_cast<size_t>(i)];
      EXPECT_NEAR(x1[i], e, 1e-8 * size) << n;
      for (int w = 0; w < 4; ++w) EXPECT_NEAR(x4[i * 4 + w], (w + 1) * e, 8e-8 * size) << n;
      for (int w = 0; w < 8; ++w) EXPECT_NEAR(x8[i * 8 + w], (w + 1) * e, 8e-8 * size) << n;
    }
  }
}

TEST(Cholesky, SmallestScaledPivotIgnoresColumnScaling) {
  // Columns (1, 0) and (1, ε) scaled by s: the second pivot is s² ε², scaled ε² / (1 + ε²).
  const double eps = 1e-3;
  for (const double s : {1e-6, 1.0, 1e6}) {
    oracle::Dense dense(2, 2);
    dense.a = {1, s, s, s * s * (1 + eps * eps)};
    Padded p(dense);
    EXPECT_NEAR(CholeskyFactor(p.np, p.ld, p.a, p.inverse, 1e-10), eps * eps, 1e-9);
  }
}

TEST(Cholesky, StopsAtTheLimitSingularIndefiniteAndNaN) {
  oracle::Dense dense(2, 2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    std::vector<double> a;
    double low, high;
  } cases[] = {
      {{1, 1, 1, 1}, 0, 0},               // singular
      {{1, 2, 2, 1}, 0, 0},               // indefinite
      {{0, 0, 0, 1}, 0, 0},               // zero column
      {{1, nan, nan, 1}, 0, 0},           // NaN
      {{1, 1, 1, 1 + 1e-6}, 9e-7, 1e-3},  // under the limit of 1e-3: the pivot comes back
  };
  for (const auto& c : cases) {
    dense.a = c.a;
    Padded p(dense);
    const double pivot = CholeskyFactor(p.np, p.ld, p.a, p.inverse, 1e-3);
    EXPECT_GE(pivot, c.low);
    EXPECT_LE(pivot, c.high);
  }
}

TEST(Cholesky, LateSmallPivotIsFoundInEveryPosition) {
  for (const int64_t n : {9, 16, 23}) {
    for (int64_t bad = 1; bad < n; ++bad) {
      // Identity, but column `bad` nearly repeats column 0: pivot 1 − c², c = 1 − 1e-9.
      oracle::Dense dense = oracle::Identity(n);
      dense(bad, 0) = dense(0, bad) = 1 - 1e-9;
      Padded p(dense);
      EXPECT_NEAR(CholeskyFactor(p.np, p.ld, p.a, p.inverse, 1e-12), 2e-9, 1e-14)
          << n << " " << bad;
    }
  }
}

}  // namespace
}  // namespace spaid::kernels
