// Matrices over several ranks: spread and found again, and what is refused, told alike on all
// ranks.
#include "kernels/mpi/spread_matrix.h"

#include <limits>

#include "tests/kernels/mpi/support.h"

namespace spaid::kernels::mpi {
namespace {

// Rank r's block of rows [n r / ranks, n (r + 1) / ranks) of an n x n identity, by rows.
CscMatrix IdentityBlock(int64_t n) {
  CscMatrix block;
  const int64_t begin = n * Rank() / Ranks(), end = n * (Rank() + 1) / Ranks();
  block.n_rows = end - begin;
  block.n_cols = n;
  block.col_ptr.push_back(0);
  for (int64_t i = begin; i < end; ++i) {
    block.row_idx.push_back(static_cast<int32_t>(i));
    block.values.push_back(1);
    block.col_ptr.push_back(std::ssize(block.row_idx));
  }
  return block;
}

Status SpreadRows(CscMatrix block, const ValidationOptions& options = {}) {
  return SpreadBlocks(PETSC_COMM_WORLD, std::move(block), Layout::kCsr, options, {}).status();
}

TEST(SpreadMatrix, HoldsTheWholeByRowsAndByColumns) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(5)) {
    const SpreadMatrix a = Spread(entry.a);
    EXPECT_EQ(a.n, entry.a.n_cols);
    EXPECT_EQ(a.nnz, entry.a.nnz());
    ExpectSame(Gather(a.n, a.rows.get()), entry.a, entry.name + " by rows");
    Array<Entry> own;
    for (int64_t j = 0; j < a.columns.n_cols; ++j) {
      for (auto p = static_cast<size_t>(a.columns.col_ptr[static_cast<size_t>(j)]);
           p < static_cast<size_t>(a.columns.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
        own.push_back(
            {static_cast<int32_t>(a.own().begin + j), a.columns.row_idx[p], a.columns.values[p]});
      }
    }
    ExpectSame(Gather(a.n, own), entry.a, entry.name + " by columns");
  }
}

TEST(SpreadMatrix, TakesBlocksOfRows) {
  const CscMatrix whole = oracle::RandomIrregular(41, 4, 3);
  const CscMatrix rows = Transpose(CscView(whole));
  // All on the last rank but one row each.
  const int64_t begin = Rank(), end = Rank() + 1 == Ranks() ? 41 : Rank() + 1;
  CscMatrix block;
  block.n_rows = end - begin;
  block.n_cols = 41;
  for (int64_t i = begin; i <= end; ++i) {
    block.col_ptr.push_back(rows.col_ptr[static_cast<size_t>(i)] -
                            rows.col_ptr[static_cast<size_t>(begin)]);
  }
  const auto first = rows.col_ptr[static_cast<size_t>(begin)];
  const auto last = rows.col_ptr[static_cast<size_t>(end)];
  block.row_idx.assign(rows.row_idx.begin() + first, rows.row_idx.begin() + last);
  block.values.assign(rows.values.begin() + first, rows.values.begin() + last);
  const auto a = SpreadBlocks(PETSC_COMM_WORLD, block, Layout::kCsr, {}, {});
  EXPECT_TRUE(a.ok()) << a.status().message();
  if (!a.ok()) return;
  EXPECT_EQ(a->own().size(), end - begin);
  ExpectSame(Gather(41, a->rows.get()), whole, "rows");
}

TEST(SpreadMatrix, HasRanksWithoutRows) {
  CscMatrix one;
  one.n_rows = one.n_cols = 1;
  one.col_ptr = {0, 1};
  one.row_idx = {0};
  one.values = {4};
  const SpreadMatrix a = Spread(one);
  EXPECT_EQ(a.own().size(), Rank() + 1 == Ranks() ? 1 : 0);
  ExpectSame(Gather(1, a.rows.get()), one, "1 x 1");
}

TEST(SpreadMatrix, TellsAllRanksOfAFaultByTheNumbersOfTheWhole) {
  constexpr int64_t kN = 40;
  // The last row of the whole is the last rank's last one.
  const bool last = Rank() + 1 == Ranks();
  CscMatrix block = IdentityBlock(kN);
  if (last) block.row_idx.back() = kN;
  ExpectRefused(SpreadRows(block), StatusCode::kInvalidArgument, "INDEX_OUT_OF_RANGE", "col_idx",
                kN - 1);

  block = IdentityBlock(kN);
  if (last) block.values.back() = std::numeric_limits<double>::quiet_NaN();
  const Status status = SpreadRows(block);
  ExpectRefused(status, StatusCode::kInvalidArgument, "NON_FINITE_VALUE", "values", kN - 1);
  EXPECT_EQ(status.message(), "values[39] (row 39, column 39) is NaN; every value must be finite");

  block = IdentityBlock(kN);
  if (last) block.col_ptr.back() = block.col_ptr[block.col_ptr.size() - 2] - 1;
  ExpectRefused(SpreadRows(block), StatusCode::kInvalidArgument, "BAD_POINTERS", "row_ptr", kN);

  block = IdentityBlock(kN);
  if (last) {
    block.row_idx.push_back(kN - 1);
    block.values.push_back(2);
    ++block.col_ptr.back();
  }
  ExpectRefused(SpreadRows(block), StatusCode::kInvalidArgument, "DUPLICATE_ENTRY", "col_idx", kN);
  EXPECT_TRUE(SpreadRows(block, {.sort_and_sum = true}).ok());
}

TEST(SpreadMatrix, TellsTheFirstOfSeveralFaults) {
  CscMatrix block = IdentityBlock(40);
  block.row_idx[0] = -1;  // on every rank
  ExpectRefused(SpreadRows(block), StatusCode::kInvalidArgument, "INDEX_OUT_OF_RANGE", "col_idx",
                0);
}

TEST(SpreadMatrix, RefusesSizesThatDoNotFit) {
  CscMatrix block = IdentityBlock(40);
  block.n_cols = 41;
  ExpectRefused(SpreadRows(block), StatusCode::kInvalidArgument, "NOT_SQUARE", "n_rows");
  block = IdentityBlock(40);
  block.n_cols = 0;
  ExpectRefused(SpreadRows(block), StatusCode::kInvalidArgument, "EMPTY_MATRIX", "n_cols");
  if (Ranks() == 1) return;
  block = IdentityBlock(40);
  if (Rank() == 1) block.n_cols = 50;
  ExpectRefused(SpreadRows(block), StatusCode::kInvalidArgument, "SIZE_MISMATCH", "n_cols");
}

TEST(SpreadMatrix, RefusesAWholeThatIsNotSquare) {
  CscMatrix whole = oracle::Arrow(5);
  if (Rank() == 0) whole.n_rows = 6;
  const CscView view = whole;
  ExpectRefused(SpreadWhole(PETSC_COMM_WORLD, Rank() == 0 ? &view : nullptr, {}).status(),
                StatusCode::kInvalidArgument, "NOT_SQUARE", "n_cols");
}

TEST(SpreadPattern, IsCheckedAsTheMatrixIs) {
  const SpreadMatrix a = Spread(oracle::Arrow(40));
  Pattern block{40, a.own().size(), {0}, {}};
  for (int64_t k = a.own().begin; k < a.own().end; ++k) {
    block.row_idx.push_back(static_cast<int32_t>(k));
    block.col_ptr.push_back(std::ssize(block.row_idx));
  }
  EXPECT_TRUE(SpreadBlocks(a, block).ok());
  Pattern bad = block;
  if (Rank() + 1 == Ranks()) bad.row_idx.back() = 40;
  ExpectRefused(SpreadBlocks(a, bad).status(), StatusCode::kInvalidArgument, "INDEX_OUT_OF_RANGE",
                "row_idx", 39);
  bad = block;
  if (Rank() + 1 == Ranks()) bad.n_rows = 41;
  ExpectRefused(SpreadBlocks(a, bad).status(), StatusCode::kInvalidArgument,
                "PATTERN_SIZE_MISMATCH", "user_pattern");
}

}  // namespace
}  // namespace spaid::kernels::mpi
