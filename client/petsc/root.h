// Work that rank 0 of a communicator does for all of them: it alone talks to the daemon.
#pragma once

#include <functional>
#include <optional>

#include "client/cpp/spaid/client.h"
#include "client/petsc/petsc.h"

namespace spaid::petsc {

// Takes a residual: iteration, norm.
using TakeResidual = std::function<PetscErrorCode(PetscInt, PetscReal)>;
// Does the work, and hands residuals out as they come; ends early where one is not taken.
using RootWork = std::function<std::optional<Error>(const TakeResidual&)>;

// Runs `work` on rank 0, `take` on every rank for each residual that the work hands out, and tells
// all ranks how it ended: `error` is the same everywhere, so that no rank goes on alone. An
// exception is an error, too. Ranks that wait sleep: the daemon may need their cores. Collective.
PetscErrorCode RunOnRoot(MPI_Comm comm, const RootWork& work, const TakeResidual& take,
                         std::optional<Error>* error);
// The same of work without residuals.
PetscErrorCode RunOnRoot(MPI_Comm comm, const std::function<std::optional<Error>()>& work,
                         std::optional<Error>* error);

// Ends with PETSC_ERR_LIB and the error in one sentence, which all ranks have. Collective.
PetscErrorCode Raise(MPI_Comm comm, const Error& error);

}  // namespace spaid::petsc
