// Jacobi: M = diag(1 / a_kk), with the quality figures of any other engine.
#pragma once

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine.h"

namespace spaid::kernels {

struct JacobiResult {
  CscMatrix m;  // diagonal
  Quality quality;
};

// `a`: square, canonical, with values. O(nnz). Errors: FAILED_PRECONDITION/ZERO_DIAGONAL (index:
// the first column whose diagonal is zero, not stored, or too small to invert); stop statuses.
Result<JacobiResult> BuildJacobi(const CscView& a, const Context& context);

// Diagonal entries of square canonical `a` that BuildJacobi would refuse: a binary search a column.
Occurrence UninvertibleDiagonal(const CscView& a);

}  // namespace spaid::kernels
