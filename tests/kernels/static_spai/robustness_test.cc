// Input that breaks preconditioners: zero values, dense rows and columns, overflow, wrong
// arguments.
#include <chrono>
#include <limits>

#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

TEST(StaticSpaiErrors, EmptyColumnIsRefusedWithItsIndex) {
  CscMatrix a = FromRows({{1, 0, 2}, {0, 0, 0}, {3, 0, 4}});
  auto plan = PlanStaticSpai(a, nullptr, {}, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(plan.status().reason(), "ZERO_COLUMN");
  EXPECT_EQ(plan.status().index(), 1);
  auto estimate = EstimateStaticSpai(a, nullptr, {}, {});
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.status().reason(), "ZERO_COLUMN");
}

TEST(StaticSpaiErrors, OptionsOutOfRange) {
  const CscMatrix a = FromRows({{1, 0}, {0, 1}});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-0.1, 1.5, nan}) {
    StaticSpaiOptions options;
    options.post_filter = bad;
    EXPECT_EQ(PlanStaticSpai(a, nullptr, options, {}).status().reason(), "BAD_POST_FILTER");
    EXPECT_EQ(EstimateStaticSpai(a, nullptr, options, {}).status().reason(), "BAD_POST_FILTER");
    options = {};
    options.gram_pivot_limit = bad;
    EXPECT_EQ(PlanStaticSpai(a, nullptr, options, {}).status().reason(), "BAD_GRAM_PIVOT_LIMIT");
    auto plan = PlanStaticSpai(a, nullptr, {}, {});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(BuildStaticSpai(**plan, a, options, {}).status().reason(), "BAD_GRAM_PIVOT_LIMIT");
  }
  StaticSpaiOptions options;
  options.pattern.power = 0;
  EXPECT_EQ(EstimateStaticSpai(a, nullptr, options, {}).status().reason(), "BAD_PATTERN_POWER");
  EXPECT_EQ(PlanStaticSpai(a, nullptr, options, {}).status().reason(), "BAD_PATTERN_POWER");
  const Pattern small = DiagonalPattern(1);
  const PatternView view = small;
  EXPECT_EQ(EstimateStaticSpai(a, &view, {}, {}).status().reason(), "PATTERN_SIZE_MISMATCH");
  EXPECT_EQ(PlanStaticSpai(a, &view, {}, {}).status().reason(), "PATTERN_SIZE_MISMATCH");
}

TEST(StaticSpaiErrors, RectangularIsRefused) {
  CscMatrix a;
  a.n_rows = 2;
  a.n_cols = 1;
  a.col_ptr = {0, 1};
  a.row_idx = {0};
  a.values = {1};
  EXPECT_EQ(PlanStaticSpai(a, nullptr, {}, {}).status().reason(), "NOT_SQUARE");
  EXPECT_EQ(EstimateStaticSpai(a, nullptr, {}, {}).status().reason(), "NOT_SQUARE");
}

