#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/sparse/pattern.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

// Size of a maximum matching by the plainest augmenting paths.
int64_t ObviousMatchingSize(const PatternView& a) {
  std::vector<int64_t> column_of_row(static_cast<size_t>(a.n_rows), -1);
  std::vector<char> visited;
  const std::function<bool(int64_t)> augment = [&](int64_t j) {
    for (const int32_t i : a.column(j)) {
      if (visited[static_cast<size_t>(i)]) continue;
      visited[static_cast<size_t>(i)] = 1;
      auto& owner = column_of_row[static_cast<size_t>(i)];
      if (owner < 0 || augment(owner)) {
        owner = j;
        return true;
      }
    }
    return false;
  };
  int64_t size = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    visited.assign(static_cast<size_t>(a.n_rows), 0);
    if (augment(j)) ++size;
  }
  return size;
}

int64_t CheckedSize(const PatternView& a) {
  const Array<int32_t> row_of_column = MaximumMatching(a);
  EXPECT_EQ(static_cast<int64_t>(row_of_column.size()), a.n_cols);
  std::vector<char> used(static_cast<size_t>(a.n_rows), 0);
  int64_t size = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const int32_t i = row_of_column[static_cast<size_t>(j)];
    if (i < 0) continue;
    const auto rows = a.column(j);
    EXPECT_TRUE(std::binary_search(rows.begin(), rows.end(), i)) << "not stored: " << i << "," << j;
    EXPECT_EQ(used[static_cast<size_t>(i)]++, 0) << "row matched twice: " << i;
    ++size;
  }
  return size;
}

TEST(MatchingTest, NeedsAnAugmentingPath) {
  // Columns {0,1}, {0}: the greedy choice of column 0 must be undone.
  const CscMatrix a = Make(2, 2, {0, 2, 3}, {0, 1, 0}, {1, 1, 1});
  EXPECT_THAT(MaximumMatching(a.pattern()), testing::ElementsAre(1, 0));
}

TEST(MatchingTest, EmptyColumnsStayUnmatched) {
  const CscMatrix a = Make(3, 3, {0, 0, 2, 3}, {0, 2, 2}, {1, 1, 1});
  const Array<int32_t> m = MaximumMatching(a.pattern());
  EXPECT_EQ(m[0], -1);
  EXPECT_EQ(m[1], 0);
  EXPECT_EQ(m[2], 2);
}

TEST(MatchingTest, LongPathWithoutRecursion) {
  // Column j has rows j and j+1, the last column only row 0 .. one path through all columns.
  const int64_t n = 300'000;
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j + 1 < n; ++j) {
    a.row_idx.push_back(static_cast<int32_t>(j));
    a.row_idx.push_back(static_cast<int32_t>(j + 1));
    a.col_ptr.push_back(a.nnz());
  }
  a.row_idx.push_back(0);
  a.col_ptr.push_back(a.nnz());
  EXPECT_EQ(CheckedSize(a.pattern()), n);
}

TEST(MatchingTest, Stops) {
  const int64_t n = 300'000;
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    a.row_idx.push_back(static_cast<int32_t>(j));
    if (j + 1 < n) a.row_idx.push_back(static_cast<int32_t>(j + 1));
    a.col_ptr.push_back(a.nnz());
  }
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const auto cancelled =
      MaximumMatching(a.pattern(), Context{.stop = cancel.token(), .progress = nullptr});
  EXPECT_EQ(cancelled.status().code(), StatusCode::kCancelled);
  StopSource late;
  late.SetTimeLimit(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  const auto timed =
      MaximumMatching(a.pattern(), Context{.stop = late.token(), .progress = nullptr});
  EXPECT_EQ(timed.status().code(), StatusCode::kDeadlineExceeded);
  const auto whole = MaximumMatching(a.pattern(), Context{});
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(*whole, MaximumMatching(a.pattern()));
}

TEST(MatchingTest, SizeEqualsTheObviousAlgorithm) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    oracle::Random random(seed);
    const int64_t rows = 1 + random.Below(40), columns = 1 + random.Below(40);
    const double density = random.Uniform(0.01, 0.15);
    Pattern p;
    p.n_rows = rows;
    p.n_cols = columns;
    p.col_ptr.push_back(0);
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        if (random.Uniform() < density) p.row_idx.push_back(static_cast<int32_t>(i));
      }
      p.col_ptr.push_back(p.nnz());
    }
    EXPECT_EQ(CheckedSize(p), ObviousMatchingSize(p));
  }
}

TEST(MatchingTest, RegularMatricesMatchCompletely) {
  for (const auto& [name, a, regular] : oracle::Zoo(5)) {
    if (!regular) continue;
    EXPECT_EQ(CheckedSize(a.pattern()), a.n_cols) << name;
  }
}

}  // namespace
}  // namespace spaid::kernels
