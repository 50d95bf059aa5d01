// All that rank 0 gets of matrices that lie over the ranks: pieces of them, products, whether two
// are the same; and Jacobi's M.
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/engine/jacobi.h"
#include "kernels/krylov/operators.h"
#include "kernels/mpi/session.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

// A session, and what rank 0 asks of it.
class Outputs : public ::testing::Test {
 protected:
  Status Do(const Order& order, AtRoot* root) {
    return session_.Do(order, Rank() == 0 ? root : nullptr);
  }
  void SpreadAs(int64_t number, const CscMatrix& matrix) {
    const CscView view = matrix;
    AtRoot root;
    root.matrix = &view;
    const Status status = Do({.what = Order::What::kSpread, .made = number}, &root);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // Begins the output `number` of what lies there as `of`; its entries, on rank 0.
  int64_t BeginAs(int64_t number, int64_t of, bool by_rows = false) {
    AtRoot root;
    const Status status =
        Do({.what = Order::What::kOutput, .made = number, .a = of, .by_rows = by_rows}, &root);
    EXPECT_TRUE(status.ok()) << status.message();
    return root.nnz;
  }
  // All of it, `piece` elements at a time. `nnz`: on all ranks.
  CscMatrix ReadAll(int64_t number, int64_t n, int64_t nnz, int64_t piece) {
    CscMatrix m;
    m.n_rows = m.n_cols = n;
    const auto read = [&](Order::Array array, int64_t size, auto& to, auto AtRoot::*span) {
      if (Rank() == 0) to.resize(static_cast<size_t>(size));
      for (int64_t first = 0; first < size; first += piece) {
        const int64_t count = std::min(piece, size - first);
        AtRoot root;
        if (Rank() == 0) {
          root.*span =
              std::span(to).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
        }
        EXPECT_TRUE(Do({.what = Order::What::kPiece,
                        .a = number,
                        .first = first,
                        .entries = count,
                        .array = array},
                       &root)
                        .ok());
      }
    };
    read(Order::Array::kPointers, n + 1, m.col_ptr, &AtRoot::pointers_to);
    read(Order::Array::kIndices, nnz, m.row_idx, &AtRoot::indices_to);
    read(Order::Array::kValues, nnz, m.values, &AtRoot::values_to);
    return m;
  }
  // `m`, on rank 0: what lies there as `of`, as it was gathered.
  void ExpectOutput(int64_t of, const CscMatrix& m, int64_t n, bool by_rows,
                    const std::string& what) {
    int64_t nnz = BeginAs(99, of, by_rows);
    if (Rank() == 0) {
      EXPECT_EQ(nnz, m.nnz()) << what;
    }
    Must(MPI_Bcast(&nnz, 1, MPI_INT64_T, 0, PETSC_COMM_WORLD));
    for (const int64_t piece : {int64_t{1} << 20, int64_t{17}}) {
      ExpectSame(ReadAll(99, n, nnz, piece), m, what);
    }
    EXPECT_TRUE(Do({.what = Order::What::kFree, .made = 99}, nullptr).ok());
  }

  Session session_{PETSC_COMM_WORLD, 1};
};

TEST_F(Outputs, MComesByColumnsWithTheBitsOfTheWhole) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(5)) {
    SpreadAs(1, entry.a);
    Order plan{.what = Order::What::kPlan, .made = 2, .a = 1};
    Pack(StaticSpaiOptions(), plan);
    AtRoot planned, root;
    ASSERT_TRUE(Do(plan, &planned).ok()) << entry.name;
    ASSERT_TRUE(Do({.what = Order::What::kBuild, .made = 3, .a = 1, .plan = 2}, &root).ok());
    ExpectOutput(3, root.built.m, entry.a.n_cols, false, entry.name);
  }
}

TEST_F(Outputs, GComesByColumns) {
  const CscMatrix a = oracle::RandomSpd(300, 7, 3);
  SpreadAs(1, a);
  for (const bool adaptive : {false, true}) {
    Order order{.what = Order::What::kFsai, .adaptive = adaptive, .made = 2, .a = 1};
    FsaiOptions options;
    options.adaptive = adaptive;
    Pack(options, order);
    AtRoot root;
    ASSERT_TRUE(Do(order, &root).ok());
    CscMatrix g;
    if (Rank() == 0) g = *Transpose(root.built.m, {});
    ExpectOutput(2, g, a.n_cols, false, adaptive ? "adaptive" : "static");
  }
}

