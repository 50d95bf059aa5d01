// Products by rows of a matrix that streams through the caches of a CUDA device, by every loop over
// its slices: right, and the same bits by each; by tiles, too. Skipped, with the reason, where
// there is no device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/bench/cuda/rows_on_device.h"
#include "kernels/bench/problems.h"
#include "kernels/sparse/transpose.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using bench::RowsLayout;
using bench::RowsLoop;
using bench::RowsOnDevice;
using bench::RowsOptions;

constexpr RowsLoop kLoops[] = {RowsLoop::kShortChunks, RowsLoop::kLongChunks};

RowsOptions AsLarge(bool fp32 = false, RowsLayout layout = RowsLayout::kSlices) {
  RowsOptions options;
  options.fp32 = fp32;
  options.as_large = true;
  options.layout = layout;
  return options;
}

struct Result {
  Vector y;
  double dot = 0;
  bool operator==(const Result& other) const { return y == other.y && dot == other.dot; }
};

Result Multiply(RowsOnDevice& rows, const Vector& x) {
  Result result{Vector(x.size(), std::nan("")), std::nan("")};
  rows.Multiply(x.data(), result.y.data(), &result.dot);
  return result;
}

// Row i has lengths[i % size] entries, at most n, evenly apart.
CscMatrix OfLengths(int64_t n, const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> columns(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = std::min(n, lengths[static_cast<size_t>(i) % lengths.size()]);
    for (int64_t k = 0; k < length; ++k) {
      columns[static_cast<size_t>((7 * i + k * (n / length)) % n)].push_back(
          static_cast<int32_t>(i));
    }
  }
  oracle::Random random(3);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  for (const auto& column : columns) {
    a.col_ptr.push_back(a.nnz());
    for (const int32_t row : column) {
      a.row_idx.push_back(row);
      a.values.push_back(random.Uniform(-1, 1));
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

CscMatrix Lower(const CscMatrix& a) {
  CscMatrix lower;
  lower.n_rows = lower.n_cols = a.n_cols;
  lower.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      if (a.row_idx[p] < j) continue;
      lower.row_idx.push_back(a.row_idx[p]);
      lower.values.push_back(a.values[p]);
    }
    lower.col_ptr.push_back(lower.nnz());
  }
  return lower;
}

// Rows of a power law with hubs, some of them empty.
CscMatrix PowerLaw(int64_t n) {
  oracle::Random random(9);
  std::vector<int64_t> lengths(static_cast<size_t>(n));
  for (int64_t& length : lengths) {
    length = static_cast<int64_t>(1.5 / (random.Uniform() + 3e-4) - 1);
  }
  return OfLengths(n, lengths);
}

// Rows of every kind: none, a few, many, in order and by length, apart, in pieces; fewer slices
// than a block has warps, and more than a grid has.
std::vector<std::pair<std::string, CscMatrix>> Matrices() {
  std::vector<std::pair<std::string, CscMatrix>> all;
  all.emplace_back("one", krylov_test::Rows({{-4}}));
  all.emplace_back("hand",
                   krylov_test::Rows({{2, 0, 0, 1}, {0, 0, 0, 0}, {4, 8, 16, 32}, {0, -1, 0, 0}}));
  for (const int64_t n : {31, 32, 33, 255, 257, 1000}) {
    all.emplace_back("irregular of " + std::to_string(n),
                     oracle::RandomIrregular(n, 5, static_cast<uint64_t>(n)));
  }
  // Around the lengths of chunks, empty slices among them.
  for (const int64_t length : {0, 1, 3, 4, 5, 6, 7, 8, 11, 12, 13, 24, 25}) {
    all.emplace_back("rows of " + std::to_string(length),
                     OfLengths(500, std::vector<int64_t>(1, length)));
  }
  all.emplace_back("by length", OfLengths(40000, {1, 2, 40, 1, 3, 1, 90, 2, 1, 1, 17, 4, 0, 1, 1}));
  all.emplace_back("long", OfLengths(3000, {60, 90, 75}));
  all.emplace_back("circuit", bench::Circuit(8000, 12, 300));
  all.emplace_back("dense row and column", oracle::DenseRowAndColumn(2500, 1));
  // Around where a warp has a row of a tile, and where rows are stored apart.
  all.emplace_back("around the rows of tiles",
                   OfLengths(7000, {31, 1, 32, 0, 33, 255, 2, 256, 257, 7, 64, 65, 3000, 5}));
  all.emplace_back("rows of 256", OfLengths(2000, {256}));
  const CscMatrix power_law = PowerLaw(20000);
  all.emplace_back("power law", power_law);
  // As G and its transpose.
  all.emplace_back("its lower triangle", Lower(power_law));
  all.emplace_back("that transposed", Transpose(Lower(power_law)));
  all.emplace_back("more slices than warps", bench::ConvectionDiffusion(72, 400));
  return all;
}

class GpuChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
  }
};

