// Shared by the tests of dynamic SPAI.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dynamic_spai/dynamic_spai.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {

// max_steps, s, tol.
inline DynamicSpaiOptions Steps(int max_steps, int per_step = 1, double tol = 0) {
  DynamicSpaiOptions options;
  options.max_steps = max_steps;
  options.per_step = per_step;
  options.tol = tol;
  return options;
}

inline Context On(int threads) { return {.stop = {}, .progress = nullptr, .threads = threads}; }

// A failure is a test failure.
inline DynamicSpaiPattern Grow(const CscView& a, const DynamicSpaiOptions& options, int threads = 2,
                               const PatternView* initial = nullptr) {
  auto grown = GrowDynamicSpai(a, initial, options, On(threads));
  EXPECT_TRUE(grown.ok()) << grown.status().reason() << ": " << grown.status().message();
  if (!grown.ok()) return {};
  return std::move(grown).value();
}

// The numbers on a grown pattern.
inline StaticSpaiResult Numbers(const CscView& a, const DynamicSpaiPattern& grown,
                                const DynamicSpaiOptions& options) {
  return Build(a, grown.m, NumbersOf(options));
}

inline std::vector<int64_t> Column(const PatternView& m, int64_t k) {
  const auto column = m.column(k);
  return {column.begin(), column.end()};
}

inline void ExpectCanonical(const PatternView& m, const std::string& what) {
  for (int64_t k = 0; k < m.n_cols; ++k) {
    const auto column = m.column(k);
    ASSERT_TRUE(std::is_sorted(column.begin(), column.end())) << what << ", column " << k;
    ASSERT_EQ(std::adjacent_find(column.begin(), column.end()), column.end()) << what;
    ASSERT_TRUE(std::binary_search(column.begin(), column.end(), k)) << what << ", column " << k;
    ASSERT_LT(column.back(), m.n_rows) << what;
  }
}

inline void ExpectSame(const DynamicSpaiPattern& x, const DynamicSpaiPattern& y,
                       const std::string& what) {
  EXPECT_EQ(x.m.col_ptr, y.m.col_ptr) << what;
  EXPECT_EQ(x.m.row_idx, y.m.row_idx) << what;
  EXPECT_EQ(x.quality.residual_by_step, y.quality.residual_by_step) << what;
  EXPECT_EQ(x.quality.converged_columns, y.quality.converged_columns) << what;
  EXPECT_EQ(x.quality.nnz_column_max, y.quality.nnz_column_max) << what;
  EXPECT_EQ(x.quality.dependent_columns, y.quality.dependent_columns) << what;
  EXPECT_EQ(x.quality.first_dependent, y.quality.first_dependent) << what;
  EXPECT_EQ(x.quality.gram_nnz, y.quality.gram_nnz) << what;
  EXPECT_EQ(x.quality.flops, y.quality.flops) << what;
}

// Each tests/oracle family, but without columns of zeros.
inline std::vector<oracle::NamedMatrix> Cases(uint64_t seed) {
  std::vector<oracle::NamedMatrix> cases = oracle::Zoo(seed);
  // Stored zeros, an empty row, a row of zeros that is stored.
  cases.push_back(
      {"empty row/5",
       FromRows(
           {{2, 1, 0, 0, 0}, {0, 3, 1, 0, 0}, {0, 0, 0, 0, 0}, {1, 0, 4, 5, 0}, {0, 0, 0, 1, 6}}),
       false});
  CscMatrix stored = FromRows({{4, 1, 0, 1}, {1, 5, 1, 0}, {0, 1, 6, 1}, {1, 0, 1, 7}});
  stored.values[1] = 0;
  stored.values[5] = 0;
  cases.push_back({"stored zeros/4", stored, true});
  return cases;
}

}  // namespace spaid::kernels
