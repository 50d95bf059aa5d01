// ParaSails and BoomerAMG of hypre, and GAMG of PETSc, on a matrix over several ranks, as something
// that multiplies.
//
//   Result<PetscBuilt> built = BuildPetsc(a, PetscMethod::kGamg, {}, {}, context);
//   Result<RhsResult> r = SolveSpread(a, built->m.get(), b, x, options, context);
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/mpi/petsc_options.h"
#include "kernels/mpi/spread_matrix.h"

namespace spaid::kernels::mpi {

struct PetscBuilt {
  MatOwner m;         // a shell that multiplies; keeps a's rows alive, and nothing else of it
  int64_t nnz = 0;    // of all levels, of GAMG; 0: not told
  int64_t bytes = 0;  // on this rank: counted of GAMG, else guessed by A's
  PetscQuality quality;
};

// Collective, with the same options on all ranks. `near_null`: the rows that this rank owns of
// vectors that A nearly maps to zero, one after the other; empty: constants. GAMG alone reads them.
// Nothing can stop a set-up that has begun. Errors, the same on all: those of CheckPetscOptions;
// INVALID_ARGUMENT/OPTIONS_DIFFER, /BAD_NEAR_NULL_SPACE, /RANK_DEFICIENT (index: the first vector
// that depends on those before it); FAILED_PRECONDITION/ZERO_DIAGONAL, but for ParaSails,
// /SET_UP_FAILED; stop statuses.
[[gnu::visibility("default")]] Result<PetscBuilt> BuildPetsc(const SpreadMatrix& a,
                                                             PetscMethod method,
                                                             const PetscEngineOptions& options,
                                                             std::span<const double> near_null,
                                                             const Context& context);

}  // namespace spaid::kernels::mpi
