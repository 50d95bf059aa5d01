// Products by sparse matrices of few diagonals on a CUDA device against the CPU's, and which
// matrices are laid out so. Skipped, with the reason, where there is no device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "kernels/bench/problems.h"
#include "tests/kernels/krylov/gpu_products.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

// Of nodes of `node` unknowns, on diagonals (column less row, in nodes) whose entries are each
// there with the given probability; the first and the last of a diagonal are.
CscMatrix OnDiagonals(int64_t nodes, int node, const std::vector<int64_t>& offsets, double share,
                      uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = nodes * node;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    a.col_ptr.push_back(a.nnz());
    std::vector<int64_t> rows;
    for (const int64_t offset : offsets) rows.push_back(j / node - offset);
    std::sort(rows.begin(), rows.end());
    for (const int64_t row : rows) {
      if (row < 0 || row >= nodes) continue;
      const bool at_an_end = row == 0 || row == nodes - 1 || j < node || j >= a.n_cols - node;
      for (int r = 0; r < node; ++r) {
        if (random.Uniform() >= share && !at_an_end) continue;
        a.row_idx.push_back(static_cast<int32_t>(row * node + r));
        a.values.push_back(random.Uniform(-1, 1));
      }
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

// The same values above and below: of a pattern that is symmetric.
CscMatrix Mirrored(CscMatrix a) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const int64_t i = a.row_idx[p];
      a.values[p] = std::sin(static_cast<double>(std::min(i, j) + 3 * std::max(i, j)));
    }
  }
  return a;
}

int64_t DiaBytes(int64_t nodes, int node, const std::vector<int64_t>& offsets, bool half,
                 int64_t value = 8) {
  int64_t values = 0;
  for (const int64_t offset : offsets) {
    if (!half || offset >= 0) values += node * node * (nodes - std::abs(offset));
  }
  return value * values + 16 * nodes * node;
}

class GpuDia : public GpuProducts {
 protected:
  GpuDia() : GpuProducts(/*by_rows=*/false) {}
};

TEST_F(GpuDia, HandCheckable) {
  // Powers of two and small integers: exact.
  const CscMatrix a = krylov_test::Rows({{2, 1, 0, 0}, {4, 8, 16, 0}, {0, 3, 2, 1}, {0, 0, -1, 1}});
  const Vector x{1, 2, 3, 4}, y{4, 68, 16, 1};
  const Operator op = Make(a);
  EXPECT_EQ(Bytes(op), 8 * 10 + 16 * 4);
  EXPECT_EQ(Apply(op, x), y);
  EXPECT_EQ(Apply(Make(a, false, true), x), y);
  const Operator symmetric = Make(krylov_test::Rows({{1, 2, 0}, {2, 5, 3}, {0, 3, 4}}), true);
  EXPECT_EQ(Bytes(symmetric), 8 * 5 + 16 * 3);
  EXPECT_EQ(Apply(symmetric, {3, 1, 2}), (Vector{5, 17, 11}));
  EXPECT_EQ(Apply(Make(krylov_test::Rows({{-4}})), {0.5}), Vector{-2});
}

TEST_F(GpuDia, EqualsTheCpuOnTheZoo) {
  for (const oracle::NamedMatrix& named : oracle::Zoo(3)) ExpectEqualsTheCpu(named.a, named.name);
}

TEST_F(GpuDia, EqualsTheCpuOnTheGallery) {
  struct Case {
    const char* name;
    CscMatrix a;
    int diagonals, node;
  };
  const Case cases[] = {
      {"P7_20", bench::ConvectionDiffusion(20, 0), 7, 1},
      {"convdiff_20", bench::ConvectionDiffusion(20, 400), 7, 1},
      {"P27_16", bench::Laplacian27(16), 27, 1},
      {"aniso_60", bench::Anisotropic(60, 1e-3, std::numbers::pi / 8), 9, 1},
      {"elasticity_9", bench::Elasticity(9), 27, 3},
      {"larger than a grid", bench::ConvectionDiffusion(60, 400), 7, 1},
      {"larger than a grid, nodes", bench::Elasticity(24), 27, 3},
      {"larger than a grid, half", bench::Laplacian27(60), 27, 1},
  };
  for (const Case& c : cases) {
    ExpectEqualsTheCpu(c.a, c.name);
    const int64_t most = int64_t{8} * c.diagonals * c.node * c.a.n_cols + 16 * c.a.n_cols;
    EXPECT_LE(Bytes(Make(c.a)), most) << c.name;
    EXPECT_LT(Bytes(Make(c.a)), 12 * c.a.nnz() + 16 * c.a.n_cols) << c.name;
    if (!*IsExactlySymmetric(c.a, {})) continue;
    EXPECT_LT(Bytes(Make(c.a, true)), (most + 24 * c.a.n_cols) * 10 / 17) << c.name;
  }
}