TEST(StaticSpaiErrors, PlanOfAnotherPatternIsRefused) {
  const CscMatrix a = FromRows({{1, 2}, {0, 1}});
  auto plan = PlanStaticSpai(a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok());
  for (const CscMatrix& other : {FromRows({{1, 0}, {2, 1}}), FromRows({{1, 0}, {0, 1}}),
                                 FromRows({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}})}) {
    auto result = BuildStaticSpai(**plan, other, {}, {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(result.status().reason(), "PLAN_MISMATCH");
  }
}

TEST(StaticSpaiRobust, ColumnOfStoredZerosIsRankDeficientNotAnError) {
  CscMatrix a = FromRows({{4, 1, 0}, {1, 4, 1}, {0, 1, 4}});
  for (int64_t p = a.col_ptr[1]; p < a.col_ptr[2]; ++p) a.values[static_cast<size_t>(p)] = 0;
  for (const LocalSolver solver : {LocalSolver::kQr, LocalSolver::kGram, LocalSolver::kAuto}) {
    const StaticSpaiResult result = Build(a, nullptr, With(solver));
    EXPECT_EQ(result.quality.rank_deficient_columns, 3);
    EXPECT_EQ(result.quality.non_finite_columns, 0);
    const std::vector<double> actual = ExplicitResiduals(a, result.m);
    const oracle::Dense dense = oracle::ToDense(static_cast<const CscView&>(a));
    const oracle::Vector expected =
        oracle::SpaiResiduals(dense, oracle::Spai(dense, result.m.pattern()));
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(actual[k], expected[k], 1e-12);
  }
}

TEST(StaticSpaiRobust, HugeAndTinyValuesDoNotOverflow) {
  for (const double size : {1e-300, 1e-200, 1.0, 1e200, 1e300}) {
    CscMatrix a = FromRows({{4, 1, 0}, {1, 4, 1}, {0, 1, 4}});
    for (double& v : a.values) v *= size;
    for (const LocalSolver solver : {LocalSolver::kQr, LocalSolver::kGram}) {
      const StaticSpaiResult result = Build(a, nullptr, With(solver, 2));
      EXPECT_EQ(result.quality.non_finite_columns, 0) << size;
      EXPECT_NEAR(result.quality.residual_frobenius, 0, 1e-14) << size;
      // (A⁻¹)_00 = 15/56.
      EXPECT_NEAR(result.m.values[0] * size, 15.0 / 56, 1e-14) << size;
    }
  }
}

TEST(StaticSpaiRobust, InverseThatDoesNotFitIsSetToZeroAndCounted) {
  CscMatrix a = FromRows({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}});
  a.values[1] = 1e-320;  // 1 / that is not a double
  for (const LocalSolver solver : {LocalSolver::kQr, LocalSolver::kGram}) {
    const StaticSpaiResult result = Build(a, nullptr, With(solver));
    EXPECT_EQ(result.quality.non_finite_columns, 1);
    EXPECT_EQ(result.quality.first_non_finite, 1);
    EXPECT_EQ(result.m.values[1], 0);
    EXPECT_EQ(result.residual_norms[1], 1);
    EXPECT_EQ(result.m.values[2], 1);
  }
}

// The judgement that sends a column to QR looks at the solution, not at what the filter left of it:
// a filter must neither keep a worthless solution nor send a good one away.
TEST(StaticSpaiRobust, PostFilterChangesNeitherSolverNorSolution) {
  std::vector<CscMatrix> matrices;
  for (const oracle::NamedMatrix& entry : oracle::Zoo(24)) matrices.push_back(entry.a);
  for (const double theta : {0.5, 0.8, 1.0}) matrices.push_back(OrthogonalKahan(24, theta, 25));
  int64_t rescued = 0, worse_than_zero = 0;
  for (const CscMatrix& a : matrices) {
    for (const LocalSolver solver : {LocalSolver::kGram, LocalSolver::kQr}) {
      StaticSpaiOptions options = With(solver, 2);
      const StaticSpaiResult whole = Build(a, nullptr, options);
      options.post_filter = 0.3;
      const StaticSpaiResult filtered = Build(a, nullptr, options);
      EXPECT_EQ(whole.quality.rescued_columns, filtered.quality.rescued_columns);
      EXPECT_EQ(whole.quality.rank_deficient_columns, filtered.quality.rank_deficient_columns);
      const CscMatrix expected = PostFilter(whole.m, 0.3);
      EXPECT_EQ(expected.row_idx, filtered.m.row_idx);
      EXPECT_EQ(expected.values, filtered.m.values);
      const std::vector<double> norms = ExplicitResiduals(a, filtered.m);
      const std::vector<double> rounding = RoundingOfResiduals(a, filtered.m);
      for (size_t k = 0; k < norms.size(); ++k) {
        EXPECT_NEAR(norms[k], filtered.residual_norms[k], 1e-12 * (1 + norms[k]) + rounding[k]);
        worse_than_zero += norms[k] > 1.01;
      }
      rescued += filtered.quality.rescued_columns;
    }
  }
  // Both kinds of column were there.
  EXPECT_GT(rescued, 0);
  EXPECT_GT(worse_than_zero, 0);
}

