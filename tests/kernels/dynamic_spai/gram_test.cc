// AᵀA, scaled.
#include "kernels/dynamic_spai/gram.h"

#include <cmath>

#include "kernels/sparse/transpose.h"
#include "tests/kernels/dynamic_spai/helpers.h"

namespace spaid::kernels {
namespace {

GramMatrix Make(const CscView& a, int threads = 2) {
  auto gram = MakeGram(a, int64_t{1} << 40, On(threads));
  EXPECT_TRUE(gram.ok()) << gram.status().message();
  return gram.ok() ? *std::move(gram) : GramMatrix{};
}

TEST(Gram, IsTheProductOfColumnsOfUnitLength) {
  for (const oracle::NamedMatrix& c : Cases(4)) {
    const int64_t n = c.a.n_cols;
    const GramMatrix gram = Make(c.a);
    ASSERT_EQ(gram.columns.n_rows, n);
    ASSERT_EQ(gram.columns.n_cols, 2 * n);
    oracle::Dense unit = oracle::ToDense(static_cast<CscView>(c.a));
    const oracle::Dense stored = oracle::ToDense(c.a.pattern());
    for (int64_t j = 0; j < n; ++j) {
      const double norm =
          oracle::Norm(oracle::Vector(unit.a.begin() + j * n, unit.a.begin() + (j + 1) * n));
      for (int64_t i = 0; i < n; ++i) unit(i, j) /= norm;
    }
    const oracle::Dense b = oracle::Multiply(oracle::Transpose(unit), unit);
    const oracle::Dense where = oracle::Multiply(oracle::Transpose(stored), stored);
    const oracle::Dense made = oracle::ToDense(static_cast<CscView>(gram.columns));
    const oracle::Dense made_where = oracle::ToDense(gram.columns.pattern());
    int64_t nnz = 0;
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_EQ(made(j, j), 1) << c.name;
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NEAR(made(i, j), b(i, j), 1e-15) << c.name << " " << i << " " << j;
        EXPECT_EQ(made(i, j), made(j, i)) << c.name;
        EXPECT_EQ(made_where(i, j), where(i, j) != 0) << c.name << " " << i << " " << j;
        // Column n + j is row j, its sign changed.
        EXPECT_NEAR(made(i, n + j), -unit(j, i), 1e-15) << c.name;
        EXPECT_EQ(made_where(i, n + j), stored(j, i)) << c.name;
        nnz += where(i, j) != 0 ? 1 : 0;
      }
    }
    EXPECT_EQ(gram.nnz, nnz) << c.name;
    ExpectCanonical(
        PatternView{
            n, n, std::span<const int64_t>(gram.columns.col_ptr).first(static_cast<size_t>(n) + 1),
            gram.columns.row_idx},
        c.name);
  }
}

TEST(Gram, IsTheSameForAnyNumberOfThreads) {
  const CscMatrix a = oracle::RandomIrregular(3000, 6, 11);
  const GramMatrix one = Make(a, 1);
  for (const int threads : {2, 3}) {
    const GramMatrix many = Make(a, threads);
    EXPECT_EQ(many.columns.row_idx, one.columns.row_idx);
    EXPECT_EQ(many.columns.values, one.columns.values);
    EXPECT_EQ(many.flops, one.flops);
  }
}

TEST(Gram, OfColumnsOfAnySize) {
  CscMatrix a = FromRows({{1, 2, 0}, {3, 4, 1}, {0, 1, 5}});
  const GramMatrix plain = Make(a);
  for (double& v : a.values) v = std::ldexp(v, -1060);  // subnormal
  const GramMatrix tiny = Make(a);
  for (double& v : a.values) v = std::ldexp(v, 1060 + 1020);
  const GramMatrix huge = Make(a);
  EXPECT_EQ(tiny.columns.values, plain.columns.values);
  EXPECT_EQ(huge.columns.values, plain.columns.values);
}

// A row of m entries makes m² of AᵀA: refused before any of them is made.
TEST(Gram, OfALongRowIsRefused) {
  constexpr int64_t kSize = 400'000;
  CscMatrix a = oracle::Arrow(kSize);
  const auto refused = GrowDynamicSpai(a, nullptr, {}, On(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().reason(), "GRAM_TOO_LARGE");
  EXPECT_EQ(refused.status().index(), kSize - 1);
  EXPECT_NE(refused.status().message().find("160000000000"), std::string::npos)
      << refused.status().message();
}

TEST(Gram, ColumnsOnDemandAreThoseOfTheWhole) {
  for (const oracle::NamedMatrix& c : Cases(9)) {
    const auto whole = MakeGram(c.a, INT64_MAX, On(2));
    ASSERT_TRUE(whole.ok()) << c.name;
    const CscView expected = whole->columns;
    const Pattern rows = Transpose(c.a.pattern());
    GramColumns columns(c.a, rows, 1e9);
    for (int64_t j = 2 * c.a.n_cols - 1; j >= 0; --j) {
      const GrowthColumn column = columns.Column(j);
      EXPECT_TRUE(std::ranges::equal(column.rows, expected.column(j))) << c.name << ", " << j;
      EXPECT_TRUE(std::ranges::equal(column.values, expected.column_values(j))) << c.name << j;
    }
    EXPECT_FALSE(columns.passed());
  }
}

TEST(Gram, ColumnsOnDemandEndAtTheirLimit) {
  const CscMatrix a = oracle::Arrow(1000);
  const Pattern rows = Transpose(a.pattern());
  GramColumns free(a, rows, 1e9);
  EXPECT_EQ(free.Column(1).rows.size(), 1000u);
  EXPECT_GE(free.steps(), 2 * 1000);
  EXPECT_EQ(free.Column(2).rows.size(), 1000u);
  GramColumns columns(a, rows, free.steps() + 1);
  EXPECT_EQ(columns.Column(1).rows.size(), 1000u);
  EXPECT_EQ(columns.Column(2).rows.size(), 1000u);
  EXPECT_FALSE(columns.passed());
  EXPECT_TRUE(columns.Column(3).rows.empty());
  EXPECT_TRUE(columns.passed());
  EXPECT_TRUE(columns.Column(4).rows.empty());
}

TEST(Gram, IsCountedAgainstItsLimit) {
  const CscMatrix a = oracle::Laplacian2d(40, 40);
  const int64_t nnz = Make(a).nnz;
  EXPECT_TRUE(MakeGram(a, nnz, On(2)).ok());
  const auto refused = MakeGram(a, nnz - 1, On(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().reason(), "GRAM_TOO_LARGE");
  EXPECT_NE(refused.status().message().find(std::to_string(nnz - 1)), std::string::npos);
}

TEST(Gram, WantsAValueInEachColumn) {
  CscMatrix a = oracle::Laplacian2d(30, 3);
  for (int64_t p = a.col_ptr[50]; p < a.col_ptr[51]; ++p) a.values[static_cast<size_t>(p)] = 0;
  for (int64_t p = a.col_ptr[70]; p < a.col_ptr[71]; ++p) a.values[static_cast<size_t>(p)] = 0;
  const auto refused = MakeGram(a, int64_t{1} << 40, On(2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.status().reason(), "ZERO_COLUMN");
  EXPECT_EQ(refused.status().index(), 50);
}

}  // namespace
}  // namespace spaid::kernels