TEST_F(GpuDia, EqualsTheCpuAroundTheSizesOfTiles) {
  for (const int node : {1, 2, 3}) {
    for (const int64_t nodes :
         {1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 40'000}) {
      const std::string what = std::to_string(nodes) + " nodes of " + std::to_string(node);
      // Offsets that no two nodes of small matrices have.
      const std::vector<int64_t> offsets{-200, -30, -4, -1, 0, 1, 4, 30, 200};
      const CscMatrix a = OnDiagonals(nodes, node, offsets, 1, static_cast<uint64_t>(nodes));
      ExpectEqualsTheCpu(a, what);
      ExpectEqualsTheCpu(Mirrored(a), what + ", symmetric");
      // Mirrored, without a main diagonal.
      ExpectEqualsTheCpu(Mirrored(OnDiagonals(nodes, node, {-3, -1, 1, 3}, 1, 5)),
                         what + ", hollow");
      ExpectEqualsTheCpu(OnDiagonals(nodes, node, {-3, 0, 5}, 1, 6), what + ", one-sided");
      ExpectEqualsTheCpu(OnDiagonals(nodes, node, {2}, 1, 7), what + ", one diagonal");
    }
  }
}

TEST_F(GpuDia, WhatIsLaidOutByDiagonals) {
  const int64_t nodes = 3000;
  const auto expect = [&](const CscMatrix& a, bool symmetric, int64_t bytes, const char* what) {
    ExpectEqualsTheCpu(a, what);
    const Operator op = Make(a, symmetric);
    if (bytes > 0) {
      EXPECT_EQ(Bytes(op), bytes) << what;
    } else {  // by rows: 12 bytes an entry and more
      EXPECT_GE(Bytes(op), 12 * a.nnz() + 16 * a.n_cols) << what;
    }
  };
  const std::vector<int64_t> star{-50, -1, 0, 1, 50};
  expect(OnDiagonals(nodes, 1, star, 1, 1), false, DiaBytes(nodes, 1, star, false), "full");
  expect(OnDiagonals(nodes, 2, star, 1, 1), false, DiaBytes(nodes, 2, star, false), "full of 2");
  expect(OnDiagonals(nodes, 3, star, 1, 1), false, DiaBytes(nodes, 3, star, false), "full of 3");
  // 8 bytes a place, 12 an entry: two thirds are level.
  expect(OnDiagonals(nodes, 1, star, 0.75, 2), false, DiaBytes(nodes, 1, star, false), "3/4");
  expect(OnDiagonals(nodes, 1, star, 0.6, 3), false, 0, "under 2/3");
  // Blocks with holes.
  expect(OnDiagonals(nodes, 3, star, 0.8, 4), false, DiaBytes(nodes, 3, star, false), "holes");
  expect(OnDiagonals(nodes, 3, star, 0.5, 5), false, 0, "more holes");
  // Half of a symmetric matrix.
  const CscMatrix mirrored = Mirrored(OnDiagonals(nodes, 1, star, 1, 6));
  expect(mirrored, true, DiaBytes(nodes, 1, star, true), "half");
  expect(Mirrored(OnDiagonals(nodes, 3, star, 1, 6)), true, DiaBytes(nodes, 3, star, true),
         "half of 3");
  expect(mirrored, false, DiaBytes(nodes, 1, star, false), "not known to be symmetric");
  // As many diagonals as there may be, and one more.
  std::vector<int64_t> many;
  for (int64_t d = 0; d < 64; ++d) many.push_back(3 * d - 40);
  expect(OnDiagonals(nodes, 1, many, 1, 7), false, DiaBytes(nodes, 1, many, false), "64");
  many.push_back(500);
  expect(OnDiagonals(nodes, 1, many, 1, 8), false, 0, "65");
  // An entry where the sample has none.
  CscMatrix odd = OnDiagonals(100'000, 1, star, 1, 9);
  odd.row_idx[odd.row_idx.size() / 2] = 7;
  int64_t column = 0;
  while (odd.col_ptr[column + 1] <= static_cast<int64_t>(odd.row_idx.size() / 2)) ++column;
  std::sort(odd.row_idx.begin() + odd.col_ptr[column],
            odd.row_idx.begin() + odd.col_ptr[column + 1]);
  expect(odd, false, 0, "one entry off the diagonals");
}

TEST_F(GpuDia, NothingAndEmptyRows) {
  ExpectEqualsTheCpu(OnDiagonals(1000, 1, {}, 1, 1), "nothing");
  // A row and a column without entries, on full diagonals else.
  CscMatrix a = OnDiagonals(2001, 1, {-1, 0, 1}, 1, 2);
  CscMatrix holes;
  holes.n_rows = holes.n_cols = a.n_cols;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    holes.col_ptr.push_back(holes.nnz());
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      if (j % 50 == 7 || a.row_idx[p] % 40 == 9) continue;
      holes.row_idx.push_back(a.row_idx[p]);
      holes.values.push_back(a.values[p]);
    }
  }
  holes.col_ptr.push_back(holes.nnz());
  ExpectEqualsTheCpu(holes, "empty rows and columns");
  EXPECT_EQ(Bytes(Make(holes)), DiaBytes(2001, 1, {-1, 0, 1}, false));
}

