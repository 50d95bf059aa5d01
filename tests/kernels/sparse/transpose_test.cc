#include "kernels/sparse/transpose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace spaid::kernels
