// The inverse of the coarsest level's matrix.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// A share of what elimination began with.
inline constexpr double kSingularPivot = 1e-12;
// Bounds, for each row, what Galerkin products leave of a zero: at most 0.7 ε of Neumann problems
// on 24³ to 160³ nodes, whose own diagonal falls by 60 meanwhile; nothing that is regular comes
// under 1e9 ε.
inline constexpr double kPivotRounding = 64 * std::numeric_limits<double>::epsilon();

struct CoarseInverse {
  int64_t n = 0;
  Array<double> rows;           // n x n, by rows
  int64_t singular_pivots = 0;  // unknowns left out: their rows and columns are zero
};

// `a_rows`: square, canonical, by rows, of some hundred rows at most: 2 n³ operations by Gauss and
// Jordan, with pivots on the diagonal where A is symmetric, and a symmetric result, else with
// partial pivoting. A pivot of at most 1e-12 of what its diagonal was (else: of the largest
// element) leaves its unknown out, as of a matrix of a Neumann problem; so does one of at most n
// times 64 ε where A is symmetric: such a matrix comes of one with a diagonal of ones. Errors:
// FAILED_PRECONDITION/NON_FINITE_VALUE; stop statuses; RESOURCE_EXHAUSTED/OUT_OF_MEMORY. The same
// for any number of threads. Thread-safe.
Result<CoarseInverse> InvertCoarse(const CscView& a_rows, bool symmetric, const Context& context);

// Makes it of what elimination has left of the rows: `done` says of which unknowns, `exchanged`
// with which row each was exchanged (not of a symmetric A).
CoarseInverse FinishInverse(int64_t n, Array<double> rows, std::span<const uint8_t> done,
                            std::span<const int64_t> exchanged, bool symmetric);

}  // namespace spaid::kernels
