// The one function of libspaidpetsc.so that programs see. PETSc calls it when it opens the library:
//
//   PETSC_OPTIONS="-dll_append /opt/spaid/lib/petsc3.18-real/libspaidpetsc.so" program -pc_type
//   spaid
#include "client/petsc/ksp.h"
#include "client/petsc/pc.h"

extern "C" PETSC_VISIBILITY_PUBLIC PetscErrorCode PetscDLLibraryRegister_spaidpetsc(void);

PetscErrorCode PetscDLLibraryRegister_spaidpetsc(void) {
  PetscFunctionBegin;
  PetscCall(PCRegister(spaid::petsc::kTypeName, spaid::petsc::CreatePc));
  PetscCall(KSPRegister(spaid::petsc::kTypeName, spaid::petsc::CreateKsp));
  PetscCall(spaid::petsc::RegisterEvents());
  PetscFunctionReturn(spaid::petsc::kOk);
}
