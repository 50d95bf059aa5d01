#include "kernels/sparse/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

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

TEST(DiagnosisTest, ConstantsOfEitherSide) {
  // Rows alone, columns alone, both of a matrix that is not symmetric; and a row that spoils it.
  const Diagnosis rows = Diagnose(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, -2, -1, 2}));
  EXPECT_TRUE(rows.constants_in_null_space);
  EXPECT_FALSE(rows.constants_in_left_null_space);
  EXPECT_EQ(rows.zero_sum_columns.count, 0);
  const Diagnosis columns = Diagnose(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, -1, -2, 2}));
  EXPECT_FALSE(columns.constants_in_null_space);
  EXPECT_TRUE(columns.constants_in_left_null_space);
  EXPECT_EQ(columns.zero_sum_columns.count, 2);
  EXPECT_THAT(columns.findings, Contains(HasSubstr("Every column sums to zero")));
  const Diagnosis ring =
      Diagnose(Make(3, 3, {0, 2, 4, 6}, {0, 1, 1, 2, 0, 2}, {1, -1, 1, -1, -1, 1}));
  EXPECT_TRUE(ring.constants_in_null_space);
  EXPECT_TRUE(ring.constants_in_left_null_space);
  EXPECT_FALSE(ring.numerically_symmetric);
  const Diagnosis spoilt = Diagnose(Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, -1, -1, 1.1}));
  EXPECT_EQ(spoilt.zero_sum_columns.count, 1);
  EXPECT_EQ(spoilt.zero_sum_columns.first, 0);
  EXPECT_FALSE(spoilt.constants_in_left_null_space);
  // With an empty column beside it.
  EXPECT_TRUE(Diagnose(Make(3, 3, {0, 2, 4, 4}, {0, 1, 0, 1}, {1, -1, -2, 2}))
                  .constants_in_left_null_space);
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

// Large enough to be divided, in the ways that decide how it is looked at.
struct Divided {
  const char* name;
  bool lopsided;         // rows near either end have entries that their columns have not
  bool other_values;     // nearly every pair differs
  bool missing_mirrors;  // many an entry has none
  double factor;
};

