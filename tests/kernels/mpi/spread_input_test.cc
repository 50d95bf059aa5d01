// Matrices that come piece by piece, against those that came as a whole; their diagnosis against
// that of one process.
#include "kernels/mpi/spread_input.h"

#include <limits>
#include <random>

#include "kernels/gallery/gallery.h"
#include "kernels/mpi/session.h"
#include "kernels/mpi/spread_diagnosis.h"
#include "kernels/sparse/transpose.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

// As rank 0 has the arrays, of rows or columns.
Result<SpreadMatrix> SendInPieces(const CscMatrix& arrays, Layout layout, int64_t piece,
                                  bool sort_and_sum = false) {
  SpreadInput input(PETSC_COMM_WORLD, arrays.n_cols, arrays.nnz(), layout, sort_and_sum);
  const bool root = Rank() == 0;
  const Status begun =
      input.Begin(root ? std::span<const int64_t>(arrays.col_ptr) : std::span<const int64_t>());
  if (!begun.ok()) return begun;
  const auto part = [&]<class T>(const Array<T>& of, int64_t first, int64_t count) {
    return root ? std::span<const T>(of).subspan(static_cast<size_t>(first),
                                                 static_cast<size_t>(count))
                : std::span<const T>();
  };
  // Values first for some, so that no order of the arrays is taken for granted.
  for (int64_t first = 0; first < arrays.nnz(); first += piece) {
    const int64_t count = std::min(piece, arrays.nnz() - first);
    input.TakeValues(first, count, part(arrays.values, first, count));
  }
  for (int64_t first = 0; first < arrays.nnz(); first += piece) {
    const int64_t count = std::min(piece, arrays.nnz() - first);
    input.TakeIndices(first, count, part(arrays.row_idx, first, count));
  }
  return input.Finish({});
}

// The columns that all ranks own, on rank 0.
CscMatrix Whole(const SpreadMatrix& a) {
  Array<Entry> own;
  for (int64_t k = 0; k < a.columns.n_cols; ++k) {
    for (auto p = static_cast<size_t>(a.columns.col_ptr[static_cast<size_t>(k)]);
         p < static_cast<size_t>(a.columns.col_ptr[static_cast<size_t>(k) + 1]); ++p) {
      own.push_back(
          {static_cast<int32_t>(a.own().begin + k), a.columns.row_idx[p], a.columns.values[p]});
    }
  }
  return Gather(a.n, own);
}

TEST(SpreadInput, ComesTogetherInPiecesOfAnySize) {
  const std::pair<std::string, CscMatrix> matrices[] = {
      {"irregular", oracle::RandomIrregular(300, 6, 5)},
      {"dense row and column", oracle::DenseRowAndColumn(200, 6)},
      {"arrow", oracle::Arrow(150)},
      {"fewer rows than ranks", oracle::Laplacian2d(2, 1)},
  };
  for (const auto& [name, a] : matrices) {
    for (const int64_t piece : {int64_t{7}, int64_t{64}, a.nnz()}) {
      const auto by_columns = SendInPieces(a, Layout::kCsc, piece);
      ASSERT_TRUE(by_columns.ok()) << name << ": " << by_columns.status().message();
      EXPECT_EQ(by_columns->nnz, a.nnz());
      ExpectSame(Whole(*by_columns), a, name);
      ExpectSame(Gather(a.n_cols, by_columns->rows.get()), a, name + ", as PETSc has it");
      const auto rows = Transpose(a, {});
      ASSERT_TRUE(rows.ok());
      const auto by_rows = SendInPieces(*rows, Layout::kCsr, piece);
      ASSERT_TRUE(by_rows.ok()) << name << ": " << by_rows.status().message();
      ExpectSame(Whole(*by_rows), a, name + ", by rows");
    }
  }
}

