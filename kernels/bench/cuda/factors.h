// What solves on a CUDA device are measured against: incomplete factors of cuSPARSE, applied by
// its triangular solves.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

enum class FactorKind {
  kDiagonal,  // none: the inverse diagonal, for what the loop itself takes
  kIc0,       // A ≈ L Lᵀ (csric02), in CG
  kIlu0,      // A ≈ L U (csrilu02), in BiCGSTAB
};

struct FactorOptions {
  FactorKind kind = FactorKind::kIc0;
  bool cg = true;  // else BiCGSTAB
  // Both triangles by rows in arrays of their own, Lᵀ too. Else as cuSPARSE's samples have it: one
  // array of both, and Lᵀ by the transposed operation.
  bool apart = false;
  bool levels = false;  // CUSPARSE_SOLVE_POLICY_USE_LEVEL in the factorisation
  double rtol = 1e-7;
  int64_t max_iterations = 3000;
};

// Milliseconds by the device's clock, its waits for the host included, allocations left out.
struct FactorRun {
  double analysis_ms = 0;  // of the factorisation and of both triangular solves
  double factor_ms = 0;    // with the parting of the triangles
  double solve_ms = 0;
  int64_t iterations = 0;
  double relative_residual = 1;  // of b − A x, formed anew
  // The row of a zero pivot, or of the first pivot that is not finite; then nothing was solved.
  int64_t bad_pivot = -1;
  // |L U − A| at most, over the largest element of A's row, on A's entries in a sample of rows.
  double factor_error = 0;
};

// A x = b, x0 = 0. `by_columns` and `by_rows`: the same canonical matrix of fewer than 2³¹ entries,
// the second of its transpose. `count` runs, from the factorisation on, after one that warms up.
// Returns why not, or nothing.
std::string SolveByFactors(const CscView& by_columns, const CscView& by_rows, const double* b,
                           const FactorOptions& options, FactorRun* runs, int count);

// "12.6.3", of the cuSPARSE that is loaded; nothing: there is none.
std::string CusparseVersion();

}  // namespace spaid::kernels::bench