// A, its values as they are stored, x, and what comes out.
struct Case {
  Case(const CscMatrix& matrix, bool fp32) : a(matrix), x(RandomVector(matrix.n_cols, 7)) {
    if (fp32) {
      for (double& v : a.values) v = static_cast<float>(v);
    }
    expected = Product(a, x);
    CscMatrix size = a;
    for (double& v : size.values) v = std::abs(v);
    Vector size_x = x;
    for (double& v : size_x) v = std::abs(v);
    bound = Product(size, size_x);
    for (size_t i = 0; i < x.size(); ++i) {
      dot += x[i] * expected[i];
      dot_bound += size_x[i] * bound[i];
    }
  }
  void Expect(const Result& result, const std::string& name) const {
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(std::abs(result.y[i] - expected[i]), 1e-14 * bound[i]) << name << ", row " << i;
    }
    EXPECT_NEAR(result.dot, dot, 1e-13 * dot_bound) << name;
  }

  CscMatrix a;
  Vector x, expected, bound;
  double dot = 0, dot_bound = 0;
};

TEST_F(GpuChoice, EveryLoopEqualsTheCpuAndTheOthersBits) {
  for (const auto& [name, a] : Matrices()) {
    for (const bool fp32 : {false, true}) {
      const Case own(a, fp32);
      RowsOnDevice rows(a, AsLarge(fp32));
      EXPECT_FALSE(rows.in_tiles()) << name;
      Result first;
      for (const RowsLoop loop : kLoops) {
        rows.set_loop(loop);
        const Result result = Multiply(rows, own.x);
        own.Expect(result, name);
        if (loop == kLoops[0]) first = result;
        EXPECT_EQ(result, first) << name << ", fp32 " << fp32;
        for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(Multiply(rows, own.x), first) << name;
      }
    }
  }
}

// Of a row of up to 32 entries, rounded products one after the other: what a host adds up, too.
TEST_F(GpuChoice, TilesEqualTheCpu) {
  for (const auto& [name, a] : Matrices()) {
    const CscMatrix by_rows = Transpose(a);
    for (const bool fp32 : {false, true}) {
      const Case own(a, fp32);
      RowsOnDevice rows(a, AsLarge(fp32, RowsLayout::kTiles));
      EXPECT_EQ(rows.in_tiles(), a.nnz() > 0) << name;
      const Result first = Multiply(rows, own.x);
      own.Expect(first, name);
      for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(Multiply(rows, own.x), first) << name;
      if (a.nnz() == 0) continue;
      // Tiles of 129 entries at the least, but for the last, and rows of 65 that are stored apart.
      const double entries = static_cast<double>(a.nnz() + a.n_cols);
      EXPECT_LE(rows.stored() * static_cast<double>(a.nnz()), entries * (1 + 31.0 / 65) + 32)
          << name;
      int64_t compared = 0;
      for (int64_t i = 0; i < a.n_cols; ++i) {
        if (by_rows.col_ptr[i + 1] - by_rows.col_ptr[i] > 32) continue;
        volatile double sum = 0;  // rounded after every operation
        for (int64_t p = by_rows.col_ptr[i]; p < by_rows.col_ptr[i + 1]; ++p) {
          const double value = fp32 ? static_cast<float>(by_rows.values[p]) : by_rows.values[p];
          volatile const double product = value * own.x[static_cast<size_t>(by_rows.row_idx[p])];
          sum = sum + product;
        }
        ASSERT_EQ(first.y[static_cast<size_t>(i)], sum) << name << ", row " << i;
        ++compared;
      }
      EXPECT_TRUE(name != "power law" || compared > a.n_cols / 2);
    }
  }
}

TEST_F(GpuChoice, ColumnsOfSeveralAreAsIfAlone) {
  for (const auto& [name, a] : Matrices()) {
    const auto n = static_cast<size_t>(a.n_cols);
    for (const RowsLayout layout : {RowsLayout::kSlices, RowsLayout::kTiles}) {
      for (const bool fp32 : {false, true}) {
        RowsOnDevice rows(a, AsLarge(fp32, layout));
        for (const size_t columns : {2, 4}) {
          const Vector x = RandomVector(static_cast<int64_t>(columns * n), 3);
          Vector y(x.size(), std::nan("")), dots(columns, std::nan(""));
          rows.MultiplyColumns(static_cast<int>(columns), x.data(), y.data(), dots.data());
          for (size_t v = 0; v < columns; ++v) {
            Vector own(n);
            for (size_t i = 0; i < n; ++i) own[i] = x[columns * i + v];
            const Result alone = Multiply(rows, own);
            EXPECT_EQ(dots[v], alone.dot) << name << ", column " << v;
            for (size_t i = 0; i < n; ++i) {
              ASSERT_EQ(y[columns * i + v], alone.y[i])
                  << name << ", row " << i << ", column " << v;
            }
          }
        }
      }
    }
  }
}

