// PETSc's headers, and the configurations of PETSc that this library is for.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <petscksp.h>
#include <petscsf.h>

#include <memory>
#include <type_traits>

#if defined(PETSC_USE_COMPLEX) || !defined(PETSC_USE_REAL_DOUBLE)
#error "spaid solves in real double precision: build against a PETSc of that kind"
#endif
#if defined(PETSC_USE_64BIT_INDICES)
#error "spaid numbers rows by 32 bits: build against a PETSc of 32-bit indices"
#endif
#if !defined(PETSC_HAVE_HYPRE)
#error "ParaSails and BoomerAMG are hypre's: build against a PETSc that has it"
#endif

namespace spaid::kernels::mpi {

// Ends the program on all ranks where a call of MPI or PETSc has failed, after PETSc has said why:
// other ranks may wait for this one, and nobody could tell them.
inline void Must(int error) {
  if (error != 0) MPI_Abort(PETSC_COMM_WORLD, error);
}

// Owns an object of PETSc. Destroyed on all ranks, before PetscFinalize.
template <class Object, PetscErrorCode (*destroy)(Object*)>
struct PetscDelete {
  void operator()(Object object) const { static_cast<void>(destroy(&object)); }
};
template <class Object, PetscErrorCode (*destroy)(Object*)>
using PetscOwner = std::unique_ptr<std::remove_pointer_t<Object>, PetscDelete<Object, destroy>>;
using MatOwner = PetscOwner<Mat, MatDestroy>;
using VecOwner = PetscOwner<Vec, VecDestroy>;
using KspOwner = PetscOwner<KSP, KSPDestroy>;
using SfOwner = PetscOwner<PetscSF, PetscSFDestroy>;

}  // namespace spaid::kernels::mpi
