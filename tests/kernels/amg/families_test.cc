// Iterations on families of problems: jumps, meshes in other orders, singular and reducible ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"

namespace spaid::kernels {
namespace {

CscMatrix Permuted(gallery::Matrix a, int node) {
  gallery::PermuteNodes({a.col_ptr, a.row_idx, a.values}, node, a.n / node);
  return From(a);
}

CscMatrix Exactly(gallery::Matrix a) {
  gallery::Symmetrize({a.col_ptr, a.row_idx, a.values});
  return From(a);
}

// Rows of sum zero.
CscMatrix WithoutBoundary(CscMatrix a) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    double sum = 0;
    double* diagonal = nullptr;
    for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      if (a.row_idx[p] == j) {
        diagonal = &a.values[p];
      } else {
        sum += a.values[p];
      }
    }
    *diagonal = -sum;
  }
  return a;
}

// Copies of a matrix that do not touch; the last one times `factor`.
CscMatrix Copies(const CscMatrix& of, int copies, double factor) {
  CscMatrix a{.n_rows = copies * of.n_rows,
              .n_cols = copies * of.n_cols,
              .col_ptr = {0},
              .row_idx = {},
              .values = {}};
  for (int copy = 0; copy < copies; ++copy) {
    for (int64_t j = 0; j < of.n_cols; ++j) {
      for (size_t p = 0; p < CscView(of).column(j).size(); ++p) {
        a.row_idx.push_back(static_cast<int32_t>(CscView(of).column(j)[p] + copy * of.n_cols));
        a.values.push_back(CscView(of).column_values(j)[p] * (copy + 1 == copies ? factor : 1));
      }
      a.col_ptr.push_back(a.nnz());
    }
  }
  return a;
}

TEST(Families, Jumps) {
  for (const int64_t m : {32, 64}) {
    const CscMatrix a = From(gallery::Jumps3d(m, 4, 3));
    EXPECT_LE(Iterations(a, true, *Build(a, true).hierarchy), 18) << m;
  }
}

TEST(Families, LargerElasticity) {
  const CscMatrix a = Exactly(gallery::Elasticity3d(28));
  AmgOptions options = With(SmootherKind::kAfsai);
  options.block_size = 3;
  EXPECT_LE(Iterations(a, true, *Build(a, true, options, NodesOfElasticity(28).input()).hierarchy),
            13);
}

// Any order of the unknowns takes as many iterations: keys of another order make other aggregates,
// or none of a grid boxes, which take some more.
TEST(Families, OrdersOfTheUnknowns) {
  const auto compare = [](const gallery::Matrix& a, bool symmetric, int node, int most, int fewer) {
    AmgOptions options;
    options.block_size = node;
    const CscMatrix plain = From(a), permuted = Permuted(a, node);
    const int64_t before =
        Iterations(plain, symmetric, *Build(plain, symmetric, options).hierarchy);
    const int64_t after =
        Iterations(permuted, symmetric, *Build(permuted, symmetric, options).hierarchy);
    EXPECT_LE(after, before + most);
    EXPECT_GE(after, before - fewer);
  };
  compare(gallery::ConvectionDiffusion3d(32, 0), true, 1, 0, 6);
  compare(gallery::Jumps3d(32, 4, 3), true, 1, 3, 3);
  compare(gallery::ConvectionDiffusion3d(32, 20), false, 1, 0, 6);
  gallery::Matrix elasticity = gallery::Elasticity3d(12);
  gallery::Symmetrize({elasticity.col_ptr, elasticity.row_idx, elasticity.values});
  compare(elasticity, true, 3, 3, 3);
}

TEST(Families, DenseStencilsCoarsenAtOnce) {
  for (const CscMatrix& a :
       {From(gallery::RotatedAnisotropy2d(120, 1, 0)), From(gallery::Laplace27(30))}) {
    const AmgResult built = Build(a, true);
    const auto& levels = built.quality.levels;
    ASSERT_GE(levels.size(), 3u);
    for (size_t l = 0; l + 1 < levels.size(); ++l)
      EXPECT_GE(levels[l].rows, 5 * levels[l + 1].rows);
    EXPECT_LE(Iterations(a, true, *built.hierarchy), 14);
  }
}

