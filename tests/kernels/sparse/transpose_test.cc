#include "kernels/sparse/transpose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

TEST(TransposeTest, HandChecked) {
  // [1 0 2; 0 3 0]
  const CscMatrix t = Transpose(Make(2, 3, {0, 1, 2, 3}, {0, 1, 0}, {1, 3, 2}));
  EXPECT_EQ(t.n_rows, 3);
  EXPECT_EQ(t.n_cols, 2);
  EXPECT_THAT(t.col_ptr, ElementsAre(0, 2, 3));
  EXPECT_THAT(t.row_idx, ElementsAre(0, 2, 1));
  EXPECT_THAT(t.values, ElementsAre(1, 2, 3));
}

TEST(TransposeTest, UnsortedColumnsComeOutSortedAndDuplicatesStayInOrder) {
  const CscMatrix t = Transpose(Make(3, 2, {0, 3, 4}, {2, 0, 2, 0}, {5, 6, 7, 8}));
  EXPECT_THAT(t.col_ptr, ElementsAre(0, 2, 2, 4));
  EXPECT_THAT(t.row_idx, ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(t.values, ElementsAre(6, 8, 5, 7));
}

TEST(TransposeTest, EmptyShapes) {
  const CscMatrix t = Transpose(Make(3, 0, {0}, {}, {}));
  EXPECT_THAT(t.col_ptr, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(t.n_rows, 0);
}

TEST(TransposeTest, EqualsTheOracleAndTwiceIsTheInput) {
  for (const auto& [name, a, regular] : oracle::Zoo(11)) {
    SCOPED_TRACE(name);
    const CscMatrix t = Transpose(a);
    ExpectCanonical(t);
    EXPECT_EQ(oracle::ToDense(CscView(t)).a, oracle::Transpose(oracle::ToDense(CscView(a))).a);
    const CscMatrix back = Transpose(t);
    EXPECT_EQ(back.col_ptr, a.col_ptr);
    EXPECT_EQ(back.row_idx, a.row_idx);
    EXPECT_EQ(back.values, a.values);
    const Pattern p = Transpose(a.pattern());
    EXPECT_EQ(p.col_ptr, t.col_ptr);
    EXPECT_EQ(p.row_idx, t.row_idx);
  }
}

TEST(TransposeTest, ThreadsDoNotChangeAnEntry) {
  // Large enough for several parts, with empty columns, one that is most of the matrix, duplicates
  // and unsorted rows.
  const int64_t n_rows = 3000, n_cols = 9000;
  oracle::Random random(7);
  CscMatrix a;
  a.n_rows = n_rows;
  a.n_cols = n_cols;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n_cols; ++j) {
    const int64_t count = j == 4000 ? 300'000 : j % 10 == 3 ? 0 : 1 + random.Below(80);
    for (int64_t k = 0; k < count; ++k) {
      a.row_idx.push_back(static_cast<int32_t>(random.Below(n_rows)));
      a.values.push_back(static_cast<double>(a.nnz()));
    }
    a.col_ptr.push_back(a.nnz());
  }
  const CscMatrix serial = Transpose(a);
  for (const int threads : {2, 3, 8, 64}) {
    const auto t = Transpose(a, Context{.stop = {}, .progress = nullptr, .threads = threads});
    ASSERT_TRUE(t.ok());
    EXPECT_EQ(t->col_ptr, serial.col_ptr) << threads;
    EXPECT_EQ(t->row_idx, serial.row_idx) << threads;
    EXPECT_EQ(t->values, serial.values) << threads;
    const auto p =
        Transpose(a.pattern(), Context{.stop = {}, .progress = nullptr, .threads = threads});
    ASSERT_TRUE(p.ok());
    EXPECT_EQ(p->row_idx, serial.row_idx) << threads;
  }
  EXPECT_TRUE(std::is_sorted(serial.row_idx.begin(), serial.row_idx.begin() + serial.col_ptr[1]));
  EXPECT_EQ(
      static_cast<int64_t>(std::set<double>(serial.values.begin(), serial.values.end()).size()),
      a.nnz())
      << "every entry once";
}

TEST(TransposeTest, Stops) {
  StopSource cancel;
  cancel.Request(StopReason::kCancelled);
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  const Context context{.stop = cancel.token(), .progress = nullptr, .threads = 2};
  EXPECT_EQ(Transpose(a, context).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(Transpose(a.pattern(), context).status().code(), StatusCode::kCancelled);
}

// By rows and by columns at once, on irregular patterns: the places are a permutation, and what
// lies in them is the transpose.
TEST(TransposeTest, TurnedRowsSayWhereEntriesGo) {
  for (const oracle::NamedMatrix& named : oracle::Zoo(/*seed=*/5)) {
    const CscMatrix& a = named.a;
    const CscMatrix rows = Transpose(a);
    for (const int threads : {1, 3}) {
      const Context context{.stop = {}, .progress = nullptr, .threads = threads};
      auto turned = TurnRows({rows.n_cols, rows.n_rows, rows.col_ptr, rows.row_idx}, context);
      ASSERT_TRUE(turned.ok());
      EXPECT_EQ(turned->columns.col_ptr, a.col_ptr) << named.name;
      EXPECT_EQ(turned->columns.row_idx, a.row_idx) << named.name;
      const Array<int32_t> alone = *PlacesByRows(a.pattern(), context);
      EXPECT_EQ(turned->to, alone) << named.name;
      Array<double> values(a.values.size());
      for (size_t p = 0; p < values.size(); ++p) {
        values[static_cast<size_t>(turned->to[p])] = rows.values[p];
      }
      EXPECT_EQ(values, a.values) << named.name;
    }
  }
}

}  // namespace
}  // namespace spaid::kernels