// With one column much longer than the others its lonely rows are merged: nothing may change.
TEST(StaticSpaiRobust, LongColumnAgreesWithTheOracle) {
  const int64_t n = 400;
  for (const CscMatrix& a : {oracle::Arrow(n), oracle::DenseRowAndColumn(n, 21)}) {
    const oracle::Dense dense = oracle::ToDense(static_cast<const CscView&>(a));
    for (const LocalSolver solver : {LocalSolver::kQr, LocalSolver::kGram}) {
      // The pattern of A without its dense column: J_k small, among them the dense column itself.
      Pattern narrow;
      narrow.n_rows = narrow.n_cols = n;
      narrow.col_ptr.push_back(0);
      for (int64_t k = 0; k < n; ++k) {
        const auto rows = CscView(a).column(k);
        if (rows.size() > 100) {
          narrow.row_idx.push_back(static_cast<int32_t>(k));
        } else {
          narrow.row_idx.insert(narrow.row_idx.end(), rows.begin(), rows.end());
        }
        narrow.col_ptr.push_back(static_cast<int64_t>(narrow.row_idx.size()));
      }
      const StaticSpaiResult result = Build(a, narrow, With(solver));
      const oracle::Dense expected = oracle::Spai(dense, result.m.pattern());
      const std::vector<double> explicit_norms = ExplicitResiduals(a, result.m);
      for (int64_t k = 0; k < n; ++k) {
        EXPECT_NEAR(result.residual_norms[static_cast<size_t>(k)],
                    explicit_norms[static_cast<size_t>(k)], 1e-13);
      }
      const oracle::Dense actual = oracle::ToDense(static_cast<const CscView&>(result.m));
      for (size_t p = 0; p < actual.a.size(); ++p) {
        EXPECT_NEAR(actual.a[p], expected.a[p], 1e-11);
      }
    }
  }
}

// n2 = n for one column, a dense column in every J: neither n² memory nor n² time.
TEST(StaticSpaiRobust, LargeArrowIsCheapAndNearlyExact) {
  const int64_t n = 20000;
  const CscMatrix a = oracle::Arrow(n);
  const auto start = std::chrono::steady_clock::now();
  const StaticSpaiResult result = Build(a, nullptr, {});
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(result.quality.iterative_columns, 1);
  EXPECT_EQ(result.quality.first_iterative, n - 1);
  EXPECT_EQ(result.quality.not_converged_columns, 0);
  const std::vector<double> norms = ExplicitResiduals(a, result.m);
  // A has an exact inverse, and the last column of it is in the pattern.
  EXPECT_LE(norms.back(), 1e-9);
  EXPECT_LE(result.residual_norms[static_cast<size_t>(n - 1)], 1e-9);
  // Generous: an n² algorithm takes minutes, a sanitizer build seconds.
  EXPECT_LT(elapsed.count(), 20);
}

TEST(StaticSpaiRobust, TooLargeForADenseFactorSaysThatItIterated) {
  const int64_t n = 3000;
  const CscMatrix a = oracle::DenseRowAndColumn(n, 22);
  for (const LocalSolver solver : {LocalSolver::kQr, LocalSolver::kGram}) {
    const StaticSpaiResult result = Build(a, nullptr, With(solver));
    EXPECT_EQ(result.quality.iterative_columns, 1);
    EXPECT_EQ(
        result.quality.iterative_columns + result.quality.gram_columns + result.quality.qr_columns,
        n);
  }
}

TEST(StaticSpaiRobust, RowMatchCuresAnEmptyDiagonal) {
  const CscMatrix a = oracle::RowPermuted(80, 23);
  StaticSpaiOptions options;
  const StaticSpaiResult plain = Build(a, nullptr, options);
  options.pattern.row_match = true;
  const StaticSpaiResult matched = Build(a, nullptr, options);
  EXPECT_LT(matched.quality.residual_frobenius, plain.quality.residual_frobenius);
  EXPECT_EQ(matched.quality.zero_columns, 0);
}

}  // namespace
}  // namespace spaid::kernels
