// The inverse of the coarsest level's matrix.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

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

}  // namespace spaid::kernels
