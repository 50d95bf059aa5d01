// Several columns much longer than the rest: compressed, and nothing may change.
#include <algorithm>
#include <chrono>

#include "kernels/static_spai/local_problem.h"
#include "kernels/static_spai/static_spai_plan.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

// Diagonal, the last t rows and the last t columns. The dense columns are equal up to relative
// differences of about `spread`.
CscMatrix WideArrow(int64_t n, int64_t t, double spread, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  oracle::Vector base(static_cast<size_t>(n));
  for (double& v : base) v = random.Uniform(0.5, 1);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j < n - t ? j : 0; i < n; i = i < n - t && j < n - t ? n - t : i + 1) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      const double v = base[static_cast<size_t>(i)] * (1 + spread * random.Uniform(-1, 1));
      a.values.push_back(i == j ? 4 : j < n - t ? random.Uniform(-0.1, 0.1) : v);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

// Column k of M: k and the t dense columns.
Pattern DenseColumnsAndDiagonal(int64_t n, int64_t t) {
  Pattern p;
  p.n_rows = p.n_cols = n;
  p.col_ptr.push_back(0);
  for (int64_t k = 0; k < n; ++k) {
    if (k < n - t) p.row_idx.push_back(static_cast<int32_t>(k));
    for (int64_t i = n - t; i < n; ++i) p.row_idx.push_back(static_cast<int32_t>(i));
    p.col_ptr.push_back(static_cast<int64_t>(p.row_idx.size()));
  }
  return p;
}

