// Columns that a device has left to the host: as if it had never had them.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>

#include "kernels/bench/problems.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "tests/kernels/dynamic_spai/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

// `pattern` as a device hands it over that has not grown `left`.
Pattern Without(const PatternView& pattern, const std::set<int64_t>& left) {
  Pattern m;
  m.n_rows = m.n_cols = pattern.n_cols;
  m.col_ptr.push_back(0);
  for (int64_t k = 0; k < pattern.n_cols; ++k) {
    if (left.contains(k)) {
      m.row_idx.push_back(-1);
    } else {
      const auto column = pattern.column(k);
      m.row_idx.insert(m.row_idx.end(), column.begin(), column.end());
    }
    m.col_ptr.push_back(m.nnz());
  }
  return m;
}

TEST(DynamicSpaiLeftColumns, AreGrownByTheHost) {
  const CscMatrix a = oracle::RandomIrregular(70, 5, 21);
  const PatternView from_a = a.pattern();
  for (const PatternView* initial : {static_cast<const PatternView*>(nullptr), &from_a}) {
    for (const DynamicSpaiOptions& options : {Steps(6, 1, 0.1), Steps(2, 3)}) {
      const DynamicSpaiPattern whole = Grow(a, options, 1, initial);
      for (const std::set<int64_t>& left :
           {std::set<int64_t>{}, std::set<int64_t>{0}, std::set<int64_t>{3, 4, 69}}) {
        DynamicSpaiPattern grown;
        grown.m = Without(whole.m, left);
        // ‖r‖ of a column that has no part yet counts as 1.
        grown.quality.residual_by_step.assign(static_cast<size_t>(options.max_steps) + 1, 1.0);
        grown.quality.first_dependent = -1;
        const auto count = GrowLeftColumns(a, initial, options, On(2), grown);
        ASSERT_TRUE(count.ok()) << count.status().message();
        EXPECT_EQ(*count, static_cast<int64_t>(left.size()));
        EXPECT_EQ(grown.m.col_ptr, whole.m.col_ptr);
        EXPECT_EQ(grown.m.row_idx, whole.m.row_idx);
        EXPECT_LE(grown.quality.converged_columns, *count);
        EXPECT_EQ(grown.quality.residual_by_step.back() < 1, *count > 0);
      }
      // All of them: all figures.
      std::set<int64_t> all;
      for (int64_t k = 0; k < a.n_cols; ++k) all.insert(k);
      DynamicSpaiPattern grown;
      grown.m = Without(whole.m, all);
      grown.quality.residual_by_step.assign(static_cast<size_t>(options.max_steps) + 1, 1.0);
      ASSERT_TRUE(GrowLeftColumns(a, initial, options, On(2), grown).ok());
      EXPECT_EQ(grown.m.row_idx, whole.m.row_idx);
      EXPECT_EQ(grown.quality.converged_columns, whole.quality.converged_columns);
      EXPECT_EQ(grown.quality.nnz_column_max, whole.quality.nnz_column_max);
      EXPECT_EQ(grown.quality.dependent_columns, whole.quality.dependent_columns);
      for (size_t step = 0; step < whole.quality.residual_by_step.size(); ++step) {
        EXPECT_NEAR(grown.quality.residual_by_step[step], whole.quality.residual_by_step[step],
                    1e-9);
      }
    }
  }
}

TEST(DynamicSpaiLeftColumns, Stop) {
  const CscMatrix a = bench::ConvectionDiffusion(8, 10);
  DynamicSpaiPattern grown = Grow(a, Steps(3));
  grown.m = Without(grown.m, {5});
  StopSource source;
  source.Request(StopReason::kCancelled);
  const auto count = GrowLeftColumns(
      a, nullptr, Steps(3), {.stop = source.token(), .progress = nullptr, .threads = 1}, grown);
  ASSERT_FALSE(count.ok());
  EXPECT_EQ(count.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels
