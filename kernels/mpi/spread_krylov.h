// CG, BiCGSTAB and GMRES(m) of PETSc on a matrix over several ranks, with the outcomes of
// kernels/krylov: right-preconditioned (CG symmetric), every outcome judged by b − A x formed anew.
//
//   Result<RhsResult> r = SolveSpread(a, m->rows.get(), b, x, options, context);
//   if (r->outcome == Outcome::kConverged) use(x);
#pragma once

#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/krylov/krylov.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/mpi/spread_null_space.h"

namespace spaid::kernels::mpi {

// Collective. `m`: spread as `a.rows` is; null: no preconditioner. `b`, `x`: of the rows that this
// rank owns; x comes with the initial guess and leaves with the last iterate, or the guess where
// that has the smaller residual. `space`: of a singular A, projected out as of kernels/krylov;
// null: none. m_storage, null_space, basis_bytes, shadow_vectors and turn are options that are not
// read. context.stop may be set on one rank alone: all leave together, about a tenth of a second
// later at most, or an iteration where that takes longer (outcomes kCancelled, kTimeLimit);
// context.progress is told of each iteration on the ranks that have one. The result is the same on
// all ranks. Errors, the same on all: INVALID_ARGUMENT/METHOD_NOT_SPREAD (kAuto, MINRES, IDR),
// /OPTIONS_DIFFER, those of CheckSolveOptions, /RHS_LENGTH_MISMATCH,
// /PRECONDITIONER_SIZE_MISMATCH, /NON_FINITE_VALUE with the first index of the whole vector.
[[gnu::visibility("default")]] Result<RhsResult> SolveSpread(
    const SpreadMatrix& a, Mat m, std::span<const double> b, std::span<double> x,
    const SolveOptions& options, const Context& context, const SpreadNullSpace* space = nullptr);

}  // namespace spaid::kernels::mpi
