// Brings the magnitudes of all entries near 1, on average over rows and columns: a scaling that
// does not depend on how rows and columns were scaled before.
#pragma once

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Factors, as logarithms of base two; 0 where a row or column has no entry that is neither zero nor
// infinite.
struct LogScaling {
  Array<double> row_log2;     // n_rows
  Array<double> column_log2;  // n_cols
};

// Minimises Σ (log2 |a_ij| + r_i + c_j)² over the entries that are neither zero nor infinite
// (Curtis, Reid, J. Inst. Maths Applics 10 (1972) 118), by conjugate gradients preconditioned by
// the diagonal, until the mean misfit of rows and columns is 1/16. `a`: canonical. One thread, at
// most 50 passes over the pattern; scratch: 8 numbers a row and column. Thread-safe. Errors: stop
// statuses.
Result<LogScaling> ScaleLogarithms(const CscView& a, const Context& context);

}  // namespace spaid::kernels
