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
