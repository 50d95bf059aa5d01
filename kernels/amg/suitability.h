// Tells beforehand whether multigrid is worth a try, and by which smoother.
#pragma once

#include <cstdint>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Rows from which on coarsening pays, a row's entries over the mean from which on coarse levels
// fill up, and the quotient below up to which constants are near-null vectors.
inline constexpr int64_t kLeastRowsForAmg = 20'000;
inline constexpr double kMostUnevenForAmg = 16, kMostRayleighForAmg = 0.05;

// cᵀAc / cᵀDc, D the absolute diagonal, of constants for each unknown of a node (DetectBlockSize):
// the largest; with one unknown a node the least of 1 and D^(-1/2) 1. Small and positive where an
// elliptic operator is behind A; infinite where a diagonal entry is zero. `a`: square, canonical,
// with values. O(nnz); the same bits with any number of threads. Thread-safe.
double NearNullRayleigh(const CscView& a, int threads = 1);

struct AmgSuitability {
  bool suits = false;  // by size, `longest` and NearNullRayleigh
  double beta = 0;     // where it suits: max_j Σ_i |a_ij| / |a_jj|, which chooses the smoother
  int block = 1;       // the same: DetectBlockSize
};

// Whether A may suit, by its size and `longest`, the entries of the longest row or column.
bool MaySuitAmg(const PatternView& a, int64_t longest);

// As NearNullRayleigh.
AmgSuitability LookForAmg(const CscView& a, int64_t longest, int threads = 1);

}  // namespace spaid::kernels
