// Scales rows and columns of a matrix to about equal size by powers of two, which costs no digit.
//
//   auto e = Equilibrate(a, {.symmetric = diagnosis.numerically_symmetric}, context);
//   a_ij e->row[i] e->column[j]   // rows and columns with a largest entry near 1
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct EquilibrateOptions {
  // A equals its transpose, up to noise: one vector of factors, so that D A D is as symmetric.
  bool symmetric = false;
  // Each halves the distance, in powers of two, to equal norms; 14 do for any matrix of fp64.
  int max_iterations = 20;
};

struct Equilibration {
  // Powers of two, normal numbers; 1 where a row or column has no entry that is neither zero nor
  // infinite. Equal to each other where options.symmetric.
  Array<double> row;     // n_rows
  Array<double> column;  // n_cols
  int iterations = 0;
  // The largest absolute value of each row and column of the scaled matrix is within [3/8, 8/3].
  // Not so where the iterations did not do, or values differ so much (more than 2^1000, or along a
  // chain of rows) that a factor would leave the range of normal numbers and was cut.
  bool converged = false;
};

// Ruiz' iteration (A scaling algorithm to equilibrate both rows and columns norms in matrices,
// RAL-TR-2001-034) in the maximum norm: rows and columns are divided by the square roots of their
// norms, all at once. Norms are 16.8 fixed-point logarithms of base two, off by 0.09 at most, so
// that no value of fp64 overflows or is lost, subnormal ones included; infinities and NaN are
// overlooked. `a`: canonical, square where options.symmetric. The same bits for any number of
// threads. Scratch: 8 bytes for each row and column, and 4 more a row for each further thread.
// Reports no progress. Thread-safe. Errors: stop statuses.
Result<Equilibration> Equilibrate(const CscView& a, const EquilibrateOptions& options,
                                  const Context& context);

// How evenly D_r A Q D_c is scaled. Logarithms of base two of maximum norms, off by 0.3 at most;
// rows and columns without an entry do not count: where all are so, 0.
struct ScaledNorms {
  double min_row = 0, max_row = 0;
  double min_column = 0, max_column = 0;
  // Columns with an entry whose diagonal entry is missing or below 2^-kWeakDiagonal of the largest
  // one. Square matrices alone.
  int64_t weak_diagonals = 0;

  double row_spread() const { return max_row - min_row; }
  double column_spread() const { return max_column - min_column; }
};

// The diagonal below a thousandth of its column, about: what a step by it adds to an elimination is
// mostly rounding, and Jacobi's or an FSAI's first step points the wrong way.
inline constexpr int kWeakDiagonal = 10;

// Measures D_r A Q D_c without making it: position k has column column_of_row[k] of `a`, times
// column[k]. `row`, `column` (powers of two), `column_of_row`: may be empty, for the identity.
// Threads, scratch, errors: as Equilibrate.
Result<ScaledNorms> MeasureNorms(const CscView& a, std::span<const double> row,
                                 std::span<const double> column,
                                 std::span<const int32_t> column_of_row, const Context& context);

}  // namespace spaid::kernels
