#include "kernels/sparse/product_matching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/sparse/pattern.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// The matching is one, Q a permutation that agrees with it, and the factors are what they are said
// to be.
void ExpectSound(const CscView& a, const ProductMatching& m) {
  const int64_t n = a.n_cols;
  ASSERT_EQ(std::ssize(m.row_of_column), n);
  ASSERT_EQ(std::ssize(m.column_of_row), n);
  std::vector<int> used(Z(n), 0);
  for (const int32_t j : m.column_of_row) {
    ASSERT_TRUE(j >= 0 && j < n);
    ++used[Z(j)];
  }
  ASSERT_THAT(used, Each(1));
  int64_t size = 0;
  std::vector<double> row_largest(Z(n), -kInfinity), column_largest(Z(n), -kInfinity);
  std::vector<char> found(Z(n), 0);
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    if (v == 0 || !std::isfinite(v)) return;
    const double u = m.row_log2[Z(i)], w = m.column_log2[Z(j)];
    const double scaled = std::log2(std::abs(v)) + u + w;
    const double tolerance = 1.5e-12 + 1.5e-15 * (std::abs(u) + std::abs(w));
    ASSERT_LE(scaled, tolerance) << i << ' ' << j;
    row_largest[Z(i)] = std::max(row_largest[Z(i)], scaled);
    column_largest[Z(j)] = std::max(column_largest[Z(j)], scaled);
    if (m.row_of_column[Z(j)] == i) {
      ++size;
      found[Z(j)] = 1;
      ASSERT_EQ(m.column_of_row[Z(i)], j);
      ASSERT_GE(scaled, -tolerance) << i << ' ' << j;
    }
  });
  ASSERT_EQ(m.size, size);
  for (int64_t k = 0; k < n; ++k) {
    ASSERT_EQ(m.row_of_column[Z(k)] >= 0, found[Z(k)] != 0);
    if (row_largest[Z(k)] == -kInfinity) {
      ASSERT_EQ(m.row_log2[Z(k)], 0);
    } else {
      ASSERT_NEAR(row_largest[Z(k)], 0, 1e-10) << "row " << k;
    }
    if (column_largest[Z(k)] == -kInfinity) {
      ASSERT_EQ(m.column_log2[Z(k)], 0);
    } else {
      ASSERT_NEAR(column_largest[Z(k)], 0, 1e-10) << "column " << k;
    }
  }
}

ProductMatching Match(const CscView& a, int threads = 1) {
  auto m = MaximumProductMatching(a, {}, Context{.threads = threads});
  EXPECT_TRUE(m.ok()) << m.status().message();
  ExpectSound(a, *m);
  return *std::move(m);
}

// Without the zeros.
Pattern NonzeroPattern(const CscView& a) {
  Pattern p;
  p.n_rows = a.n_rows;
  p.n_cols = a.n_cols;
  p.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (size_t k = 0; k < a.column(j).size(); ++k) {
      if (a.column_values(j)[k] != 0) p.row_idx.push_back(a.column(j)[k]);
    }
    p.col_ptr.push_back(p.nnz());
  }
  return p;
}

int64_t StructuralRank(const CscView& a) {
  const Array<int32_t> m = MaximumMatching(NonzeroPattern(a));
  return std::ssize(m) - std::count(m.begin(), m.end(), -1);
}

double LogProduct(const CscView& a, const ProductMatching& m) {
  double sum = 0;
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    if (m.row_of_column[Z(j)] == i) sum += std::log2(std::abs(v));
  });
  return sum;
}

TEST(ProductMatchingTest, TwoByTwoByHand) {
  // [1 4; 8 2]: 32 off the diagonal, 2 on it.
  const CscMatrix a = Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, -8, 4, 2});
  const ProductMatching m = Match(a);
  EXPECT_THAT(m.row_of_column, ElementsAre(1, 0));
  EXPECT_THAT(m.column_of_row, ElementsAre(1, 0));
  EXPECT_EQ(m.size, 2);
}

TEST(ProductMatchingTest, AGreedyChoiceIsUndone) {
  // [10 9 .; 9 1 1; . . 5]: 9 · 9 · 5 beats 10 · 1 · 5.
  const CscMatrix a = Make(3, 3, {0, 2, 4, 6}, {0, 1, 0, 1, 1, 2}, {10, 9, 9, 1, 1, 5});
  EXPECT_THAT(Match(a).row_of_column, ElementsAre(1, 0, 2));
}

