// Householder QR of one dense matrix with its right-hand sides appended, for least squares.
// Single-threaded; the caller runs many at once.
//
//   fill a = [ Â | b_1 ... b_m ] (padding rows zero)
//   if (HouseholderQr(shape, a, row_end, r, tolerance) < 0) UpperSolve(n, ldr, r, column of b)
//   else refill a, rank = PivotedQr(shape, a, r, permutation, tolerance), UpperSolve(rank, ...)
#pragma once

#include <cstdint>

namespace spaid::kernels {

struct QrShape {
  int64_t rows = 0;      // padded to whole vectors; padding rows are zero in every column
  int64_t ld = 0;        // leading dimension of `a`, a multiple of 8
  int64_t n_factor = 0;  // columns to factor
  int64_t n_total = 0;   // with the right-hand sides, which only get Qᵀ applied
  int64_t ldr = 0;       // leading dimension of `r`, >= min(rows, n_factor)
};

// Unpivoted. `a`: column-major, 64-byte aligned, overwritten (reflectors; rows [0, n_factor) of the
// right-hand sides become Qᵀb). row_end[j] (may be null: all rows): a row count such that columns
// 0..j are zero at and below it; non-decreasing: reflector j spans rows [j, row_end[j]) only. `r`:
// upper triangle, column-major. Stops at the first column whose remaining norm is not over
// `tolerance` times its original norm (or is not finite) and returns its index; -1: complete, full
// rank. Golub, Van Loan, Matrix Computations, algorithms 5.1.1 and 5.2.1.
int64_t HouseholderQr(const QrShape& shape, double* a, const int64_t* row_end, double* r,
                      double tolerance);

// With column pivoting; norms are recomputed, not down-dated. Stops where the largest remaining
// column norm is not over `tolerance` times the largest original one. Returns the rank;
// permutation[j] (n_factor) is the original index of the j-th column, `r` the leading rank x
// n_factor part of R in that order. A basic solution is R(0:rank, 0:rank)⁻¹ (Qᵀb)(0:rank) at
// permutation[0:rank], zero elsewhere. Returns -1 where a norm is not finite. Golub, Van Loan,
// Matrix Computations, algorithm 5.4.1.
int64_t PivotedQr(const QrShape& shape, double* a, double* r, int64_t* permutation,
                  double tolerance);

// x := R⁻¹ x, R n x n upper triangular, column-major.
void UpperSolve(int64_t n, int64_t ldr, const double* r, double* x);

}  // namespace spaid::kernels
