#include "kernels/sparse/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(DiagnosisTest, AGoodMatrixHasNoFindings) {
  const Diagnosis d = Diagnose(oracle::Laplacian2d(5, 4));
  EXPECT_EQ(d.n, 20);
  EXPECT_EQ(d.nnz, 20 + 2 * 31);
  EXPECT_TRUE(d.structurally_symmetric);
  EXPECT_TRUE(d.numerically_symmetric);
  EXPECT_EQ(d.asymmetry_row, -1);
  EXPECT_EQ(d.max_asymmetry, 0);
  EXPECT_EQ(d.structural_rank, 20);
  EXPECT_EQ(d.not_dominant_rows.count, 0);
  EXPECT_EQ(d.zero_sum_rows.count, 6);  // the interior, 3 x 2 points
  EXPECT_EQ(d.zero_sum_rows.first, 6);
  EXPECT_FALSE(d.constants_in_null_space);
  EXPECT_EQ(d.max_row_entries, 5);
  EXPECT_EQ(d.max_column_entries, 5);
  EXPECT_EQ(d.min_abs_value, 1);
  EXPECT_EQ(d.max_abs_value, 4);
  EXPECT_THAT(d.findings, IsEmpty());
}

TEST(DiagnosisTest, HandCheckedMess) {
  // Rows:  [ 0* 2  .  . ]   * stored zero
  //        [ .  .  3  . ]   diagonal missing
  //        [ .  1 -5  . ]
  //        [ .  .  .  . ]   empty row and column
  const CscMatrix a = Make(4, 4, {0, 1, 3, 5, 5}, {0, 0, 2, 1, 2}, {0, 2, 1, 3, -5});
  const Diagnosis d = Diagnose(a);
  EXPECT_EQ(d.explicit_zeros, 1);
  EXPECT_FALSE(d.structurally_symmetric);
  EXPECT_FALSE(d.numerically_symmetric);
  EXPECT_EQ(d.asymmetry_row, 1);  // (1, 0) is missing where (0, 1) is stored
  EXPECT_EQ(d.asymmetry_column, 0);
  EXPECT_DOUBLE_EQ(d.max_asymmetry, 2.0 / 5);
  EXPECT_EQ(d.missing_diagonal.count, 2);
  EXPECT_EQ(d.missing_diagonal.first, 1);
  EXPECT_EQ(d.zero_diagonal.count, 3);
  EXPECT_EQ(d.zero_diagonal.first, 0);
  EXPECT_EQ(d.negative_diagonal.count, 1);
  EXPECT_EQ(d.negative_diagonal.first, 2);
  EXPECT_EQ(d.empty_rows.count, 1);
  EXPECT_EQ(d.empty_rows.first, 3);
  EXPECT_EQ(d.empty_columns.count, 2);  // column 0 holds only a zero
  EXPECT_EQ(d.empty_columns.first, 0);
  EXPECT_EQ(d.structural_rank, 2);  // column 0 has no value to match
  EXPECT_EQ(d.not_dominant_rows.count, 2);
  EXPECT_EQ(d.not_dominant_rows.first, 0);
  EXPECT_EQ(d.zero_sum_rows.count, 0);
  EXPECT_EQ(d.min_abs_value, 1);
  EXPECT_EQ(d.max_abs_value, 5);
  EXPECT_THAT(d.findings, Contains(HasSubstr("1 row has no nonzero entry (first: 3)")));
  EXPECT_THAT(d.findings, Contains(HasSubstr("2 columns have no nonzero entry (first: 0)")));
  EXPECT_THAT(d.findings, Contains(HasSubstr("2 diagonal entries are not stored (first: 1)")));
  EXPECT_THAT(d.findings, Contains(HasSubstr("1 diagonal entry is stored as zero")));
  EXPECT_THAT(d.findings, Contains(HasSubstr("1 diagonal entry is negative (first: 2)")));
  EXPECT_THAT(d.findings,
              Contains(HasSubstr("pattern is not symmetric (first at row 1, column 0)")));
  EXPECT_THAT(d.findings, Contains(HasSubstr("1 stored entry is zero")));
  EXPECT_THAT(d.findings, Each(testing::EndsWith(".")));
}

