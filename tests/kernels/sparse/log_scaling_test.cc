// Magnitudes brought near 1 by least squares of their logarithms.
#include "kernels/sparse/log_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// log2 of each entry's magnitude, scaled.
std::vector<double> Scaled(const CscMatrix& a) {
  const auto s = ScaleLogarithms(a, {});
  EXPECT_TRUE(s.ok());
  std::vector<double> logs;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      logs.push_back(std::log2(std::abs(a.values[p])) + s->row_log2[Z(a.row_idx[p])] +
                     s->column_log2[Z(j)]);
    }
  }
  return logs;
}

TEST(LogScaling, ADiagonalBecomesOnes) {
  for (const double log : Scaled(oracle::FromRows({{8, 0, 0}, {0, -0.25, 0}, {0, 0, 1024}}))) {
    EXPECT_NEAR(log, 0, 0.25);
  }
}

TEST(LogScaling, WhatIsAProductOfRowsAndColumnsBecomesOnes) {
  // a_ij = 2^(3 i - 5 j)
  const CscMatrix a =
      oracle::FromRows({{1, 0x1p-5, 0x1p-10}, {8, 0x1p-2, 0x1p-7}, {64, 2, 0x1p-4}});
  for (const double log : Scaled(a)) EXPECT_NEAR(log, 0, 0.25);
}

TEST(LogScaling, TheLeastSquaresOfTwoByTwo) {
  // Logarithms 4, 0, 0, 0: the misfit that is left is 1 on every entry, with alternating signs.
  const std::vector<double> logs = Scaled(oracle::FromRows({{16, 1}, {1, 1}}));
  const double expected[] = {1, -1, -1, 1};
  for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(logs[k], expected[k], 0.25);
}

TEST(LogScaling, DoesNotDependOnHowTheMatrixWasScaled) {
  std::mt19937_64 random(3);
  std::uniform_int_distribution<int> power(-40, 40);
  for (const oracle::NamedMatrix& named : oracle::Zoo(5)) {
    SCOPED_TRACE(named.name);
    CscMatrix scaled = named.a;
    std::vector<int> row(Z(scaled.n_rows)), column(Z(scaled.n_cols));
    for (int& p : row) p = power(random);
    for (int& p : column) p = power(random);
    for (int64_t j = 0; j < scaled.n_cols; ++j) {
      for (int64_t p = scaled.col_ptr[j]; p < scaled.col_ptr[j + 1]; ++p) {
        scaled.values[p] = std::ldexp(scaled.values[p], row[Z(scaled.row_idx[p])] + column[Z(j)]);
      }
    }
    const std::vector<double> before = Scaled(named.a), after = Scaled(scaled);
    for (size_t k = 0; k < before.size(); ++k) {
      if (!std::isfinite(before[k])) continue;
      EXPECT_NEAR(after[k], before[k], 1.5);
    }
  }
}

TEST(LogScaling, OverlooksWhatHasNoMagnitude) {
  CscMatrix a = oracle::FromRows({{1, 4, 2}, {2, 1, 1}, {1, 1, 8}});
  a.values[0] = 0;
  a.values[4] = std::numeric_limits<double>::infinity();
  for (int64_t p = a.col_ptr[2]; p < a.col_ptr[3]; ++p) {
    a.values[p] = std::numeric_limits<double>::quiet_NaN();
  }
  const auto s = ScaleLogarithms(a, {});
  ASSERT_TRUE(s.ok());
  for (const double log : s->row_log2) EXPECT_TRUE(std::isfinite(log));
  EXPECT_EQ(s->column_log2[2], 0);
}

TEST(LogScaling, AStopEndsIt) {
  StopSource stop;
  stop.Request(StopReason::kTimeLimit);
  const CscMatrix a = oracle::Laplacian2d(5, 5);
  EXPECT_EQ(ScaleLogarithms(a, {.stop = stop.token()}).status().code(),
            StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace spaid::kernels
