// What is refused, and how.
#include <functional>
#include <limits>

#include "kernels/sparse/transpose.h"
#include "tests/kernels/dynamic_spai/helpers.h"

namespace spaid::kernels {
namespace {

TEST(DynamicErrors, OptionsOutOfRange) {
  const CscMatrix a = oracle::Laplacian2d(4, 4);
  const std::vector<std::pair<const char*, std::function<void(DynamicSpaiOptions&)>>> bad = {
      {"tol", [](auto& o) { o.tol = -0.1; }},
      {"tol", [](auto& o) { o.tol = 1; }},
      {"tol", [](auto& o) { o.tol = std::numeric_limits<double>::quiet_NaN(); }},
      {"max_steps", [](auto& o) { o.max_steps = -1; }},
      {"max_steps", [](auto& o) { o.max_steps = 513; }},
      {"step_size", [](auto& o) { o.per_step = 0; }},
      {"step_size", [](auto& o) { o.per_step = 33; }},
      {"max_column_nnz", [](auto& o) { o.max_column_nnz = -1; }},
      {"post_filter", [](auto& o) { o.post_filter = 1.5; }},
      {"post_filter", [](auto& o) { o.post_filter = std::numeric_limits<double>::quiet_NaN(); }},
      {"repeat_hash_bits", [](auto& o) { o.repeat_hash_bits = 65; }},
      {"repeat_hash_bits", [](auto& o) { o.repeat_hash_bits = -1; }},
      {"local_solver", [](auto& o) { o.local_solver = static_cast<LocalSolver>(9); }},
  };
  for (const auto& [field, change] : bad) {
    DynamicSpaiOptions options;
    change(options);
    for (const Status& status :
         {GrowDynamicSpai(a, nullptr, options, {}).status(),
          EstimateDynamicSpai(a, nullptr, options, {}).status(), CheckDynamicOptions(options)}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << field;
      EXPECT_EQ(status.reason(), "BAD_DYNAMIC_OPTION") << field;
      EXPECT_EQ(status.field(), field);
    }
  }
  EXPECT_TRUE(CheckDynamicOptions({}).ok());
  DynamicSpaiOptions most = Steps(512, 32, 0.999);
  EXPECT_TRUE(GrowDynamicSpai(a, nullptr, most, {}).ok());
}

TEST(DynamicErrors, Shapes) {
  CscMatrix wide = oracle::Laplacian2d(4, 4);
  wide.n_rows = 17;
  EXPECT_EQ(GrowDynamicSpai(wide, nullptr, {}, {}).status().reason(), "NOT_SQUARE");
  EXPECT_EQ(EstimateDynamicSpai(wide, nullptr, {}, {}).status().reason(), "NOT_SQUARE");
  const CscMatrix a = oracle::Laplacian2d(4, 4);
  const Pattern small = DiagonalPattern(15);
  const PatternView initial = small;
  EXPECT_EQ(GrowDynamicSpai(a, &initial, {}, {}).status().reason(), "PATTERN_SIZE_MISMATCH");
  EXPECT_EQ(EstimateDynamicSpai(a, &initial, {}, {}).status().reason(), "PATTERN_SIZE_MISMATCH");
}

TEST(DynamicErrors, AColumnOfNothing) {
  CscMatrix a;
  a.n_rows = a.n_cols = 3;
  a.col_ptr = {0, 1, 1, 2};
  a.row_idx = {0, 2};
  a.values = {1, 1};
  const auto refused = GrowDynamicSpai(a, nullptr, {}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().reason(), "ZERO_COLUMN");
  EXPECT_EQ(refused.status().index(), 1);
  EXPECT_EQ(EstimateDynamicSpai(a, nullptr, {}, {}).status().reason(), "ZERO_COLUMN");
}

// Hubs: a column with an entry in each row, and a row of a few thousand.
TEST(DynamicRobustness, LongColumnsAndRows) {
  const CscMatrix a = oracle::Arrow(3000);
  const DynamicSpaiOptions options = Steps(4, 3, 0.01);
  const DynamicSpaiPattern grown = Grow(a, options);
  EXPECT_EQ(grown.quality.gram_nnz, 3000 * 3000);
  const StaticSpaiResult m = Numbers(a, grown, options);
  const std::vector<double> residuals = ExplicitResiduals(a, m.m);
  for (size_t k = 0; k < residuals.size(); ++k) ASSERT_LE(residuals[k], 1 + 1e-12) << k;
  ExpectCanonical(grown.m, "arrow");
}

// A of rank one: after one entry nothing more can be gained.
TEST(DynamicRobustness, RankOne) {
  oracle::Dense d(12, 12);
  for (int64_t i = 0; i < 12; ++i) {
    for (int64_t j = 0; j < 12; ++j) {
      d(i, j) = static_cast<double>((i + 1) * (j % 5 + 1));
    }
  }
  const CscMatrix a = oracle::FromDense(d);
  for (const int s : {1, 4}) {
    const DynamicSpaiPattern grown = Grow(a, Steps(6, s));
    EXPECT_EQ(grown.m.row_idx, DiagonalPattern(12).row_idx);
    EXPECT_EQ(grown.quality.converged_columns, 0);
  }
  // Of a start of dependent columns the first that is independent stay.
  const PatternView all = a.pattern();
  const DynamicSpaiPattern grown = Grow(a, Steps(2, 2), 2, &all);
  EXPECT_EQ(grown.m.row_idx, DiagonalPattern(12).row_idx);
  EXPECT_EQ(grown.quality.dependent_columns, 12);
  EXPECT_EQ(grown.quality.first_dependent, 0);
}

}  // namespace
}  // namespace spaid::kernels
