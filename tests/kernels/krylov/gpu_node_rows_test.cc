// Products by sparse matrices by nodes on a CUDA device against the CPU's, and which matrices are
// laid out so. Skipped, with the reason, where there is no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/bench/problems.h"
#include "tests/kernels/krylov/gpu_products.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

// Whole blocks of `node` at the entries of a pattern.
CscMatrix OfBlocks(const CscMatrix& pattern, int node, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = pattern.n_cols * node;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    a.col_ptr.push_back(a.nnz());
    for (int64_t p = pattern.col_ptr[j / node]; p < pattern.col_ptr[j / node + 1]; ++p) {
      for (int r = 0; r < node; ++r) {
        a.row_idx.push_back(pattern.row_idx[p] * node + r);
        a.values.push_back(random.Uniform(-1, 1));
      }
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

class GpuNodeRows : public GpuProducts {
 protected:
  GpuNodeRows() : GpuProducts(/*by_rows=*/false) {}

  // Fewer bytes than an index for each entry would take.
  bool IsByNodes(const CscMatrix& a, const Operator& op) {
    return Bytes(op) < 12 * a.nnz() + 16 * a.n_cols;
  }
};

TEST_F(GpuNodeRows, HandCheckable) {
  // Blocks on the main diagonal and at (j² + 3 mod 80, j): too many diagonals to go by those.
  CscMatrix pattern;
  pattern.n_rows = pattern.n_cols = 80;
  for (int64_t j = 0; j < 80; ++j) {
    pattern.col_ptr.push_back(pattern.nnz());
    for (const int64_t i : {j, (j * j + 3) % 80}) {
      if (i == j && pattern.nnz() > pattern.col_ptr.back()) continue;
      pattern.row_idx.push_back(static_cast<int32_t>(i));
      pattern.values.push_back(1);
    }
    std::sort(pattern.row_idx.begin() + pattern.col_ptr.back(), pattern.row_idx.end());
  }
  pattern.col_ptr.push_back(pattern.nnz());
  for (const int node : {2, 3}) {
    CscMatrix a = OfBlocks(pattern, node, 1);
    for (size_t p = 0; p < a.values.size(); ++p) a.values[p] = static_cast<double>(p % 9) - 4;
    Vector x(static_cast<size_t>(a.n_cols));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 7);
    // Small integers: exact.
    EXPECT_EQ(Apply(Make(a), x), Product(a, x));
    EXPECT_EQ(Apply(Make(a, false, true), x), Product(a, x));
  }
}

TEST_F(GpuNodeRows, EqualsTheCpu) {
  for (const int node : {2, 3, 4, 6}) {
    for (const int64_t nodes : {1, 2, 31, 32, 33, 64, 65, 255, 257, 1000, 9001}) {
      const std::string what = std::to_string(nodes) + " nodes of " + std::to_string(node);
      ExpectEqualsTheCpu(
          OfBlocks(oracle::RandomIrregular(nodes, 12, static_cast<uint64_t>(nodes)), node, 2),
          what);
    }
    // Rows of very different lengths, empty ones among them; long ones.
    ExpectEqualsTheCpu(OfBlocks(bench::Circuit(3000, 5, 300), node, 3), "circuit");
    ExpectEqualsTheCpu(OfBlocks(oracle::Arrow(700), node, 4), "arrow");
    ExpectEqualsTheCpu(OfBlocks(oracle::DenseRowAndColumn(1500, 1), node, 5), "dense row");
  }
}

TEST_F(GpuNodeRows, WhatIsLaidOutByNodes) {
  const CscMatrix permuted = bench::PermuteNodes(bench::Elasticity(14), 3, 4096);
  ExpectEqualsTheCpu(permuted, "permuted");
  EXPECT_TRUE(IsByNodes(permuted, Make(permuted)));
  EXPECT_TRUE(IsByNodes(permuted, Make(permuted, true)));
  // Nodes of 6 are nodes of 3.
  const CscMatrix six = OfBlocks(bench::PermuteNodes(bench::Laplacian27(14), 1, 4096), 6, 1);
  EXPECT_TRUE(IsByNodes(six, Make(six)));
  // One entry less, and blocks are not whole.
  CscMatrix hole = permuted;
  hole.row_idx.erase(hole.row_idx.begin() + hole.col_ptr[4000]);
  hole.values.erase(hole.values.begin() + hole.col_ptr[4000]);
  for (size_t j = 4001; j < hole.col_ptr.size(); ++j) --hole.col_ptr[j];
  ExpectEqualsTheCpu(hole, "a hole");
  EXPECT_FALSE(IsByNodes(hole, Make(hole)));
  // Slices that are mostly ends of rows.
  const CscMatrix dense = OfBlocks(oracle::DenseRowAndColumn(5000, 1), 3, 2);
  EXPECT_FALSE(IsByNodes(dense, Make(dense)));
}

TEST_F(GpuNodeRows, NewValues) {
  for (const bool fp32 : {false, true}) {
    CscMatrix a = bench::PermuteNodes(bench::Elasticity(9), 3, 500);
    const Matrix matrix = Upload(a);
    const Operator op = MakeOf(matrix.get(), false, fp32);
    const Vector values = RandomVector(a.nnz(), 4), x = RandomVector(a.n_cols, 5);
    a.values.assign(values.begin(), values.end());
    cuda::UploadValues(context(), a.values.data(), *matrix);
    Update(*matrix, *op);
    EXPECT_EQ(Apply(op, x), Apply(Make(a, false, fp32), x));
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