// Small enough for the checker of races: rows in tiles, apart, and in pieces.
TEST_F(GpuChoice, FewTilesHaveNoRaces) {
  const CscMatrix a = OfLengths(700, {1, 2, 70, 0, 3, 650, 33});
  for (const bool fp32 : {false, true}) {
    const Case own(a, fp32);
    RowsOnDevice rows(a, AsLarge(fp32, RowsLayout::kTiles));
    ASSERT_TRUE(rows.in_tiles());
    const Result first = Multiply(rows, own.x);
    own.Expect(first, "few tiles");
    EXPECT_EQ(Multiply(rows, own.x), first);
  }
}

TEST_F(GpuChoice, NewValuesInTiles) {
  for (const auto& [name, a] : Matrices()) {
    const Vector x = RandomVector(a.n_cols, 5), values = RandomVector(a.nnz(), 4);
    CscMatrix changed = a;
    changed.values.assign(values.begin(), values.end());
    for (const bool fp32 : {false, true}) {
      const RowsOptions options = AsLarge(fp32, RowsLayout::kTiles);
      RowsOnDevice rows(a, options), anew(changed, options);
      rows.Update(values.data());
      EXPECT_EQ(Multiply(rows, x), Multiply(anew, x)) << name;
    }
  }
}

TEST_F(GpuChoice, TheRuleTellsTiles) {
  const auto in_tiles = [](const CscMatrix& a, bool as_large) {
    RowsOptions options;
    options.as_large = as_large;
    return RowsOnDevice(a, options).in_tiles();
  };
  EXPECT_TRUE(in_tiles(OfLengths(40000, {1, 2, 9}), true));
  EXPECT_FALSE(in_tiles(OfLengths(40000, {1, 2, 9}), false));
  EXPECT_TRUE(in_tiles(bench::Circuit(8000, 12, 300), true));
  // Most entries in rows that would be stored apart.
  EXPECT_FALSE(in_tiles(PowerLaw(20000), true));
  EXPECT_FALSE(in_tiles(OfLengths(4000, {60, 90, 200}), true));
  EXPECT_FALSE(in_tiles(OfLengths(4000, {1, 3, 1, 90, 1, 1, 60}), true));
  // No ends of rows, or few.
  EXPECT_FALSE(in_tiles(OfLengths(4000, {7}), true));
  EXPECT_FALSE(in_tiles(bench::ConvectionDiffusion(20, 400), true));
}

TEST_F(GpuChoice, AMatrixThatStaysInCachesHasTheSameProducts) {
  for (const auto& [name, a] : Matrices()) {
    RowsOptions small;
    RowsOnDevice as_small(a, small), as_large(a, AsLarge());
    EXPECT_EQ(as_small.loop(), RowsLoop::kPlain) << name;
    EXPECT_NE(as_large.loop(), RowsLoop::kPlain) << name;
    // Where several threads sum a row there, they differ by rounding.
    if (a.nnz() >= 24 * a.n_cols) continue;
    const Vector x = RandomVector(a.n_cols, 7);
    EXPECT_EQ(Multiply(as_large, x).y, Multiply(as_small, x).y) << name;
  }
}

TEST_F(GpuChoice, TheRuleGoesByTheLengthsOfRows) {
  EXPECT_EQ(RowsOnDevice(OfLengths(500, {31}), AsLarge()).loop(), RowsLoop::kShortChunks);
  EXPECT_EQ(RowsOnDevice(OfLengths(500, {32}), AsLarge()).loop(), RowsLoop::kLongChunks);
}

TEST_F(GpuChoice, NewValuesInSlicesByEveryLoop) {
  const CscMatrix a = bench::Elasticity(12);
  const Vector x = RandomVector(a.n_cols, 5), values = RandomVector(a.nnz(), 4);
  CscMatrix changed = a;
  changed.values.assign(values.begin(), values.end());
  RowsOnDevice rows(a, AsLarge()), anew(changed, AsLarge());
  for (const RowsLoop loop : kLoops) {
    rows.set_loop(loop);
    rows.Update(values.data());
    EXPECT_EQ(rows.loop(), loop);
    EXPECT_EQ(Multiply(rows, x), Multiply(anew, x));
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
