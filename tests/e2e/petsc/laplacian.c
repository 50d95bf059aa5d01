/* Smallest eigenvalues of a 2-D Laplacian by SLEPc, as its options say. */
#include <slepceps.h>

int main(int argc, char** argv) {
  Mat a;
  EPS eps;
  PetscInt n = 30, begin, end, i, found;

  PetscCall(SlepcInitialize(&argc, &argv, NULL, NULL));
  PetscCall(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, n * n, n * n, 5, NULL, 5,
                         NULL, &a));
  PetscCall(MatGetOwnershipRange(a, &begin, &end));
  for (i = begin; i < end; ++i) {
    if (i >= n) PetscCall(MatSetValue(a, i, i - n, -1, INSERT_VALUES));
    if (i % n > 0) PetscCall(MatSetValue(a, i, i - 1, -1, INSERT_VALUES));
    PetscCall(MatSetValue(a, i, i, 4, INSERT_VALUES));
    if (i % n < n - 1) PetscCall(MatSetValue(a, i, i + 1, -1, INSERT_VALUES));
    if (i < n * (n - 1)) PetscCall(MatSetValue(a, i, i + n, -1, INSERT_VALUES));
  }
  PetscCall(MatAssemblyBegin(a, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(a, MAT_FINAL_ASSEMBLY));
  PetscCall(EPSCreate(PETSC_COMM_WORLD, &eps));
  PetscCall(EPSSetOperators(eps, a, NULL));
  PetscCall(EPSSetProblemType(eps, EPS_HEP));
  PetscCall(EPSSetFromOptions(eps));
  PetscCall(EPSSolve(eps));
  PetscCall(EPSGetConverged(eps, &found));
  for (i = 0; i < found && i < 2; ++i) {
    PetscScalar value;
    PetscCall(EPSGetEigenvalue(eps, i, &value, NULL));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "eigenvalue %.10f\n", (double)value));
  }
  PetscCall(EPSDestroy(&eps));
  PetscCall(MatDestroy(&a));
  return SlepcFinalize();
}
