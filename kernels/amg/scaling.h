// The matrix that multigrid works on: A by rows, of unit diagonal where A is symmetric.
//
//   Result<UnitScaled> a = ScaleToUnitDiagonal(a_columns, /*symmetric=*/true, context);
//   Result<NearNull> b = MakeNearNull(*a, given, block, context);
#pragma once

#include <cstdint>
#include <span>

#include "kernels/amg/shared_matrix.h"
#include "kernels/amg/tentative.h"
#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Â = sign · S A S by rows, S = diag(|a_ii|^(-1/2)), of a symmetric A; else A itself: scaling first
// would ruin static SPAI.
struct UnitScaled {
  SharedMatrix rows;
  Array<double> scale;  // S; empty: ones
  double sign = 1;      // -1: all of A's diagonal is negative
  bool symmetric = false;
  double beta = 0;  // max_i Σ_j |a_ij| / |a_ii| of A as it comes: how far it is from dominant
};

// `a`: square, canonical, by columns. `symmetric`: a_ij = a_ji but for rounding. Errors:
// FAILED_PRECONDITION/ZERO_DIAGONAL, also where it is not stored, and /NOT_POSITIVE_DEFINITE where
// A is symmetric and its diagonal has both signs, both with the first index; stop statuses;
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY. Thread-safe. `kept` is brought up to date; where it is of
// another pattern than A's: INVALID_ARGUMENT/PLAN_MISMATCH.
struct KeptRows {
  SharedPattern pattern;  // of A by rows; null: nothing is kept yet
  KeptTranspose by_rows;  // to it from A by columns, where A is not symmetric
};
Result<UnitScaled> ScaleToUnitDiagonal(const CscView& a, bool symmetric, KeptRows& kept,
                                       const Context& context);

// Near-null vectors that the caller has, of A as it comes; at most one of the two. Borrowed.
struct NearNullInput {
  std::span<const double> vectors;  // n x count, column-major
  int count = 0;
  std::span<const double> coordinates;  // (n / block) x dimension, column-major
  int dimension = 0;                    // 2 or 3; that of the block
};

// The same, owned.
struct NearNullArrays {
  Array<double> vectors;
  int count = 0;
  Array<double> coordinates;
  int dimension = 0;

  NearNullInput input() const { return {vectors, count, coordinates, dimension}; }
};

inline constexpr int kMostNearNull = 8;

// The share of D^(1/2) 1's Rayleigh quotient that that of 1 is under where 1 is taken.
inline constexpr double kMuchLessRayleigh = 0.1;

// Returns the near-null vectors of A as it comes that the caller has: those given, or the rigid
// body modes of the coordinates; with neither no values. Errors: those of MakeNearNull.
Result<NearNull> GivenNearNull(int64_t n, const NearNullInput& input, int block);

// Near-null vectors of Â: the given ones, or the rigid body modes of the coordinates (centred, over
// the largest distance), or a unit vector for each unknown of a node, each times S⁻¹. With one
// unknown a node and nothing given it is S⁻¹ 1, or 1 where that has less than a tenth of its
// Rayleigh quotient. `rayleigh` receives the least quotient of a column (block systems: the
// largest). Errors: INVALID_ARGUMENT/BAD_NEAR_NULL_SPACE (size, a value that is not finite: index),
// /RANK_DEFICIENT (index: the first column that depends on those before it), /BAD_COORDINATES.
Result<NearNull> MakeNearNull(const UnitScaled& a, const NearNullInput& input, int block,
                              const Context& context, double* rayleigh);

}  // namespace spaid::kernels
