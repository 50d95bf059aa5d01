// The inverse of one small dense matrix. Single-threaded; the caller runs many at once.
//
//   double kappa = InvertInPlace(n, a);
//   if (kappa < 1 / eps) use(a);
#pragma once

#include <cstdint>

namespace spaid::kernels {

inline constexpr int64_t kMaxInverse = 32;

// `a`: n x n column-major, n in 1 .. kMaxInverse, finite; becomes its inverse. A symmetric matrix
// gets an exactly symmetric one. Rows and columns are first scaled by powers of two to about equal
// size, which costs no accuracy; the result is the 1-norm condition number of the scaled matrix, in
// which badly chosen units do not show. Infinity: a pivot is zero; NaN or over 1 / eps: not a digit
// can be relied on; `a` is then worth nothing. Elements beyond the range of fp64 come out as
// infinities or zeros. Cholesky where the matrix is symmetric positive definite, else LU with
// partial pivoting (Golub, Van Loan, Matrix Computations, algorithms 4.2.2 and 3.4.1).
double InvertInPlace(int64_t n, double* a);

}  // namespace spaid::kernels
