// PETSc's headers, those for writers of a PC or a KSP included, and the configurations of PETSc
// that this library is for.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#if defined(PETSC_USE_COMPLEX)
#error "spaid solves in real double precision: build against a real PETSc, not a complex one"
#endif
#if !defined(PETSC_USE_REAL_DOUBLE)
#error "spaid solves in real double precision: build against a PETSc of double precision"
#endif

namespace spaid::petsc {

// A PetscErrorCode is an int or an enum, as PETSc's version has it.
inline constexpr PetscErrorCode kOk = static_cast<PetscErrorCode>(0);

}  // namespace spaid::petsc
