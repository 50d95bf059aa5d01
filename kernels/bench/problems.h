// The matrices that benchmarks and tests of the kernels run on: the gallery's, by rows instead of
// by columns. All are symmetric in pattern; SPAI of the transpose costs the same.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/gallery/gallery.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels::bench {

inline CscMatrix Transposed(const gallery::Matrix& a) {
  return Transpose(CscView{{a.n, a.n, a.col_ptr, a.row_idx}, a.values});
}

// 0: the 7-point Laplacian.
inline CscMatrix ConvectionDiffusion(int m, double convection) {
  return Transposed(gallery::ConvectionDiffusion3d(m, convection));
}

inline CscMatrix Laplacian27(int m) { return Transposed(gallery::Laplace27(m)); }

inline CscMatrix Anisotropic(int m, double epsilon, double angle) {
  return Transposed(
      gallery::RotatedAnisotropy2d(m, epsilon, angle, gallery::Rounding::kBenchmarks));
}

// `nodes` nodes an edge, up to 81 entries a column (E80).
inline CscMatrix Elasticity(int nodes) {
  return Transposed(gallery::Elasticity3d(nodes, gallery::Rounding::kBenchmarks));
}

// `hubs` hub columns of about `hub_degree` entries.
inline CscMatrix Circuit(int n, int hubs, int hub_degree) {
  return Transposed(gallery::Circuit(n, hubs, hub_degree));
}

// Columns that share 61 local problems of `count` entries of A each.
inline CscMatrix Periodic(int32_t n, int count) { return Transposed(gallery::Periodic(n, count)); }

// The 7-point Laplacian on the voxels of a ball in a cube of m³, in the cube's order: as regular as
// the cube, but with too many diagonals to be stored by these.
inline CscMatrix Voxels(int m) {
  const CscMatrix cube = ConvectionDiffusion(m, 0);
  Array<int32_t> number(cube.n_cols, -1);
  int32_t inside = 0;
  for (int64_t i = 0; i < cube.n_cols; ++i) {
    const int64_t x = 2 * (i % m) + 1 - m, y = 2 * (i / m % m) + 1 - m, z = 2 * (i / m / m) + 1 - m;
    if (x * x + y * y + z * z <= int64_t{m} * m) number[i] = inside++;
  }
  CscMatrix ball;
  ball.n_rows = ball.n_cols = inside;
  ball.col_ptr.push_back(0);
  for (int64_t j = 0; j < cube.n_cols; ++j) {
    if (number[j] < 0) continue;
    for (int64_t p = cube.col_ptr[j]; p < cube.col_ptr[j + 1]; ++p) {
      if (number[cube.row_idx[p]] < 0) continue;
      ball.row_idx.push_back(number[cube.row_idx[p]]);
      ball.values.push_back(cube.values[p]);
    }
    ball.col_ptr.push_back(static_cast<int64_t>(ball.row_idx.size()));
  }
  return ball;
}

inline CscMatrix WithVaryingCoefficients(CscMatrix a) {
  gallery::VaryCoefficients({a.col_ptr, a.row_idx, a.values});
  return a;
}

inline CscMatrix Symmetrized(CscMatrix a) {
  gallery::Symmetrize({a.col_ptr, a.row_idx, a.values});
  return a;
}

inline CscMatrix PermuteNodes(CscMatrix a, int node, int64_t window) {
  gallery::PermuteNodes({a.col_ptr, a.row_idx, a.values}, node, window);
  return a;
}

// Makes of a grid what a mesh is to a device: coefficients vary, so that no row repeats, and nodes
// of so many unknowns come in random order.
inline CscMatrix Scattered(CscMatrix a, int node) {
  const int64_t all = a.n_cols;
  return PermuteNodes(WithVaryingCoefficients(std::move(a)), node, all);
}

}  // namespace spaid::kernels::bench
