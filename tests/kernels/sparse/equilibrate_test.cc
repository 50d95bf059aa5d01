#include "kernels/sparse/equilibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/sparse/transpose.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Equilibration Even(const CscView& a, bool symmetric = false, int threads = 1) {
  auto e = Equilibrate(a, {.symmetric = symmetric}, Context{.threads = threads});
  EXPECT_TRUE(e.ok());
  return *std::move(e);
}

bool IsPowerOfTwo(double v) {
  int exponent;
  return std::isnormal(v) && std::frexp(v, &exponent) == 0.5;
}

// Factors are powers of two, and every row and column with an entry has a largest one near 1; in
// logarithms, because values may be anywhere.
void ExpectEquilibrated(const CscView& a, const Equilibration& e) {
  EXPECT_TRUE(e.converged);
  for (const double r : e.row) ASSERT_TRUE(IsPowerOfTwo(r)) << r;
  for (const double c : e.column) ASSERT_TRUE(IsPowerOfTwo(c)) << c;
  std::vector<double> row(e.row.size(), -kInfinity), column(e.column.size(), -kInfinity);
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    if (v == 0 || !std::isfinite(v)) return;
    const double size = std::log2(std::abs(v)) + std::log2(e.row[static_cast<size_t>(i)]) +
                        std::log2(e.column[static_cast<size_t>(j)]);
    row[static_cast<size_t>(i)] = std::max(row[static_cast<size_t>(i)], size);
    column[static_cast<size_t>(j)] = std::max(column[static_cast<size_t>(j)], size);
  });
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] == -kInfinity) {
      EXPECT_EQ(e.row[i], 1) << "row " << i;
    } else {
      EXPECT_NEAR(row[i], 0, std::log2(8.0 / 3)) << "row " << i;
    }
  }
  for (size_t j = 0; j < column.size(); ++j) {
    if (column[j] == -kInfinity) {
      EXPECT_EQ(e.column[j], 1) << "column " << j;
    } else {
      EXPECT_NEAR(column[j], 0, std::log2(8.0 / 3)) << "column " << j;
    }
  }
}

TEST(EquilibrateTest, ADiagonalByHand) {
  const CscMatrix a = Make(2, 2, {0, 1, 2}, {0, 1}, {4, -0x1p-20});
  for (const bool symmetric : {false, true}) {
    const Equilibration e = Even(a, symmetric);
    EXPECT_THAT(e.row, ElementsAre(0.5, 0x1p10));
    EXPECT_THAT(e.column, ElementsAre(0.5, 0x1p10));
  }
}

TEST(EquilibrateTest, RowsByHand) {
  // [1 1; 2^20 2^20]: rows differ, columns do not.
  const CscMatrix a = Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, 0x1p20, 1, 0x1p20});
  const Equilibration e = Even(a);
  ExpectEquilibrated(a, e);
  EXPECT_EQ(e.row[0] / e.row[1], 0x1p20);
  EXPECT_EQ(e.column[0], e.column[1]);
}

TEST(EquilibrateTest, NormsNearOneAreLeftAlone) {
  const Equilibration e = Even(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, 0.5, -0.25, 1.1}));
  EXPECT_EQ(e.iterations, 0);
  EXPECT_THAT(e.row, Each(1));
  EXPECT_THAT(e.column, Each(1));
}

TEST(EquilibrateTest, WhatHasNoEntryKeepsFactorOne) {
  // Row 1 and column 1 hold a stored zero, row 2 and column 2 nothing.
  const CscMatrix a = Make(3, 3, {0, 1, 2, 2}, {0, 1}, {1024, 0});
  const Equilibration e = Even(a);
  ExpectEquilibrated(a, e);
  EXPECT_THAT(e.row, ElementsAre(0x1p-5, 1, 1));
  const Equilibration none = Even(Make(3, 3, {0, 0, 0, 0}, {}, {}));
  EXPECT_THAT(none.row, Each(1));
  EXPECT_THAT(none.column, Each(1));
  EXPECT_TRUE(none.converged);
}

TEST(EquilibrateTest, InfinitiesAndNansAreOverlooked) {
  const CscMatrix a = Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {64, kInfinity, NAN, 0x1p-1074});
  ExpectEquilibrated(a, Even(a));
}