TEST(DiagnosisTest, SymmetryOfValuesIsRelativeToThePair) {
  const auto pair = [](double upper, double lower) {
    return Diagnose(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {10, lower, upper, 10}));
  };
  EXPECT_TRUE(pair(1, 1 + 1e-13).numerically_symmetric);
  const Diagnosis off = pair(1, 1 + 1e-11);
  EXPECT_TRUE(off.structurally_symmetric);
  EXPECT_FALSE(off.numerically_symmetric);
  EXPECT_EQ(off.asymmetry_row, 1);
  EXPECT_EQ(off.asymmetry_column, 0);
  EXPECT_NEAR(off.max_asymmetry, 1e-12, 1e-16);
  EXPECT_THAT(off.findings, Contains(AllOf(HasSubstr("values are not"), HasSubstr("symmetrise"))));
  EXPECT_THAT(pair(1, 3).findings, Contains(HasSubstr("use BiCGSTAB or GMRES")));
}

TEST(DiagnosisTest, WhatAssemblyLeavesOfAZeroIsSymmetricAtAnyScale) {
  for (const double scale : {1e-9, 1.0, 1e9}) {  // D A D with D = diag(scale, 1)
    const auto pair = [scale](double upper, double lower) {
      return Diagnose(
          Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {scale * scale, scale * lower, scale * upper, 1}));
    };
    EXPECT_TRUE(pair(3e-18, -5e-18).numerically_symmetric);
    EXPECT_TRUE(pair(0, 1e-15).numerically_symmetric);
    EXPECT_FALSE(pair(0, 1e-14).numerically_symmetric);
  }
  // Where a diagonal entry is zero, nothing is noise.
  EXPECT_FALSE(Diagnose(Make(2, 2, {0, 1, 3}, {1, 0, 1}, {1e-18, 3e-18, 1})).numerically_symmetric);
}

TEST(DiagnosisTest, AStoredZeroBreaksOnlyThePattern) {
  const Diagnosis d = Diagnose(Make(2, 2, {0, 2, 3}, {0, 1, 1}, {1, 0, 1}));
  EXPECT_FALSE(d.structurally_symmetric);
  EXPECT_TRUE(d.numerically_symmetric);
  EXPECT_EQ(d.asymmetry_row, 1);
  EXPECT_EQ(d.asymmetry_column, 0);
}

TEST(DiagnosisTest, NeumannMatrixHasConstantsInItsNullSpace) {
  // 1-D Neumann Laplacian, scaled so that the sums are only nearly zero.
  const double h = 0.1;
  const Diagnosis d =
      Diagnose(Make(3, 3, {0, 2, 5, 7}, {0, 1, 0, 1, 2, 1, 2}, {h, -h, -h, 0.2, -h, -h, h}));
  EXPECT_TRUE(d.constants_in_null_space);
  EXPECT_EQ(d.zero_sum_rows.count, 3);
  EXPECT_THAT(d.findings, Contains(HasSubstr("constant vectors are in the null space")));
}

TEST(DiagnosisTest, StructurallySingularWithoutEmptyRows) {
  // Rows 1 and 2 share column 0 alone.
  const Diagnosis d = Diagnose(Make(3, 3, {0, 3, 4, 5}, {0, 1, 2, 0, 0}, {1, 1, 1, 1, 1}));
  EXPECT_EQ(d.empty_rows.count, 0);
  EXPECT_EQ(d.empty_columns.count, 0);
  EXPECT_EQ(d.structural_rank, 2);
  EXPECT_THAT(d.findings, Contains(HasSubstr("structural rank is 2 of 3")));
}

TEST(DiagnosisTest, DenseRowAndColumn) {
  const Diagnosis d = Diagnose(oracle::DenseRowAndColumn(200, 1));
  EXPECT_EQ(d.dense_rows.count, 1);
  EXPECT_EQ(d.dense_rows.first, 66);
  EXPECT_EQ(d.dense_columns.count, 1);
  EXPECT_EQ(d.dense_columns.first, 133);
  EXPECT_EQ(d.max_row_entries, 200);
  EXPECT_EQ(d.max_column_entries, 200);
  EXPECT_THAT(d.findings, Contains(HasSubstr("1 row is nearly dense (first: 66)")));
  EXPECT_THAT(d.findings, Contains(HasSubstr("1 column is nearly dense (first: 133)")));
}

TEST(DiagnosisTest, SignsOfTheDiagonal) {
  EXPECT_THAT(Diagnose(Make(2, 2, {0, 1, 2}, {0, 1}, {-1, -2})).findings,
              Contains(HasSubstr("All diagonal entries are negative")));
  EXPECT_THAT(Diagnose(Make(2, 2, {0, 1, 2}, {0, 1}, {-1, 2})).findings,
              Contains(HasSubstr("the matrix is not positive definite")));
}

