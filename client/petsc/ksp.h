// -ksp_type spaid: the daemon solves, for any number of right-hand sides at once.
#pragma once

#include "client/petsc/petsc.h"

namespace spaid::petsc {

// Registered under kTypeName. Its PC is of the same type and holds the settings of the daemon and
// of M.
PetscErrorCode CreateKsp(KSP ksp);

}  // namespace spaid::petsc