TEST(EquilibrateTest, AnyFiniteValueOfAnySize) {
  ExpectEquilibrated(Make(1, 1, {0, 1}, {0}, {0x1p-1074}),
                     Even(Make(1, 1, {0, 1}, {0}, {0x1p-1074})));
  const double largest = std::numeric_limits<double>::max();
  ExpectEquilibrated(Make(1, 1, {0, 1}, {0}, {largest}), Even(Make(1, 1, {0, 1}, {0}, {largest})));
  int64_t cut = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const CscMatrix moderate = RandomSparse(50, 4, 300, seed % 2 == 0, seed);
    ExpectEquilibrated(moderate, Even(moderate));
    // Factors stay in range, and it is said where they would not.
    const CscMatrix a = RandomSparse(50, 2, 1000, seed % 2 == 0, seed);
    const Equilibration e = Even(a);
    if (e.converged) {
      ExpectEquilibrated(a, e);
    } else {
      ++cut;
      EXPECT_THAT(e.row, Each(testing::Truly(IsPowerOfTwo)));
      EXPECT_THAT(e.column, Each(testing::Truly(IsPowerOfTwo)));
    }
  }
  EXPECT_GT(cut, 0);
  EXPECT_LT(cut, 40);
}

TEST(EquilibrateTest, OneDenseRow) {
  CscMatrix a = oracle::DenseRowAndColumn(300, 3);
  for (size_t p = 0; p < a.values.size(); ++p) {
    if (a.row_idx[p] == 7) a.values[p] *= 0x1p60;
  }
  ExpectEquilibrated(a, Even(a));
}

TEST(EquilibrateTest, SymmetryStaysExact) {
  CscMatrix a = oracle::RandomSpd(200, 6, 5);
  oracle::Random random(1);
  std::vector<double> d(200);
  for (double& v : d) v = std::exp2(random.Uniform(-300, 300));
  CscMatrix scaled = a;
  size_t p = 0;
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    // The same rounding on both sides of the diagonal.
    const auto [low, high] = std::minmax(i, j);
    scaled.values[p++] = v * d[static_cast<size_t>(low)] * d[static_cast<size_t>(high)];
  });
  const Equilibration e = Even(scaled, true);
  ExpectEquilibrated(scaled, e);
  EXPECT_EQ(e.row, e.column);
  p = 0;
  ForEntries(scaled, [&](int64_t i, int64_t j, double v) {
    scaled.values[p++] = v * (e.row[static_cast<size_t>(i)] * e.column[static_cast<size_t>(j)]);
  });
  EXPECT_EQ(Transpose(CscView(scaled)).values, scaled.values);
}

TEST(EquilibrateTest, TheZooAndWhateverItsUnits) {
  for (const auto& [name, a, regular] : oracle::Zoo(7)) {
    SCOPED_TRACE(name);
    ExpectEquilibrated(a, Even(a));
    CscMatrix other = a;
    size_t p = 0;
    ForEntries(a, [&](int64_t i, int64_t j, double v) {
      other.values[p++] = std::ldexp(v, static_cast<int>(37 * i % 81 - 40 + 53 * j % 81 - 40));
    });
    ExpectEquilibrated(other, Even(other));
  }
}

TEST(EquilibrateTest, ThreadsDoNotChangeABit) {
  const CscMatrix a = RandomSparse(20'000, 30, 200, true, 9);
  const Equilibration one = Even(a);
  ExpectEquilibrated(a, one);
  for (const int threads : {2, 5}) {
    const Equilibration many = Even(a, false, threads);
    EXPECT_EQ(many.row, one.row);
    EXPECT_EQ(many.column, one.column);
    EXPECT_EQ(many.iterations, one.iterations);
  }
}

TEST(EquilibrateTest, Stops) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  EXPECT_EQ(Equilibrate(a, {}, Context{.stop = cancel.token()}).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(MeasureNorms(a, {}, {}, {}, Context{.stop = cancel.token()}).status().code(),
            StatusCode::kCancelled);
}

TEST(MeasureNormsTest, ByHand) {
  // [8 0.5; 0 2^-12], and an empty row and column.
  const CscMatrix a = Make(3, 3, {0, 1, 3, 3}, {0, 0, 1}, {8, 0.5, 0x1p-12});
  const auto plain = MeasureNorms(a, {}, {}, {}, {});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->max_row, 3);
  EXPECT_EQ(plain->min_row, -12);
  EXPECT_EQ(plain->max_column, 3);
  EXPECT_EQ(plain->min_column, -1);
  EXPECT_EQ(plain->weak_diagonals, 1);
  const std::vector<double> row = {0.25, 0x1p10, 1}, column = {1, 2, 1};
  const auto scaled = MeasureNorms(a, row, column, {}, {});
  EXPECT_EQ(scaled->max_row, 1);
  EXPECT_EQ(scaled->min_row, -1);
  EXPECT_EQ(scaled->weak_diagonals, 0);
  // Columns swapped: 0.5 comes to the diagonal, and 8 to a column without one.
  const std::vector<int32_t> swapped = {1, 0, 2};
  const auto moved = MeasureNorms(a, {}, {}, swapped, {});
  EXPECT_EQ(moved->weak_diagonals, 1);
  EXPECT_EQ(moved->max_row, 3);
}

}  // namespace
}  // namespace spaid::kernels
