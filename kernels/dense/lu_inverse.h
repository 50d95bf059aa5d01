// The inverse of one large dense matrix, by many threads. (Small ones by the thousand: inverse.h.)
//
//   auto lu = InvertByLu(n, a, context);
//   if (lu.ok() && lu->condition < 1 / eps) use(a);
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

struct LuInverse {
  // Largest element of U over the largest of the scaled matrix: partial pivoting keeps it small but
  // for contrived matrices; digits are lost as it grows.
  double growth = 0;
  // In the 1-norm, of the scaled matrix; NaN or over 1 / eps: not a digit can be relied on.
  double condition = 0;
};

// `a`: n x n column-major, n >= 1, finite; becomes its inverse. A symmetric matrix gets an exactly
// symmetric one. Rows, then columns, are first scaled by powers of two to largest elements in [1,
// 2), which costs no digit. Blocked LU with partial pivoting, then columns of the inverse by
// blocked substitution (Golub, Van Loan, Matrix Computations, 3.2.11 and 3.4.1): 2 n³ operations,
// by context.threads; the result is the same for any number, and depends on the instruction set.
// Scratch: 8 n² bytes, and 512 n for each thread. Reports no progress. Thread-safe. Errors:
// FAILED_PRECONDITION/SINGULAR_MATRIX at "pivot" with the first column of A that depends on those
// before it (`a` is then as it was); RESOURCE_EXHAUSTED/OUT_OF_MEMORY; stop statuses, after which
// `a` is worth nothing.
Result<LuInverse> InvertByLu(int64_t n, double* a, const Context& context);

}  // namespace spaid::kernels