TEST(ProductMatchingTest, ADominantDiagonalStays) {
  const CscMatrix a = oracle::RandomSpd(60, 5, 3);
  const ProductMatching m = Match(a);
  for (int64_t j = 0; j < 60; ++j) EXPECT_EQ(m.row_of_column[Z(j)], j);
}

TEST(ProductMatchingTest, OneByOneZerosAndNothing) {
  EXPECT_THAT(Match(Make(1, 1, {0, 1}, {0}, {-8})).row_of_column, ElementsAre(0));
  EXPECT_EQ(Match(Make(1, 1, {0, 1}, {0}, {0})).size, 0);
  EXPECT_EQ(Match(Make(1, 1, {0, 0}, {}, {})).size, 0);
  EXPECT_EQ(Match(Make(3, 3, {0, 0, 0, 0}, {}, {})).size, 0);
  const ProductMatching none = Match(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {0, 0, 0, 0}));
  EXPECT_EQ(none.size, 0);
  EXPECT_THAT(none.column_of_row, ElementsAre(0, 1));
}

TEST(ProductMatchingTest, WhatIsLeftOverIsPairedInOrder) {
  // Columns 0 and 2 have row 1 alone, column 1 is empty, row 0 is empty.
  const CscMatrix a = Make(4, 4, {0, 1, 1, 2, 4}, {1, 1, 2, 3}, {1, 2, 1, 2});
  const ProductMatching m = Match(a);
  EXPECT_EQ(m.size, 2);
  EXPECT_THAT(m.row_of_column, ElementsAre(1, -1, -1, 3));
  EXPECT_THAT(m.column_of_row, ElementsAre(1, 0, 2, 3));
}

TEST(ProductMatchingTest, EqualsTheBestOfAllPermutations) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const auto n = static_cast<int64_t>(1 + seed % 7);
    const CscMatrix a = RandomSparse(n, 3, seed % 3 == 0 ? 500 : 10, seed % 2 == 0, seed);
    const oracle::Dense dense = oracle::ToDense(CscView(a));
    std::vector<int64_t> row(Z(n));
    std::iota(row.begin(), row.end(), 0);
    double best = -kInfinity;
    do {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double v = std::abs(dense(row[Z(j)], j));
        sum += v == 0 ? -kInfinity : std::log2(v);
      }
      best = std::max(best, sum);
    } while (std::next_permutation(row.begin(), row.end()));
    const ProductMatching m = Match(a);
    EXPECT_EQ(m.size, StructuralRank(a));
    EXPECT_EQ(m.size == n, best > -kInfinity);
    if (m.size == n) {
      EXPECT_NEAR(LogProduct(a, m), best, 1e-9);
    }
  }
}

TEST(ProductMatchingTest, SizeIsTheStructuralRankOfIrregularPatterns) {
  for (const double mean : {0.5, 1.0, 1.5, 2.0, 3.0, 8.0}) {
    for (const bool diagonal : {false, true}) {
      SCOPED_TRACE(mean);
      const CscMatrix a = RandomSparse(20'000, mean, 30, diagonal, 17);
      EXPECT_EQ(Match(a).size, StructuralRank(a));
    }
  }
}

TEST(ProductMatchingTest, SingularBlocksInAChain) {
  // Blocks of three columns in two rows, and entries of later columns in earlier rows: what a block
  // gives to the later ones goes through many generations.
  oracle::Random random(5);
  CscMatrix a;
  const int64_t blocks = 40;
  a.n_rows = a.n_cols = 3 * blocks;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t i = 0; i < 2 * (j / 3 + 1); ++i) {
      if (i < 2 * (j / 3) && random.Uniform() < 0.7) continue;
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(std::exp2(random.Uniform(-40, 40)));
    }
    a.col_ptr.push_back(a.nnz());
  }
  EXPECT_EQ(Match(a).size, 2 * blocks);
}

TEST(ProductMatchingTest, TheZoo) {
  for (const auto& [name, a, regular] : oracle::Zoo(3)) {
    SCOPED_TRACE(name);
    const ProductMatching m = Match(a);
    EXPECT_EQ(m.size, StructuralRank(a));
    EXPECT_TRUE(!regular || m.size == a.n_cols);
  }
}