TEST_F(Outputs, AComesByColumnsAndByRows) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(7)) {
    SpreadAs(1, entry.a);
    ExpectOutput(1, entry.a, entry.a.n_cols, false, entry.name);
    ExpectOutput(1, *Transpose(entry.a, {}), entry.a.n_cols, true, entry.name + " by rows");
  }
}

// A rank may have no rows at all, and the last one has a pointer more.
TEST_F(Outputs, OfFewerRowsThanRanks) {
  const CscMatrix a = oracle::Laplacian2d(1, 2);
  SpreadAs(1, a);
  ExpectOutput(1, a, 2, false, "two rows");
}

TEST_F(Outputs, OfHyprePreconditionersThereAreNone) {
  const CscMatrix a = oracle::Laplacian2d(8, 8);
  SpreadAs(1, a);
  Order order{.what = Order::What::kPetsc, .count = 0, .made = 2, .a = 1};
  order.method = PetscMethod::kBoomeramg;
  Pack(PetscEngineOptions(), order);
  AtRoot root;
  ASSERT_TRUE(Do(order, &root).ok());
  ExpectRefused(Do({.what = Order::What::kOutput, .made = 3, .a = 2}, &root),
                StatusCode::kFailedPrecondition, "MATRIX_OVER_RANKS", "preconditioner");
}

TEST_F(Outputs, ProductsAreThoseOfOneProcess) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(7)) {
    const auto n = static_cast<size_t>(entry.a.n_cols);
    std::vector<double> x(n), y(n), expected(n), sizes(n), x_sizes(n);
    for (size_t i = 0; i < n; ++i) x[i] = std::sin(static_cast<double>(i * i));
    for (size_t i = 0; i < n; ++i) x_sizes[i] = std::abs(x[i]);
    SpreadAs(1, entry.a);
    AtRoot root;
    root.x = x;
    root.y = y;
    ASSERT_TRUE(Do({.what = Order::What::kMultiply, .a = 1}, &root).ok());
    if (Rank() != 0) continue;
    ColumnOperator(entry.a).Apply(x, expected, 1);
    CscMatrix positive = entry.a;
    for (double& value : positive.values) value = std::abs(value);
    ColumnOperator(positive).Apply(x_sizes, sizes, 1);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(y[i], expected[i], 1e-14 * sizes[i] * std::sqrt(static_cast<double>(n)))
          << entry.name << " " << i;
    }
  }
}

TEST_F(Outputs, TheSameIsThatToTheLastBit) {
  const CscMatrix a = oracle::RandomIrregular(200, 6, 11);
  const auto same = [&](int64_t one, int64_t other) {
    AtRoot root;
    EXPECT_TRUE(Do({.what = Order::What::kSame, .a = one, .m = other}, &root).ok());
    return root.same;
  };
  SpreadAs(1, a);
  SpreadAs(2, a);
  CscMatrix b = a;
  b.values.back() = std::nextafter(b.values.back(), 1e9);  // the last rank's
  SpreadAs(3, b);
  CscMatrix zero = a, minus = a;
  zero.values.front() = 0.0;
  minus.values.front() = -0.0;
  SpreadAs(4, zero);
  SpreadAs(5, minus);
  SpreadAs(6, oracle::Laplacian2d(20, 10));
  const std::vector<bool> found = {same(1, 2), same(1, 3), same(4, 5), same(1, 6)};
  if (Rank() == 0) {
    EXPECT_EQ(found, (std::vector<bool>{true, false, false, false}));
  }
}

TEST_F(Outputs, JacobiIsThatOfOneProcess) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(9)) {
    SpreadAs(1, entry.a);
    AtRoot root;
    const Status status = Do({.what = Order::What::kJacobi, .made = 2, .a = 1}, &root);
    const auto single = BuildJacobi(entry.a, {});
    ASSERT_EQ(status.ok(), single.ok()) << entry.name << status.message();
    if (!single.ok()) {
      ExpectRefused(status, single.status().code(), "ZERO_DIAGONAL", "values",
                    single.status().index());
      EXPECT_EQ(status.message(), single.status().message());
      continue;
    }
    ExpectSame(root.built.m, single->m, entry.name);
    if (Rank() == 0) {
      const StaticSpaiQuality& found = root.built.quality;
      EXPECT_EQ(found.residual_frobenius, single->quality.residual_frobenius) << entry.name;
      EXPECT_EQ(found.residual_quantiles, single->quality.residual_quantiles);
      EXPECT_EQ(found.worst_column, single->quality.worst_column);
      EXPECT_EQ(found.density, single->quality.density);
    }
    ExpectOutput(2, single->m, entry.a.n_cols, false, entry.name);
  }
}

}  // namespace
}  // namespace spaid::kernels::mpi