TEST(SpreadInput, RanksHaveAboutAsManyEntries) {
  // The first column has half of all entries.
  const CscMatrix a = oracle::Arrow(4000);
  const auto spread = SendInPieces(a, Layout::kCsc, 1000);
  ASSERT_TRUE(spread.ok());
  const int64_t own = spread->columns.nnz() + spread->own().size();
  EXPECT_LE(own, (a.nnz() + a.n_cols) / Ranks() + 8001) << "a column is not divided";
  const CscMatrix grid = oracle::Laplacian2d(60, 60);
  const auto even = SendInPieces(grid, Layout::kCsr, 999);
  ASSERT_TRUE(even.ok());
  EXPECT_LE(even->columns.nnz(), grid.nnz() * 11 / 10 / Ranks() + 10);
}

TEST(SpreadInput, RepeatedEntriesAreSummedWhereThatIsAsked) {
  CscMatrix twice = oracle::Laplacian2d(9, 8);
  CscMatrix doubled{twice.n_rows, twice.n_cols, {0}, {}, {}};
  for (int64_t j = 0; j < twice.n_cols; ++j) {
    for (int copy = 0; copy < 2; ++copy) {
      for (auto p = static_cast<size_t>(twice.col_ptr[static_cast<size_t>(j)]);
           p < static_cast<size_t>(twice.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
        doubled.row_idx.push_back(twice.row_idx[p]);
        doubled.values.push_back(twice.values[p] / 2);
      }
    }
    doubled.col_ptr.push_back(std::ssize(doubled.row_idx));
  }
  const auto summed = SendInPieces(doubled, Layout::kCsc, 50, /*sort_and_sum=*/true);
  ASSERT_TRUE(summed.ok()) << summed.status().message();
  EXPECT_EQ(summed->nnz, twice.nnz());
  ExpectSame(Whole(*summed), twice, "summed");
  EXPECT_EQ(SendInPieces(doubled, Layout::kCsc, 50).status().code(), StatusCode::kInvalidArgument);
}

// Values alone, on the pattern of a matrix that lies there: as if all had come.
TEST(SpreadInput, ValuesAloneComeOnAKnownPattern) {
  const std::pair<std::string, CscMatrix> matrices[] = {
      {"irregular", oracle::RandomIrregular(300, 6, 5)},
      {"dense row and column", oracle::DenseRowAndColumn(200, 6)},
      {"fewer rows than ranks", oracle::Laplacian2d(2, 1)},
  };
  for (const auto& [name, a] : matrices) {
    const auto rows = Transpose(a, {});
    ASSERT_TRUE(rows.ok());
    for (const Layout first : {Layout::kCsc, Layout::kCsr}) {
      const auto like = SendInPieces(first == Layout::kCsc ? a : *rows, first, 64);
      ASSERT_TRUE(like.ok());
      for (const Layout layout : {Layout::kCsc, Layout::kCsr}) {
        CscMatrix next = layout == Layout::kCsc ? a : *rows;
        for (size_t p = 0; p < next.values.size(); ++p) {
          next.values[p] = 1 + 1 / static_cast<double>(p + 1);
        }
        SpreadInput input(PETSC_COMM_WORLD, a.n_cols, a.nnz(), layout, false);
        ASSERT_TRUE(input.Begin(*like).ok());
        for (int64_t at = 0; at < a.nnz(); at += 50) {
          const int64_t count = std::min<int64_t>(50, a.nnz() - at);
          input.TakeValues(at, count,
                           Rank() == 0
                               ? std::span<const double>(next.values)
                                     .subspan(static_cast<size_t>(at), static_cast<size_t>(count))
                               : std::span<const double>());
        }
        const auto made = input.Finish({});
        ASSERT_TRUE(made.ok()) << made.status().message();
        const CscMatrix whole = layout == Layout::kCsc ? next : *Transpose(next, {});
        ExpectSame(Whole(*made), whole, name);
        ExpectSame(Gather(a.n_cols, made->rows.get()), whole, name + ", as PETSc has it");
        EXPECT_EQ(made->begin, like->begin);
      }
    }
  }
}

// The words of one process, whichever rank finds it.
TEST(SpreadInput, BadInputIsToldAsByOneProcess) {
  const CscMatrix good = oracle::Laplacian2d(20, 20);
  const auto as_one = [&](CscMatrix bad, Layout layout) {
    const auto single = Canonicalize(bad, layout, {});
    const Status found = SendInPieces(bad, layout, 77).status();
    ASSERT_FALSE(single.ok());
    EXPECT_EQ(found.reason(), single.status().reason());
    EXPECT_EQ(found.message(), single.status().message());
    EXPECT_EQ(found.field(), single.status().field());
    EXPECT_EQ(found.index(), single.status().index());
  };
  for (const Layout layout : {Layout::kCsc, Layout::kCsr}) {
    CscMatrix bad = good;
    bad.values[static_cast<size_t>(bad.nnz() - 2)] = std::numeric_limits<double>::infinity();
    as_one(bad, layout);
    bad = good;
    bad.row_idx[static_cast<size_t>(bad.nnz() - 1)] = 400;
    as_one(bad, layout);
    bad = good;
    std::swap(bad.row_idx[static_cast<size_t>(bad.nnz() - 1)],
              bad.row_idx[static_cast<size_t>(bad.nnz() - 2)]);
    as_one(bad, layout);
    bad = good;
    bad.col_ptr[250] = bad.col_ptr[251] + 1;
    as_one(bad, layout);
    bad = good;
    bad.col_ptr[0] = 1;
    as_one(bad, layout);
    bad = good;
    bad.col_ptr.back() -= 1;
    as_one(bad, layout);
  }
}

TEST(SpreadDiagnosis, IsThatOfOneProcess) {
  CscMatrix neumann = oracle::Laplacian2d(10, 9);
  for (int64_t j = 0; j < neumann.n_cols; ++j) {
    double sum = 0;
    size_t diagonal = 0;
    for (auto p = static_cast<size_t>(neumann.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(neumann.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      if (neumann.row_idx[p] == j) {
        diagonal = p;
      } else {
        sum += neumann.values[p];
      }
    }
    neumann.values[diagonal] = -sum;
  }
  std::vector<std::pair<std::string, CscMatrix>> matrices;
  for (const oracle::NamedMatrix& entry : oracle::Zoo(3))
    matrices.emplace_back(entry.name, entry.a);
  matrices.emplace_back("Neumann", neumann);
  matrices.emplace_back("irregular", oracle::RandomIrregular(500, 5, 9));
  matrices.emplace_back("zero diagonal", oracle::ZeroDiagonal(120, 2));
  matrices.emplace_back("badly scaled", oracle::BadlyScaled(200, 4));
  matrices.emplace_back("Stokes", oracle::From(gallery::Stokes2d(9)));
  CscMatrix nearly = oracle::Laplacian2d(14, 14);
  nearly.values[1] *= 1 + 1e-9;
  matrices.emplace_back("nearly symmetric", nearly);
  for (const auto& [name, a] : matrices) {
    const auto found = DiagnoseSpread(Spread(a));
    ASSERT_TRUE(found.ok()) << name;
    const Diagnosis expected = Diagnose(a, 1);
    const auto same = [&, &label = name](const char* what, const Occurrence& x,
                                         const Occurrence& y) {
      EXPECT_EQ(x.count, y.count) << label << ": " << what;
      EXPECT_EQ(x.first, y.first) << label << ": " << what;
    };
    EXPECT_EQ(found->n, expected.n);
    EXPECT_EQ(found->nnz, expected.nnz);
    EXPECT_EQ(found->explicit_zeros, expected.explicit_zeros) << name;
    EXPECT_EQ(found->structurally_symmetric, expected.structurally_symmetric) << name;
    EXPECT_EQ(found->numerically_symmetric, expected.numerically_symmetric) << name;
    EXPECT_EQ(found->asymmetry_column, expected.asymmetry_column) << name;
    EXPECT_EQ(found->asymmetry_row, expected.asymmetry_row) << name;
    EXPECT_NEAR(found->max_asymmetry, expected.max_asymmetry, 1e-15) << name;
    EXPECT_EQ(found->max_abs_value, expected.max_abs_value) << name;
    EXPECT_EQ(found->min_abs_value, expected.min_abs_value) << name;
    EXPECT_EQ(found->max_row_entries, expected.max_row_entries) << name;
    EXPECT_EQ(found->max_column_entries, expected.max_column_entries) << name;
    EXPECT_EQ(found->constants_in_null_space, expected.constants_in_null_space) << name;
    EXPECT_EQ(found->constants_in_left_null_space, expected.constants_in_left_null_space) << name;
    same("missing_diagonal", found->missing_diagonal, expected.missing_diagonal);
    same("zero_diagonal", found->zero_diagonal, expected.zero_diagonal);
    same("negative_diagonal", found->negative_diagonal, expected.negative_diagonal);
    same("empty_rows", found->empty_rows, expected.empty_rows);
    same("empty_columns", found->empty_columns, expected.empty_columns);
    same("not_dominant_rows", found->not_dominant_rows, expected.not_dominant_rows);
    same("zero_sum_rows", found->zero_sum_rows, expected.zero_sum_rows);
    same("zero_sum_columns", found->zero_sum_columns, expected.zero_sum_columns);
    same("dense_rows", found->dense_rows, expected.dense_rows);
    same("dense_columns", found->dense_columns, expected.dense_columns);
    if (expected.zero_diagonal.count == 0) {
      EXPECT_EQ(found->structural_rank, expected.structural_rank) << name;
      EXPECT_EQ(found->findings, expected.findings) << name;
    }
  }
}

// Begin, pieces, arrival, and a build whose M stays there, by orders.
TEST(SpreadInput, GoesByOrdersAndItsMStays) {
  const CscMatrix a = oracle::From(gallery::Laplace27(8));
  Session session(PETSC_COMM_WORLD, 1);
  const auto run = [&](Order order, AtRoot& root) {
    const Status status = session.Do(order, Rank() == 0 ? &root : nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
  };
  AtRoot root;
  root.pointers = a.col_ptr;
  run({.what = Order::What::kBegin, .made = 1, .n = a.n_cols, .nnz = a.nnz()}, root);
  root = {};
  root.indices = a.row_idx;
  run({.what = Order::What::kIndices, .a = 1, .first = 0, .entries = a.nnz()}, root);
  root = {};
  root.values = a.values;
  run({.what = Order::What::kValues, .a = 1, .first = 0, .entries = a.nnz()}, root);
  root = {};
  run({.what = Order::What::kArrived, .made = 2, .a = 1}, root);
  if (Rank() == 0) {
    EXPECT_EQ(root.nnz, a.nnz());
    EXPECT_TRUE(root.diagnosis.numerically_symmetric);
  }
  FsaiOptions options;
  options.adaptive = false;
  Order build{.what = Order::What::kFsai, .made = 3, .a = 2, .gather = false};
  Pack(options, build);
  root = {};
  run(build, root);
  if (Rank() == 0) {
    EXPECT_EQ(root.built.m.n_cols, 0) << "M stays there";
    EXPECT_EQ(root.nnz, (a.nnz() + a.n_cols) / 2) << "of G";
  }
  SolveOptions by{.method = Method::kCg, .rtol = 1e-9};
  Order solve{.what = Order::What::kSolve, .nnz_m = 1, .a = 2, .m = 3};
  Pack(by, solve);
  const std::vector<double> b(static_cast<size_t>(a.n_cols), 1.0);
  root = {};
  root.b = b;
  run(solve, root);
  if (Rank() == 0) {
    EXPECT_EQ(root.solved.rhs.at(0).outcome, Outcome::kConverged);
  }
  run({.what = Order::What::kFree, .made = 2}, root);
}

}  // namespace
}  // namespace spaid::kernels::mpi