TEST(LongColumns, AreFoundWhereTheRestIsShort) {
  const CscMatrix a = WideArrow(1000, 3, 1, 1);
  const auto find = [&](std::vector<int32_t> columns) {
    const LongColumns longs = FindLongColumns(a.pattern(), columns);
    return std::vector<int32_t>(longs.at, longs.at + longs.count);
  };
  EXPECT_EQ(find({3, 997}), (std::vector<int32_t>{1}));
  EXPECT_EQ(find({997, 998, 999}), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(find({1, 5, 997, 998}), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(find({1, 2}), (std::vector<int32_t>{}));
  std::vector<int32_t> many;  // of 4 entries each: 125 are half of a long column
  for (int32_t j = 0; j < 125; ++j) many.push_back(j);
  many.push_back(999);
  EXPECT_EQ(find(many), (std::vector<int32_t>{}));
  many.erase(many.begin());
  EXPECT_EQ(find(many), (std::vector<int32_t>{124}));
  // Nine of them: one must stay, and then they are not longer than the rest.
  const CscMatrix nine = WideArrow(1000, 9, 1, 2);
  const std::vector<int32_t> all = {991, 992, 993, 994, 995, 996, 997, 998, 999};
  EXPECT_EQ(FindLongColumns(nine.pattern(), all).count, 0);
}

// The triangle of a Gram matrix by hand: columns (1, 0, 2), (1, 0, 2), (0, 3, 2).
TEST(LongColumns, TriangleByHand) {
  const double columns[3][3] = {{1, 0, 2}, {1, 0, 2}, {0, 3, 2}};
  DoubleDouble gram[9];
  double full[3], r[9];
  for (int i = 0; i < 3; ++i) {
    for (int j = i; j < 3; ++j) {
      for (int row = 0; row < 3; ++row) {
        gram[3 * i + j].AddProduct(columns[i][row], columns[j][row], 1);
      }
    }
    full[i] = gram[4 * i].value();
  }
  LongTriangle(3, gram, full, r);
  EXPECT_DOUBLE_EQ(r[0], std::sqrt(5.0));
  EXPECT_DOUBLE_EQ(r[1], std::sqrt(5.0));
  EXPECT_DOUBLE_EQ(r[2], 4 / std::sqrt(5.0));
  EXPECT_EQ(r[4], 0);  // the second column depends on the first
  EXPECT_EQ(r[5], 0);
  EXPECT_DOUBLE_EQ(r[8], std::sqrt(13 - 16.0 / 5));
}

// Columns that differ by 1e-12: in working precision their Gram matrix would be singular.
TEST(LongColumns, TriangleIsAsAccurateAsQr) {
  const double delta = 1e-12;
  const double columns[2][3] = {{1, 1, 1}, {1, 1 + delta, 1}};
  DoubleDouble gram[4];
  double full[2], r[4];
  for (int i = 0; i < 2; ++i) {
    for (int j = i; j < 2; ++j) {
      for (int row = 0; row < 3; ++row) {
        gram[2 * i + j].AddProduct(columns[i][row], columns[j][row], 1);
      }
    }
    full[i] = gram[3 * i].value();
  }
  LongTriangle(2, gram, full, r);
  // The part of (0, δ, 0) that is orthogonal to (1, 1, 1).
  EXPECT_NEAR(r[3], (columns[1][1] - 1) * std::sqrt(2.0 / 3), 1e-15);
}

class Wide : public ::testing::TestWithParam<std::pair<int, double>> {};
INSTANTIATE_TEST_SUITE_P(LongColumns, Wide,
                         ::testing::Values(std::pair{1, 1.0}, std::pair{2, 1.0}, std::pair{3, 1.0},
                                           std::pair{8, 1.0}, std::pair{9, 1.0}, std::pair{2, 1e-4},
                                           std::pair{3, 1e-6}, std::pair{2, 1e-9},
                                           std::pair{4, 1e-12}, std::pair{3, 0.0}));

TEST_P(Wide, AgreesWithTheOracle) {
  const auto [t, spread] = GetParam();
  const int64_t n = 320;
  const CscMatrix a = WideArrow(n, t, spread, 3);
  const Pattern pattern = DenseColumnsAndDiagonal(n, t);
  const oracle::Dense dense = oracle::ToDense(static_cast<const CscView&>(a));
  const StaticSpaiResult qr = Build(a, pattern, With(LocalSolver::kQr));
  for (const LocalSolver solver : {LocalSolver::kQr, LocalSolver::kGram, LocalSolver::kAuto}) {
    const StaticSpaiResult result = Build(a, pattern, With(solver));
    ExpectGramAccuracy(a, result, qr, std::to_string(t));
    const std::vector<double> norms = ExplicitResiduals(a, result.m);
    const std::vector<double> rounding = RoundingOfResiduals(a, result.m);
    for (int64_t k = 0; k < n; ++k) {
      const auto at = static_cast<size_t>(k);
      const double noise = rounding[at];
      EXPECT_NEAR(result.residual_norms[at], norms[at], 1e-13 + noise) << k;
      if (k % 40 != 0 && k < n - t) continue;  // the oracle is slow
      std::vector<int64_t> j_set;
      const CscView built = result.m;
      for (const int32_t i : built.column(k)) j_set.push_back(i);
      const oracle::Vector m = oracle::SpaiColumn(dense, k, j_set);
      oracle::Vector e(static_cast<size_t>(n), 0);
      e[at] = 1;
      const double expected = oracle::Norm(oracle::Residual(dense, m, e));
      EXPECT_LE(norms[at], (1 + 1e-6) * expected + 1e-10 + noise) << k;
      if (spread < 1) continue;
      for (int64_t p = result.m.col_ptr[at]; p < result.m.col_ptr[at + 1]; ++p) {
        EXPECT_NEAR(result.m.values[static_cast<size_t>(p)],
                    m[static_cast<size_t>(result.m.row_idx[static_cast<size_t>(p)])], 1e-11);
      }
    }
  }
}

// What a column costs must not grow with n.
TEST(LongColumns, LocalProblemsStaySmall) {
  for (const int64_t t : {1, 2, 3, 8}) {
    LocalCounts small;
    for (const int64_t n : {4000, 16000}) {
      const CscMatrix a = WideArrow(n, t, 1, 4);
      const Array<uint8_t> equal = FindEqualColumns(a.pattern(), 1);
      LocalCounter counter(n);
      std::vector<int32_t> columns = {7};
      for (int64_t j = n - t; j < n; ++j) columns.push_back(static_cast<int32_t>(j));
      const LocalCounts counts = counter.Count(a.pattern(), equal, columns);
      EXPECT_EQ(counts.n1, n);
      // Row 7, the t dense rows and the triangle.
      EXPECT_EQ(counts.rows, 1 + t + t);
      EXPECT_EQ(counts.entries, (1 + t) * (1 + t) + t * (t + 1) / 2);
      if (n == 4000) {
        small = counts;
      } else {
        EXPECT_EQ(counts.gram_pairs, small.gram_pairs);
      }
      // The assembler makes what the counter counts.
      auto plan = PlanStaticSpai(a, nullptr, {}, {});
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(static_cast<int64_t>((*plan)->long_pairs.size()), t * (t + 1) / 2);
      const ColumnScales scales = ScaleColumns(a, (*plan)->long_pairs, 1);
      LocalAssembler assembler(n);
      const LocalProblem& problem =
          assembler.Assemble(a, scales, equal, columns, std::vector<int32_t>{7});
      EXPECT_EQ(problem.n_rows, counts.rows);
      EXPECT_EQ(problem.n_entries, counts.entries);
      EXPECT_EQ(problem.gram_pairs, counts.gram_pairs);
    }
  }
}

TEST(LongColumns, LargeWideArrowsAreCheap) {
  const int64_t n = 100000;
  for (const int64_t t : {2, 3}) {
    const CscMatrix a = WideArrow(n, t, 1, 5);
    const auto start = std::chrono::steady_clock::now();
    const StaticSpaiResult result = Build(a, DenseColumnsAndDiagonal(n, t), {});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(result.quality.non_finite_columns, 0);
    // Generous: with the columns as they are this takes minutes, a sanitizer build seconds.
    EXPECT_LT(elapsed.count(), 20);
  }
}

}  // namespace
}  // namespace spaid::kernels
