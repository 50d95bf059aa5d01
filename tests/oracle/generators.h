// Seeded matrices for tests: irregular, reducible, singular, badly scaled, tiny. The same seed
// gives the same matrix on every machine (own generator: std's distributions differ between
// libraries).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/sparse/matrix.h"

namespace spaid::oracle {

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  double Uniform();                         // [0, 1)
  double Uniform(double low, double high);  // [low, high)
  int64_t Below(int64_t n);                 // [0, n), n >= 1

 private:
  uint64_t state_;
};

// Columns of very different lengths (1 to about 4 × mean entries), nonzero diagonal, nonsymmetric,
// diagonally heavy enough to be regular.
kernels::CscMatrix RandomIrregular(int64_t n, double mean_entries, uint64_t seed);
// Diagonal blocks, entries above them only: reducible.
kernels::CscMatrix BlockTriangular(int64_t n, int64_t block, uint64_t seed);
// A sparse matrix with one dense row and one dense column (not the same index for n > 1).
kernels::CscMatrix DenseRowAndColumn(int64_t n, uint64_t seed);
// Diagonal, last row and last column; regular.
kernels::CscMatrix Arrow(int64_t n);
// Square, no empty row or column, exactly singular: two equal columns (n >= 2; n = 1: a stored
// zero).
kernels::CscMatrix Singular(int64_t n, uint64_t seed);
// RandomIrregular with rows and columns scaled by 10^[-12, 12].
kernels::CscMatrix BadlyScaled(int64_t n, uint64_t seed);
// Regular, no diagonal entry stored: a heavy cyclic shift and light entries (n >= 2).
kernels::CscMatrix ZeroDiagonal(int64_t n, uint64_t seed);
// RandomIrregular with its rows permuted: the diagonal is as good as empty.
kernels::CscMatrix RowPermuted(int64_t n, uint64_t seed);
// Symmetric positive definite, irregular; diagonally dominant by a small margin.
kernels::CscMatrix RandomSpd(int64_t n, double mean_entries, uint64_t seed);
// The gallery's upwind convection-diffusion on an nx × ny grid, nonsymmetric M-matrix; `peclet` and
// its half are the cell's.
kernels::CscMatrix ConvectionDiffusion(int64_t nx, int64_t ny, double peclet);
// 5-point Laplacian, SPD.
kernels::CscMatrix Laplacian2d(int64_t nx, int64_t ny);

struct NamedMatrix {
  std::string name;
  kernels::CscMatrix a;
  bool regular = true;  // has an inverse
};
// Every family above at sizes from n = 1 to about 70 (larger than a warp), for one seed. All
// square, canonical, without empty columns.
std::vector<NamedMatrix> Zoo(uint64_t seed);

}  // namespace spaid::oracle
