// -pc_type spaid: M comes from the daemon and is applied here.
#pragma once

#include "client/petsc/applied_matrix.h"
#include "client/petsc/petsc.h"
#include "client/petsc/remote.h"
#include "client/petsc/settings.h"

namespace spaid::petsc {

inline constexpr char kTypeName[] = "spaid";  // of the PC and of the KSP

struct PcData {
  PcSettings settings;
  Remote remote;
  AppliedMatrix m;
  bool whole_solve = false;  // -ksp_type spaid uses the settings and the matrix alone
  bool for_cg = true;        // M is symmetric where A is
  std::string engine;        // that made M, for sentences
  // Iterations of the first solve with this M that converged, and of the last one; 0: none yet.
  PetscInt first_iterations = 0, last_iterations = 0;
  bool last_converged = false;
};

// Null: not of type spaid.
PcData* DataOf(PC pc);

// Registered under kTypeName.
PetscErrorCode CreatePc(PC pc);

}  // namespace spaid::petsc
