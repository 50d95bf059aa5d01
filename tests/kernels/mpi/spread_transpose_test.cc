// The transpose over ranks, in pieces of any size: by hand, against columns that nobody has turned,
// and there and back.
#include "kernels/mpi/spread_transpose.h"

#include <limits>

#include "kernels/gallery/gallery.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

// One entry at a time, a few, all.
constexpr int64_t kPieces[] = {1, 200, kTransposePieceBytes};

// Bit for bit, on each rank for itself.
void ExpectColumns(const Result<CscMatrix>& found, const CscMatrix& expected,
                   const std::string& what) {
  EXPECT_TRUE(found.ok()) << what << ": " << found.status().message();
  if (!found.ok()) return;
  EXPECT_EQ(found->n_rows, expected.n_rows) << what;
  EXPECT_EQ(found->n_cols, expected.n_cols) << what;
  EXPECT_EQ(found->col_ptr, expected.col_ptr) << what;
  EXPECT_EQ(found->row_idx, expected.row_idx) << what;
  const auto bits = [](const Array<double>& values) {
    Array<uint64_t> all;
    for (const double v : values) all.push_back(std::bit_cast<uint64_t>(v));
    return all;
  };
  EXPECT_EQ(bits(found->values), bits(expected.values)) << what;
}

// Entry (i, j) of the whole is 10 i + j.
TEST(SpreadTranspose, AFullMatrixByHand) {
  constexpr int64_t kN = 7;
  CscMatrix whole{kN, kN, {0}, {}, {}};
  for (int32_t j = 0; j < kN; ++j) {
    for (int32_t i = 0; i < kN; ++i) {
      whole.row_idx.push_back(i);
      whole.values.push_back(10.0 * i + j);
    }
    whole.col_ptr.push_back(whole.nnz());
  }
  const SpreadMatrix a = Spread(whole);
  for (const int64_t piece : kPieces) {
    const auto columns = OwnColumns(a.rows.get(), piece);
    EXPECT_TRUE(columns.ok());
    if (!columns.ok()) continue;
    EXPECT_EQ(columns->n_cols, a.own().size());
    for (int64_t k = 0; k < columns->n_cols; ++k) {
      const auto rows = CscView(*columns).column(k);
      const auto values = CscView(*columns).column_values(k);
      EXPECT_EQ(std::ssize(rows), kN);
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(rows[i], static_cast<int32_t>(i));
        EXPECT_EQ(values[i],
                  10.0 * static_cast<double>(i) + static_cast<double>(a.own().begin + k));
      }
    }
  }
}

TEST(SpreadTranspose, IsTheMatrixByItsOtherIndex) {
  CscMatrix signs = oracle::RandomIrregular(60, 4, 8);
  signs.values[3] = -0.0;
  signs.values[5] = 0.0;
  signs.values[7] = std::numeric_limits<double>::denorm_min();
  std::vector<std::pair<std::string, CscMatrix>> matrices = {
      {"irregular", oracle::RandomIrregular(500, 6, 5)},
      {"dense row and column", oracle::DenseRowAndColumn(300, 6)},
      {"arrow", oracle::Arrow(150)},
      {"circuit", oracle::From(gallery::Circuit(700, 3, 200))},
      {"fewer rows than ranks", oracle::Laplacian2d(2, 1)},
      {"zeros with signs", signs},
      {"no entries", {9, 9, Array<int64_t>(10, 0), {}, {}}},
  };
  for (const oracle::NamedMatrix& entry : oracle::Zoo(5)) {
    matrices.emplace_back(entry.name, entry.a);
  }
  for (const auto& [name, whole] : matrices) {
    const SpreadMatrix a = Spread(whole);  // its columns are as they came
    for (const int64_t piece : kPieces) {
      const std::string what = name + ", " + std::to_string(piece) + " bytes";
      const Result<MatOwner> rows = RowsOf(PETSC_COMM_WORLD, a.columns, piece);
      EXPECT_TRUE(rows.ok()) << what;
      if (!rows.ok()) continue;
      ExpectSame(Gather(a.n, rows->get()), whole, what);
      ExpectColumns(OwnColumns(rows->get(), piece), a.columns, what);
      // By other pieces than it was made by.
      ExpectColumns(OwnColumns(a.rows.get(), piece), a.columns, what);
    }
  }
}

}  // namespace
}  // namespace spaid::kernels::mpi