TEST_F(GpuDia, NewValues) {
  for (const bool fp32 : {false, true}) {
    const CscMatrix cases[] = {bench::Elasticity(6), bench::Laplacian27(12),
                               OnDiagonals(777, 2, {-9, -1, 0, 1}, 0.9, 3)};
    for (CscMatrix a : cases) {
      const Vector x = RandomVector(a.n_cols, 3);
      const bool symmetric = *IsExactlySymmetric(a, {});
      const Matrix matrix = Upload(a);
      const Operator op = MakeOf(matrix.get(), symmetric, fp32);
      const int64_t bytes = Bytes(op);
      const auto update = [&] {
        cuda::UploadValues(context(), a.values.data(), *matrix);
        Update(*matrix, *op);
      };
      for (double& v : a.values) v = std::ldexp(v, 3) - 1;
      update();
      EXPECT_EQ(Bytes(op), bytes);
      EXPECT_EQ(Apply(op, x), Apply(Make(a, symmetric, fp32), x));
      // No longer symmetric: all of it has to be stored.
      const Vector values = RandomVector(a.nnz(), 4);
      a.values.assign(values.begin(), values.end());
      update();
      EXPECT_EQ(Bytes(op) > bytes, symmetric);
      EXPECT_EQ(Apply(op, x), Apply(Make(a, false, fp32), x));
    }
  }
  const Operator op = Make(bench::Laplacian27(8));
  ExpectMismatch(bench::Laplacian27(9), *op);
}

TEST_F(GpuDia, OverflowAndWhatIsNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const CscMatrix a = krylov_test::Rows({{1e300, 1, 0}, {1, 1, 1}, {0, 1, -1e300}});
  EXPECT_EQ(Apply(Make(a, true, true), {1, 1, 1}), (Vector{kInfinity, 3, -kInfinity}));
  // Nothing beyond the ends of a diagonal is read: 0 · ∞ would be no number.
  EXPECT_EQ(Apply(Make(krylov_test::Rows({{1, 1, 0}, {1, 1, 1}, {0, 1, 1}})), {1, 1, kInfinity}),
            (Vector{2, kInfinity, kInfinity}));
}

TEST_F(GpuDia, TheMemoryLimitIsHeld) {
  const CscMatrix a = bench::Laplacian27(24);
  EXPECT_LT(BytesOnTheLeastDevice(a, true), 8 * 15 * a.n_cols);
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
