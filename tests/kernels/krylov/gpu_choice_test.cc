// Products by rows of a matrix that streams through the caches of a CUDA device, by every loop that
// may be chosen for it: right, and the same bits whatever is chosen. Skipped, with the reason,
// where there is no device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/bench/cuda/rows_on_device_cuda.h"
#include "kernels/bench/problems.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using bench::RowsLoop;
using bench::RowsOnDevice;
using bench::RowsOptions;

constexpr RowsLoop kLoops[] = {RowsLoop::kShortChunks, RowsLoop::kLongChunks};

SpaidCudaCsc Csc(const CscMatrix& a) {
  return {a.n_cols, a.nnz(), a.col_ptr.data(), a.row_idx.data(), a.values.data()};
}

RowsOptions AsLarge(bool fp32 = false) {
  RowsOptions options;
  options.fp32 = fp32;
  options.as_large = true;
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

TEST_F(GpuChoice, EveryLoopEqualsTheCpuAndTheOthersBits) {
  for (const auto& [name, a] : Matrices()) {
    const Vector x = RandomVector(a.n_cols, 7);
    CscMatrix size = a;
    for (double& v : size.values) v = std::abs(v);
    Vector size_x = x;
    for (double& v : size_x) v = std::abs(v);
    const Vector bound = Product(size, size_x);
    for (const bool fp32 : {false, true}) {
      CscMatrix stored = a;
      if (fp32) {
        for (double& v : stored.values) v = static_cast<float>(v);
      }
      const Vector expected = Product(stored, x);
      RowsOnDevice rows(Csc(a), AsLarge(fp32));
      Result first;
      for (const RowsLoop loop : kLoops) {
        rows.set_loop(loop);
        const Result result = Multiply(rows, x);
        double dot = 0, dot_bound = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_LE(std::abs(result.y[i] - expected[i]), 1e-14 * bound[i]) << name << ", row " << i;
          dot += x[i] * expected[i];
          dot_bound += size_x[i] * bound[i];
        }
        EXPECT_NEAR(result.dot, dot, 1e-13 * dot_bound) << name;
        if (loop == kLoops[0]) first = result;
        EXPECT_EQ(result, first) << name << ", fp32 " << fp32;
        for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(Multiply(rows, x), first) << name;
      }
    }
  }
}

TEST_F(GpuChoice, AMatrixThatStaysInCachesHasTheSameProducts) {
  for (const auto& [name, a] : Matrices()) {
    RowsOptions small;
    RowsOnDevice as_small(Csc(a), small), as_large(Csc(a), AsLarge());
    EXPECT_EQ(as_small.loop(), RowsLoop::kPlain) << name;
    EXPECT_NE(as_large.loop(), RowsLoop::kPlain) << name;
    // Where several threads sum a row there, they differ by rounding.
    if (a.nnz() >= 24 * a.n_cols) continue;
    const Vector x = RandomVector(a.n_cols, 7);
    EXPECT_EQ(Multiply(as_large, x).y, Multiply(as_small, x).y) << name;
  }
}

TEST_F(GpuChoice, TheRuleGoesByTheLengthsOfRows) {
  EXPECT_EQ(RowsOnDevice(Csc(OfLengths(500, {31})), AsLarge()).loop(), RowsLoop::kShortChunks);
  EXPECT_EQ(RowsOnDevice(Csc(OfLengths(500, {32})), AsLarge()).loop(), RowsLoop::kLongChunks);
}

TEST_F(GpuChoice, AChoiceStaysAndChangesNoBit) {
  const CscMatrix a = bench::Elasticity(12);
  const Vector x = RandomVector(a.n_cols, 5);
  RowsOnDevice rows(Csc(a), AsLarge());
  const Result before = Multiply(rows, x);
  for (int times = 0; times < 5; ++times) {
    ASSERT_TRUE(rows.Choose(/*always=*/true));
    EXPECT_NE(rows.loop(), RowsLoop::kPlain);
    EXPECT_EQ(Multiply(rows, x), before);
  }
  const Vector values = RandomVector(a.nnz(), 4);
  CscMatrix changed = a;
  changed.values.assign(values.begin(), values.end());
  for (const RowsLoop loop : kLoops) {
    rows.set_loop(loop);
    rows.Update(values.data());
    EXPECT_EQ(rows.loop(), loop);
    RowsOnDevice anew(Csc(changed), AsLarge());
    EXPECT_EQ(Multiply(rows, x), Multiply(anew, x));
  }
}

TEST_F(GpuChoice, SmallMatricesAreNotTimed) {
  const CscMatrix a = bench::Elasticity(12);
  RowsOptions small;
  RowsOnDevice rows(Csc(a), small);
  EXPECT_FALSE(rows.Choose(/*always=*/false));
  EXPECT_FALSE(rows.Choose(/*always=*/true));  // nothing to choose among
  EXPECT_EQ(rows.loop(), RowsLoop::kPlain);
  RowsOnDevice too_small(Csc(a), AsLarge());
  const RowsLoop rule = too_small.loop();
  EXPECT_FALSE(too_small.Choose(/*always=*/false));
  EXPECT_EQ(too_small.loop(), rule);
}

TEST_F(GpuChoice, WithoutRoomForTwoVectorsTheRuleStays) {
  const CscMatrix a = bench::Elasticity(8);
  const Vector x = RandomVector(a.n_cols, 5);
  RowsOnDevice rows(Csc(a), AsLarge());
  const RowsLoop rule = rows.loop();
  const Result before = Multiply(rows, x);
  EXPECT_FALSE(rows.ChooseInFullMemory());
  EXPECT_EQ(rows.loop(), rule);
  EXPECT_EQ(Multiply(rows, x), before);
  EXPECT_TRUE(rows.Choose(/*always=*/true));
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