CscMatrix Band(const Divided& kind) {
  constexpr int64_t kN = 4000, kBand = 81;  // 324,000 entries: eight parts
  CscMatrix a;
  a.n_rows = a.n_cols = kN;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < kN; ++j) {
    const int64_t first = kind.lopsided ? std::clamp<int64_t>(j - kBand / 2, 0, kN - kBand)
                                        : std::max<int64_t>(0, j - kBand / 2);
    const int64_t last = kind.lopsided ? first + kBand : std::min(kN, j + kBand / 2 + 1);
    for (int64_t i = first; i < last; ++i) {
      if (kind.missing_mirrors && (7 * i + j) % 11 == 0) continue;
      if (i == j && j % 1000 == 999) continue;
      double v = i == j ? 2.0 * kBand : -1.0 - 0.25 * static_cast<double>((i * j) % 3);
      if (kind.other_values && i > j) v *= 1.5;
      if (i == j && j % 500 == 3) v = -v;
      if (i + j == 4321) v = 0;
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(kind.factor * v);
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

void ExpectSame(const Occurrence& x, const Occurrence& y, const char* what) {
  EXPECT_EQ(x.count, y.count) << what;
  EXPECT_EQ(x.first, y.first) << what;
}

void ExpectSame(const Diagnosis& x, const Diagnosis& y) {
  EXPECT_EQ(x.structurally_symmetric, y.structurally_symmetric);
  EXPECT_EQ(x.numerically_symmetric, y.numerically_symmetric);
  EXPECT_EQ(x.asymmetry_row, y.asymmetry_row);
  EXPECT_EQ(x.asymmetry_column, y.asymmetry_column);
  EXPECT_EQ(x.max_asymmetry, y.max_asymmetry);
  ExpectSame(x.missing_diagonal, y.missing_diagonal, "missing_diagonal");
  ExpectSame(x.zero_diagonal, y.zero_diagonal, "zero_diagonal");
  ExpectSame(x.negative_diagonal, y.negative_diagonal, "negative_diagonal");
  ExpectSame(x.empty_rows, y.empty_rows, "empty_rows");
  ExpectSame(x.empty_columns, y.empty_columns, "empty_columns");
  ExpectSame(x.not_dominant_rows, y.not_dominant_rows, "not_dominant_rows");
  ExpectSame(x.zero_sum_rows, y.zero_sum_rows, "zero_sum_rows");
  ExpectSame(x.dense_rows, y.dense_rows, "dense_rows");
  ExpectSame(x.dense_columns, y.dense_columns, "dense_columns");
  EXPECT_EQ(x.max_row_entries, y.max_row_entries);
  EXPECT_EQ(x.max_column_entries, y.max_column_entries);
  EXPECT_EQ(x.min_abs_value, y.min_abs_value);
  EXPECT_EQ(x.max_abs_value, y.max_abs_value);
  EXPECT_EQ(x.explicit_zeros, y.explicit_zeros);
  EXPECT_EQ(x.structural_rank, y.structural_rank);
  EXPECT_EQ(x.findings, y.findings);
}

// Rows, and the first pairs that differ, in the plainest way.
void ExpectPlainRows(const CscMatrix& a, const Diagnosis& d) {
  std::vector<std::map<int64_t, double>> rows(static_cast<size_t>(a.n_rows));
  const CscView view = a;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (size_t k = 0; k < view.column(j).size(); ++k) {
      rows[static_cast<size_t>(view.column(j)[k])][j] = view.column_values(j)[k];
    }
  }
  Occurrence not_dominant, zero_sum;
  int64_t longest = 0, lonely = 0;
  const double scale = d.max_abs_value > 1e290 ? 0x1p-64 : 1;
  for (int64_t i = 0; i < a.n_rows; ++i) {
    const auto& row = rows[static_cast<size_t>(i)];
    double sum = 0, off = 0, diagonal = 0;
    for (const auto& [j, v] : row) {
      sum += scale * v;
      (i == j ? diagonal : off) += scale * std::abs(v);
      lonely += rows[static_cast<size_t>(j)].contains(i) ? 0 : 1;
    }
    if (diagonal < off && not_dominant.count++ == 0) not_dominant.first = i;
    if (std::abs(sum) <= 1e-12 * (off + diagonal) && zero_sum.count++ == 0) zero_sum.first = i;
    longest = std::max(longest, static_cast<int64_t>(row.size()));
  }
  ExpectSame(d.not_dominant_rows, not_dominant, "not_dominant_rows");
  ExpectSame(d.zero_sum_rows, zero_sum, "zero_sum_rows");
  EXPECT_EQ(d.max_row_entries, longest);
  EXPECT_EQ(d.structurally_symmetric, lonely == 0);
}

TEST(DiagnosisTest, IsTheSameForAnyNumberOfThreads) {
  for (const Divided& kind :
       {Divided{"symmetric", false, false, false, 1}, Divided{"lopsided", true, false, false, 1},
        Divided{"other values", false, true, false, 1},
        Divided{"lopsided, other values", true, true, false, 1},
        Divided{"missing mirrors", false, false, true, 1},
        Divided{"huge", false, false, false, 1e305},
        Divided{"huge, lopsided", true, false, false, 1e305},
        Divided{"huge, other values", true, true, true, 1e305}}) {
    SCOPED_TRACE(kind.name);
    const CscMatrix a = Band(kind);
    const Diagnosis one = Diagnose(a, 1);
    ExpectPlainRows(a, one);
    EXPECT_EQ(one.numerically_symmetric,
              !kind.lopsided && !kind.other_values && !kind.missing_mirrors);
    for (const int threads : {2, 3, 8, 20}) {
      SCOPED_TRACE(threads);
      ExpectSame(Diagnose(a, threads), one);
    }
    const ValueRange range = RangeOf(a.values);
    ExpectSame(Diagnose(a, 3, &range), one);
  }
}

// A long row that its column does not equal: few entries are odd, but a look at each costs much.
TEST(DiagnosisTest, ALongOddRowIsLookedAtLikeAnyOther) {
  CscMatrix a = Band({"symmetric", false, false, false, 1});
  CscMatrix b;
  b.n_rows = b.n_cols = a.n_cols;
  b.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const CscView view = a;
    if (view.column(j).front() > 0) {  // row 0 is full, column 0 is not
      b.row_idx.push_back(0);
      b.values.push_back(0.5);
    }
    b.row_idx.insert(b.row_idx.end(), view.column(j).begin(), view.column(j).end());
    b.values.insert(b.values.end(), view.column_values(j).begin(), view.column_values(j).end());
    b.col_ptr.push_back(b.nnz());
  }
  const Diagnosis one = Diagnose(b, 1);
  ExpectPlainRows(b, one);
  EXPECT_EQ(one.dense_rows.count, 1);
  EXPECT_EQ(one.max_row_entries, 4000);
  ExpectSame(Diagnose(b, 8), one);
}

}  // namespace
}  // namespace spaid::kernels