TEST(DiagnosisTest, WideRangeAndAllZero) {
  EXPECT_THAT(Diagnose(Make(2, 2, {0, 1, 2}, {0, 1}, {1e-9, 1e9})).findings,
              Contains(HasSubstr("from 1e-09 to 1e+09")));
  const Diagnosis zero = Diagnose(Make(2, 2, {0, 1, 2}, {0, 1}, {0, 0}));
  EXPECT_EQ(zero.structural_rank, 0);
  EXPECT_EQ(zero.min_abs_value, 0);
  EXPECT_EQ(zero.max_asymmetry, 0);
  EXPECT_FALSE(zero.constants_in_null_space);
  EXPECT_THAT(zero.findings, Contains(HasSubstr("Every entry is zero")));
}

TEST(DiagnosisTest, ExtremeValuesDoNotOverflowTheFindings) {
  const double big = 1.7e308;
  const Diagnosis d = Diagnose(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {big, big, -big, big}));
  EXPECT_FALSE(d.numerically_symmetric);
  EXPECT_EQ(d.max_abs_value, big);
  EXPECT_TRUE(std::isfinite(d.max_asymmetry));
  EXPECT_DOUBLE_EQ(d.max_asymmetry, 2);
  EXPECT_EQ(d.not_dominant_rows.count, 0);
  EXPECT_EQ(d.zero_sum_rows.count, 1);  // row 0: the sums of huge values are right, too
  EXPECT_EQ(d.zero_sum_rows.first, 0);
}

// Every count again, from the dense matrix.
TEST(DiagnosisTest, EqualsTheDenseReference) {
  for (const auto& [name, a, regular] : oracle::Zoo(7)) {
    SCOPED_TRACE(name);
    const Diagnosis d = Diagnose(a);
    const int64_t n = a.n_cols;
    const oracle::Dense v = oracle::ToDense(CscView(a)), s = oracle::ToDense(a.pattern());
    int64_t missing = 0, zero = 0, not_dominant = 0, empty_rows = 0, longest = 0;
    bool structural = true, numerical = true;
    // In column-major order below the diagonal: the first pair that differs.
    int64_t pattern_row = -1, pattern_column = -1, value_row = -1, value_column = -1;
    double difference = 0, largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      missing += s(i, i) == 0;
      zero += v(i, i) == 0;
      double off = 0;
      bool empty = true;
      for (int64_t j = 0; j < n; ++j) {
        if (i != j) off += std::abs(v(i, j));
        empty &= v(i, j) == 0;
        structural &= s(i, j) == s(j, i);
        const double gap = std::abs(v(i, j) - v(j, i));
        const double noise = 8 * std::numeric_limits<double>::epsilon() *
                             std::sqrt(std::abs(v(i, i))) * std::sqrt(std::abs(v(j, j)));
        numerical &= gap <= std::max(1e-12 * std::max(std::abs(v(i, j)), std::abs(v(j, i))), noise);
        difference = std::max(difference, gap);
        largest = std::max(largest, std::abs(v(i, j)));
      }
      not_dominant += std::abs(v(i, i)) < off;
      empty_rows += empty;
    }
    for (int64_t j = n - 1; j >= 0; --j) {
      for (int64_t i = n - 1; i > j; --i) {
        if (s(i, j) != s(j, i)) pattern_row = i, pattern_column = j;
        const double gap = std::abs(v(i, j) - v(j, i));
        const double noise = 8 * std::numeric_limits<double>::epsilon() *
                             std::sqrt(std::abs(v(i, i))) * std::sqrt(std::abs(v(j, j)));
        if (gap > std::max(1e-12 * std::max(std::abs(v(i, j)), std::abs(v(j, i))), noise)) {
          value_row = i, value_column = j;
        }
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      int64_t entries = 0;
      for (int64_t j = 0; j < n; ++j) entries += s(i, j) != 0;
      longest = std::max(longest, entries);
    }
    EXPECT_EQ(d.max_row_entries, longest);
    EXPECT_EQ(d.asymmetry_row, numerical ? pattern_row : value_row);
    EXPECT_EQ(d.asymmetry_column, numerical ? pattern_column : value_column);
    EXPECT_EQ(d.missing_diagonal.count, missing);
    EXPECT_EQ(d.zero_diagonal.count, zero);
    EXPECT_EQ(d.not_dominant_rows.count, not_dominant);
    EXPECT_EQ(d.empty_rows.count, empty_rows);
    EXPECT_EQ(d.structurally_symmetric, structural);
    EXPECT_EQ(d.numerically_symmetric, numerical);
    EXPECT_EQ(d.asymmetry_row >= 0, !(structural && numerical));
    EXPECT_DOUBLE_EQ(d.max_asymmetry, largest > 0 ? difference / largest : 0);
    if (regular) {
      EXPECT_EQ(d.structural_rank, n);
    }
  }
}

}  // namespace
}  // namespace spaid::kernels
