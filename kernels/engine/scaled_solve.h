// Solves A x = b with an M that was made of A with its rows scaled. The iteration is that of
// (D A) x = D b with M D⁻¹, so that it lessens the residual of the rows that M was made by; whether
// it has converged is decided by the caller's residual alone.
//
//   auto solved = SolveByScaledRows(op, m_op, m.row_scaling(), b, x0, options, context);
#pragma once

#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/krylov/krylov.h"

namespace spaid::kernels {

// As Solve of krylov.h, with a method for any A. `rows`: the diagonal of D, powers of two. A small
// residual of D A need not be one of A: solves of what is left follow one another, by turns in the
// scaled rows and in A's own, until ‖b − A x‖ <= max(rtol ‖b‖, atol), as long as they help; the
// first one does for most systems. Iterations count over all of them; residuals that are told on
// the way are those of the turn, relative to the caller's where it began. Takes seven vectors of n
// more than Solve. The same bits for any number of threads. Errors: those of Solve.
Result<SolveResult> SolveByScaledRows(const LinearOperator& a, const LinearOperator& m,
                                      std::span<const double> rows, std::span<const double> b,
                                      std::span<const double> x0, const SolveOptions& options,
                                      const Context& context);

}  // namespace spaid::kernels
