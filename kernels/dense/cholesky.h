// Cholesky factorisation and solves of one small symmetric positive definite matrix, padded to
// whole vectors. Single-threaded; the caller runs many at once.
//
//   const int64_t np = PadToLanes(n), ld = PaddedLeadingDimension(n);
//   ... lower triangle of a (np x np, column-major, padding: unit diagonal) ...
//   double pivot = CholeskyFactor(np, ld, a, inverse_diagonal, 1e-10);
//   if (pivot > 1e-10) CholeskySolve(np, ld, a, inverse_diagonal, x);
#pragma once

#include <cstdint>

namespace spaid::kernels {

// In place: a = L Lᵀ, lower triangle read and written. `a`: np columns of leading dimension `ld`,
// np a multiple of 8, 64-byte aligned; padding rows and columns hold the identity. Entries above
// the diagonal inside the 8 x 8 diagonal blocks must be finite; others are not touched. On return
// `a` holds the strict lower triangle of L, mirrored inside the diagonal blocks (zeros on the
// diagonal), and inverse_diagonal[q] = 1 / L_qq (np).
// Returns the smallest scaled pivot min_q L_qq² / a_qq: 1 for orthogonal columns, 0 for a singular
// matrix. Stops at the first pivot not over limit * a_qq (a NaN included) and returns max(0, that),
// 0 for NaN: then `a` is not a factor. `scaled_determinant` (may be null) receives the product of
// the scaled pivots of a complete factor, that is det of `a` scaled to unit diagonal. The smallest
// eigenvalue of that matrix is at least det / e (the others have the product of n - 1 numbers of
// sum n at most, (n / (n - 1))^(n - 1) < e); a smallest pivot alone bounds nothing of use (Kahan's
// matrix).
double CholeskyFactor(int64_t np, int64_t ld, double* a, double* inverse_diagonal, double limit,
                      double* scaled_determinant = nullptr);

// x := (L Lᵀ)⁻¹ x for one right-hand side: np, 64-byte aligned, padding finite.
void CholeskySolve(int64_t np, int64_t ld, const double* l, const double* inverse_diagonal,
                   double* x);

// The same for 4 or 8 right-hand sides stored together: x[q * W + w], n <= np rows, 64-byte
// aligned.
void CholeskySolve4(int64_t n, int64_t ld, const double* l, const double* inverse_diagonal,
                    double* x);
void CholeskySolve8(int64_t n, int64_t ld, const double* l, const double* inverse_diagonal,
                    double* x);

// Row q - 1 of L⁻¹, 1 <= q <= np: that of the factor of the leading q x q minor, too. x: q rounded
// up to whole vectors, 64-byte aligned; zero from q on.
void CholeskyInverseRow(int64_t q, int64_t ld, const double* l, const double* inverse_diagonal,
                        double* x);

}  // namespace spaid::kernels