TEST(Families, SingularWithARightSideInItsRange) {
  for (const int64_t m : {24, 48, 96}) {
    const CscMatrix cube = WithoutBoundary(From(gallery::ConvectionDiffusion3d(m, 0)));
    const AmgResult built = Build(cube, true);
    EXPECT_EQ(built.quality.singular_coarse_pivots, 1) << m;
    EXPECT_LT(built.quality.near_null_rayleigh, 1e-12) << m;
    EXPECT_LE(Iterations(cube, true, *built.hierarchy), 18) << m;
  }
  const CscMatrix jumps = From(gallery::Jumps3d(24, 4, 3, 1, gallery::Boundary::kNeumann));
  EXPECT_LE(Iterations(jumps, true, *Build(jumps, true).hierarchy), 20);
  const CscMatrix graph = From(gallery::GraphLaplacian(20000));
  EXPECT_LE(Iterations(graph, true, *Build(graph, true).hierarchy), 20);
  // One pivot for each of three parts.
  const CscMatrix parts = Copies(WithoutBoundary(oracle::Laplacian2d(40, 40)), 3, 7);
  const AmgResult of_parts = Build(parts, true);
  EXPECT_EQ(of_parts.quality.singular_coarse_pivots, 3);
  EXPECT_LE(Iterations(parts, true, *of_parts.hierarchy), 20);
}

TEST(Families, SingularWithARightSideOutsideItsRangeIsNotSolved) {
  const CscMatrix a = WithoutBoundary(From(gallery::ConvectionDiffusion3d(12, 0)));
  const AmgResult built = Build(a, true);
  const CsrOperator op = CsrOperator::FromColumns(a);
  const std::vector<double> ones(static_cast<size_t>(a.n_cols), 1.0);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-7, .max_iterations = 200};
  const auto solved = Solve(op, built.hierarchy.get(), ones, {}, options, Threads(2));
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_NE(solved->rhs[0].outcome, Outcome::kConverged);
}

TEST(Families, Reducible) {
  // Two grids of other scales and a lonely row.
  CscMatrix a = Copies(oracle::Laplacian2d(25, 25), 2, 2);
  a.row_idx.push_back(1250), a.values.push_back(3), a.col_ptr.push_back(a.nnz());
  a.n_rows = a.n_cols = 1251;
  AmgOptions options;
  options.max_coarse_size = 60;
  const AmgResult built = Build(a, true, options);
  EXPECT_EQ(built.quality.levels[0].isolated, 1);
  EXPECT_LE(Iterations(a, true, *built.hierarchy), 20);
  // Many small parts: as many aggregates at least.
  const CscMatrix small = Copies(oracle::Laplacian2d(4, 4), 200, 1e6);
  options.max_coarse_size = 250;
  EXPECT_LE(Iterations(small, true, *Build(small, true, options).hierarchy), 20);
  // The same parts without a boundary, each of which may be left with one unknown of rounding
  // alone.
  const CscMatrix closed = Copies(WithoutBoundary(oracle::Laplacian2d(4, 4)), 200, 1e6);
  const AmgResult of_closed = Build(closed, true, options);
  EXPECT_EQ(of_closed.quality.singular_coarse_pivots, 200);
  EXPECT_LE(Iterations(closed, true, *of_closed.hierarchy), 20);
  // Blocks above the diagonal alone: the strong graph does not know of triangles.
  const CscMatrix triangle = oracle::BlockTriangular(1500, 10, 3);
  EXPECT_LE(Iterations(triangle, false, *Build(triangle, false).hierarchy), 40);
}

// Nodes on a line cannot turn about it: a column of P that is not there.
TEST(Families, MotionsThatNodesDoNotHave) {
  const int64_t nodes = 400;
  const CscMatrix path = oracle::Laplacian2d(nodes, 1);
  CscMatrix a{
      .n_rows = 3 * nodes, .n_cols = 3 * nodes, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t j = 0; j < nodes; ++j) {
    for (int32_t k = 0; k < 3; ++k) {
      for (size_t p = 0; p < CscView(path).column(j).size(); ++p) {
        a.row_idx.push_back(3 * CscView(path).column(j)[p] + k);
        a.values.push_back(CscView(path).column_values(j)[p]);
      }
      a.col_ptr.push_back(a.nnz());
    }
  }
  std::vector<double> line(static_cast<size_t>(3 * nodes), 0.0);
  for (int64_t i = 0; i < nodes; ++i) line[static_cast<size_t>(i)] = static_cast<double>(i);
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kChebyshev, SmootherKind::kFsai,
        SmootherKind::kAfsai, SmootherKind::kStaticSpai}) {
    SCOPED_TRACE(Name(kind));
    AmgOptions options = With(kind);
    options.block_size = 3;
    options.max_coarse_size = 50;
    const AmgResult built =
        Build(a, true, options, {.vectors = {}, .count = 0, .coordinates = line, .dimension = 3});
    ASSERT_GE(built.quality.levels.size(), 3u);
    EXPECT_LE(Iterations(a, true, *built.hierarchy), 40);
  }
}

}  // namespace
}  // namespace spaid::kernels
