#include "kernels/sparse/row_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RowRuns, ByHand) {
  // Rows 0 to 2 have the same columns, 3 others, 4 and 5 as many as 3 but not the same ones.
  const CscMatrix a =
      Make(6, 6, {0, 2, 4, 6, 7, 8, 9}, {0, 1, 0, 1, 0, 1, 3, 4, 4}, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(FindRowRuns(a.pattern(), 1), ElementsAre(3, 0, 0, 1, 2, 0));
  EXPECT_EQ(RowRun(a.pattern(), 0, 6), 3);
  EXPECT_EQ(RowRun(a.pattern(), 0, 2), 2);
  EXPECT_EQ(RowRun(a.pattern(), 3, 6), 1);
}

TEST(RowRuns, AreNotToldWhereTheyAreFew) {
  EXPECT_THAT(FindRowRuns(oracle::Laplacian2d(30, 30).pattern(), 2), IsEmpty());
  EXPECT_THAT(
      FindRowRuns(CscMatrix{.n_rows = 0, .n_cols = 0, .col_ptr = {0}, .row_idx = {}, .values = {}}
                      .pattern(),
                  2),
      IsEmpty());
  const CscMatrix none = Make(3, 3, {0, 0, 0, 0}, {}, {});
  EXPECT_THAT(FindRowRuns(none.pattern(), 1), IsEmpty()) << "empty rows are alike, and nothing";
}

TEST(RowRuns, AreNodesAndTheSameForAnyNumberOfThreads) {
  for (int size = 2; size <= 7; ++size) {
    SCOPED_TRACE(size);
    const CscMatrix a = OfNodes(oracle::Laplacian2d(60, 50).pattern(), size, 1);
    const auto runs = FindRowRuns(a.pattern(), 1);
    ASSERT_EQ(static_cast<int64_t>(runs.size()), a.n_cols);
    for (int64_t i = 0; i < a.n_cols; i += runs[static_cast<size_t>(i)]) {
      ASSERT_GT(runs[static_cast<size_t>(i)], 0) << i;
      ASSERT_LE(i % size + runs[static_cast<size_t>(i)], size) << i << ": within a node";
    }
    EXPECT_EQ(FindRowRuns(a.pattern(), 3), runs);
  }
}

}  // namespace
}  // namespace spaid::kernels
