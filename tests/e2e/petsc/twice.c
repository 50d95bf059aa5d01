/* Begins and ends PETSc twice in one process, with solves by both types in between. */
#include <petscksp.h>

static PetscErrorCode Solve(const char* type) {
  Mat a;
  Vec b, x;
  KSP ksp;
  PC pc;
  PetscInt n = 100, i, begin, end;
  KSPConvergedReason reason;

  PetscFunctionBeginUser;
  PetscCall(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, n, n, 3, NULL, 3, NULL, &a));
  PetscCall(MatGetOwnershipRange(a, &begin, &end));
  for (i = begin; i < end; ++i) {
    if (i > 0) PetscCall(MatSetValue(a, i, i - 1, -1, INSERT_VALUES));
    PetscCall(MatSetValue(a, i, i, 2.1, INSERT_VALUES));
    if (i < n - 1) PetscCall(MatSetValue(a, i, i + 1, -1, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(a, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(a, MAT_FINAL_ASSEMBLY));
  PetscCall(MatCreateVecs(a, &x, &b));
  PetscCall(VecSet(b, 1));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
  PetscCall(KSPSetOperators(ksp, a, a));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCSetType(pc, "spaid"));
  PetscCall(KSPSetType(ksp, type));
  PetscCall(KSPSolve(ksp, b, x));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  if (reason > 0) PetscCall(PetscPrintf(PETSC_COMM_WORLD, "converged\n"));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(MatDestroy(&a));
  PetscFunctionReturn(0);
}

int main(int argc, char** argv) {
  int k;

  MPI_Init(&argc, &argv);
  for (k = 0; k < 2; ++k) {
    PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
    PetscCall(Solve(k == 0 ? "spaid" : KSPGMRES));
    PetscCall(PetscFinalize());
  }
  MPI_Finalize();
  return 0;
}
