// Options of the PC and the KSP: those of the contract under their names, and what says where the
// daemon is.
#pragma once

#include <string>
#include <string_view>

#include "client/cpp/option_text.h"
#include "client/petsc/petsc.h"

namespace spaid::petsc {

enum class Parallel { kGather, kError };
std::string_view Name(Parallel value);

// Options of a PC, -pc_spaid_*. Whole solves by -ksp_type spaid read all of them, too.
struct PcSettings {
  PcSettings();  // $SPAID_ADDRESS, $SPAID_TOKEN

  internal::OptionSet options;  // those of the iteration are the KSP's
  PetscReal reuse_factor = 0;   // 0: M is built of every new A
  Parallel parallel = Parallel::kGather;
  PetscReal gather_bytes = 2147483648.0;  // of A that one rank takes from the others
};

// Reads -pc_spaid_*, under the prefix of the object. Errors: PETSC_ERR_ARG_OUTOFRANGE, with the
// option and its range; PETSC_ERR_FILE_OPEN (-pc_spaid_token_file).
PetscErrorCode SetFromOptions(PetscOptionItems* items, PcSettings* settings);

// Reads -ksp_spaid_*: those of the iteration that a KSP has not itself.
PetscErrorCode SetFromOptions(PetscOptionItems* items, SolveOptions* options);

}  // namespace spaid::petsc