TEST(ProductMatchingTest, ValuesOfAnySize) {
  for (uint64_t seed = 0; seed < 10; ++seed) Match(RandomSparse(200, 4, 1000, true, seed));
  // Factors beyond fp64: 2^-1000 on the diagonal, 2^1000 beside it.
  CscMatrix a;
  a.n_rows = a.n_cols = 20;
  a.col_ptr.push_back(0);
  for (int32_t j = 0; j < 20; ++j) {
    if (j > 0) {
      a.row_idx.push_back(j - 1);
      a.values.push_back(0x1p1000);
    }
    a.row_idx.push_back(j);
    a.values.push_back(0x1p-1000);
    a.col_ptr.push_back(a.nnz());
  }
  const ProductMatching m = Match(a);
  EXPECT_EQ(m.size, 20);
  EXPECT_GT(std::abs(m.row_log2[0]), 2000);
  const CscMatrix subnormal = Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {0x1p-1074, 0x1p-1070, 1, 2});
  EXPECT_THAT(Match(subnormal).row_of_column, ElementsAre(1, 0));
}

TEST(ProductMatchingTest, OneDenseRow) {
  CscMatrix a = oracle::DenseRowAndColumn(2000, 3);
  EXPECT_EQ(Match(a).size, 2000);
}

TEST(ProductMatchingTest, NeitherUnitsNorOrderChangeTheMatching) {
  // Random values: the best matching is the only one.
  const int64_t n = 500;
  const CscMatrix a = RandomSparse(n, 6, 10, true, 23);
  const ProductMatching m = Match(a);
  const std::vector<int32_t> row = RandomPermutation(n, 1), column = RandomPermutation(n, 2);
  CscMatrix b;  // b(row[i], k) = a(i, column[k])
  b.n_rows = b.n_cols = n;
  b.col_ptr.push_back(0);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t j = column[Z(k)];
    std::vector<std::pair<int32_t, double>> entries;
    for (size_t p = 0; p < a.pattern().column(j).size(); ++p) {
      const int32_t i = a.pattern().column(j)[p];
      const auto power = static_cast<int>(29 * i % 81 - 40 + 31 * j % 81 - 40);
      entries.emplace_back(row[Z(i)], std::ldexp(CscView(a).column_values(j)[p], power));
    }
    std::sort(entries.begin(), entries.end());
    for (const auto& [i, v] : entries) {
      b.row_idx.push_back(i);
      b.values.push_back(v);
    }
    b.col_ptr.push_back(b.nnz());
  }
  const ProductMatching other = Match(b);
  for (int64_t k = 0; k < n; ++k) {
    EXPECT_EQ(other.row_of_column[Z(k)], row[Z(m.row_of_column[Z(column[Z(k)])])]);
  }
}

TEST(ProductMatchingTest, ThreadsDoNotChangeABit) {
  const CscMatrix a = RandomSparse(20'000, 8, 50, false, 9);
  const ProductMatching one = Match(a);
  for (const int threads : {2, 5}) {
    const ProductMatching many = Match(a, threads);
    EXPECT_EQ(many.row_of_column, one.row_of_column);
    EXPECT_EQ(many.row_log2, one.row_log2);
    EXPECT_EQ(many.column_log2, one.column_log2);
  }
}

TEST(ProductMatchingTest, StopsAndIsBounded) {
  const CscMatrix a = RandomSparse(20'000, 8, 50, false, 9);
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  EXPECT_EQ(MaximumProductMatching(a, {}, Context{.stop = cancel.token()}).status().code(),
            StatusCode::kCancelled);
  StopSource late;
  late.SetTimeLimit(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  EXPECT_EQ(MaximumProductMatching(a, {}, Context{.stop = late.token()}).status().code(),
            StatusCode::kDeadlineExceeded);
  const ProductMatching m = Match(a);
  EXPECT_TRUE(MaximumProductMatching(a, {.max_work = m.work}, {}).ok());
  const auto bounded = MaximumProductMatching(a, {.max_work = m.work - 1}, {});
  EXPECT_EQ(bounded.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(bounded.status().reason(), "MATCHING_TOO_LONG");
}

}  // namespace
}  // namespace spaid::kernels
