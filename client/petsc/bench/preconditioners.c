/* Set-up, application and solve of any preconditioners that options name, by turns in one process.

     preconditioners -f A.petsc [-rounds 5] -configs "NAME|options;NAME|options;..."

   Every round has other values on the same pattern, so that nobody finds what it made before; the
   first is the cold one. Prints CSV: name, round, seconds of set-up, of one application, of the
   solve (of b = A x, x random), iterations, reason, and the relative residual that it left. And,
   for the floor of an application, "floor": seconds in which PETSc's own Jacobi moves -floor_bytes
   bytes. */
#include <petscksp.h>
#include <petsctime.h>

static PetscErrorCode Median(PetscInt count, PetscLogDouble* seconds, PetscLogDouble* median) {
  PetscInt i, j;
  PetscFunctionBeginUser;
  for (i = 1; i < count; ++i) {
    for (j = i; j > 0 && seconds[j] < seconds[j - 1]; --j) {
      PetscLogDouble swap = seconds[j];
      seconds[j] = seconds[j - 1];
      seconds[j - 1] = swap;
    }
  }
  *median = seconds[count / 2];
  PetscFunctionReturn(0);
}

static PetscErrorCode TimeApply(PC pc, Vec x, Vec y, PetscLogDouble* median) {
  PetscLogDouble seconds[21], begin, end;
  PetscInt i;
  PetscFunctionBeginUser;
  PetscCall(PCApply(pc, x, y));
  for (i = 0; i < 21; ++i) {
    PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
    PetscCall(PetscTime(&begin));
    PetscCall(PCApply(pc, x, y));
    PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
    PetscCall(PetscTime(&end));
    seconds[i] = end - begin;
  }
  PetscCall(Median(21, seconds, median));
  PetscFunctionReturn(0);
}

/* A Jacobi application reads x and the diagonal, and writes y: 24 bytes an unknown. */
static PetscErrorCode TimeFloor(PetscReal bytes) {
  Mat d;
  Vec x, y;
  PC pc;
  PetscLogDouble seconds;
  PetscInt n = (PetscInt)(bytes / 24), i, begin, end;
  PetscFunctionBeginUser;
  PetscCall(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, n, n, 1, NULL, 0, NULL, &d));
  PetscCall(MatGetOwnershipRange(d, &begin, &end));
  for (i = begin; i < end; ++i) PetscCall(MatSetValue(d, i, i, 2, INSERT_VALUES));
  PetscCall(MatAssemblyBegin(d, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(d, MAT_FINAL_ASSEMBLY));
  PetscCall(MatCreateVecs(d, &x, &y));
  PetscCall(VecSetRandom(x, NULL));
  PetscCall(PCCreate(PETSC_COMM_WORLD, &pc));
  PetscCall(PCSetType(pc, PCJACOBI));
  PetscCall(PCSetOperators(pc, d, d));
  PetscCall(PCSetUp(pc));
  PetscCall(TimeApply(pc, x, y, &seconds));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "floor,0,0,%.9f,0,0,0,%.0f\n", seconds, bytes));
  PetscCall(PCDestroy(&pc));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscCall(MatDestroy(&d));
  PetscFunctionReturn(0);
}

static PetscErrorCode Round(KSP ksp, const char* name, PetscInt round, Mat a, Vec b, Vec x) {
  PetscLogDouble begin, end, set_up, apply = 0, solve;
  PetscInt its;
  KSPConvergedReason reason;
  KSPType type;
  PetscBool whole;
  Vec r;
  PC pc;
  PetscReal residual, norm;
  PetscFunctionBeginUser;
  PetscCall(KSPSetOperators(ksp, a, a));
  PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
  PetscCall(PetscTime(&begin));
  PetscCall(KSPSetUp(ksp));
  PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
  PetscCall(PetscTime(&end));
  set_up = end - begin;
  PetscCall(PetscTime(&begin));
  PetscCall(KSPSolve(ksp, b, x));
  PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
  PetscCall(PetscTime(&end));
  solve = end - begin;
  PetscCall(KSPGetIterationNumber(ksp, &its));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  PetscCall(VecDuplicate(b, &r));
  PetscCall(MatMult(a, x, r));
  PetscCall(VecAXPY(r, -1, b));
  PetscCall(VecNorm(r, NORM_2, &residual));
  PetscCall(VecNorm(b, NORM_2, &norm));
  PetscCall(KSPGetType(ksp, &type));
  PetscCall(PetscStrcmp(type, "spaid", &whole));
  PetscCall(KSPGetPC(ksp, &pc));
  if (!whole) PetscCall(TimeApply(pc, b, r, &apply));
  PetscCall(VecDestroy(&r));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s,%d,%.9f,%.9f,%.9f,%d,%d,%.2e\n", name, (int)round,
                        set_up, apply, solve, (int)its, (int)reason, (double)(residual / norm)));
  PetscFunctionReturn(0);
}

int main(int argc, char** argv) {
  enum { kMost = 32 };
  char file[PETSC_MAX_PATH_LEN] = "", configs[8192] = "", *config[kMost], *options, *next;
  PetscInt rounds = 5, count = 0, k, round;
  PetscReal floor_bytes = 0;
  PetscViewer viewer;
  KSP ksp[kMost];
  Mat a;
  Vec b, x;

  PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-f", file, sizeof(file), NULL));
  PetscCall(PetscOptionsGetString(NULL, NULL, "-configs", configs, sizeof(configs), NULL));
  PetscCall(PetscOptionsGetInt(NULL, NULL, "-rounds", &rounds, NULL));
  PetscCall(PetscOptionsGetReal(NULL, NULL, "-floor_bytes", &floor_bytes, NULL));
  if (floor_bytes > 0) PetscCall(TimeFloor(floor_bytes));
  if (file[0] == 0) return PetscFinalize();
  PetscCall(PetscViewerBinaryOpen(PETSC_COMM_WORLD, file, FILE_MODE_READ, &viewer));
  PetscCall(MatCreate(PETSC_COMM_WORLD, &a));
  PetscCall(MatSetFromOptions(a));
  PetscCall(MatLoad(a, viewer));
  PetscCall(PetscViewerDestroy(&viewer));
  PetscCall(MatSetOption(a, MAT_SPD, PETSC_TRUE));
  PetscCall(MatCreateVecs(a, &x, &b));
  for (next = configs; next != NULL && *next != 0 && count < kMost; ++count) {
    char prefix[16];
    config[count] = next;
    next = strchr(next, ';');
    if (next != NULL) *next++ = 0;
    options = strchr(config[count], '|');
    *options++ = 0;
    PetscCall(PetscSNPrintf(prefix, sizeof(prefix), "c%d_", (int)count));
    PetscCall(PetscOptionsPrefixPush(NULL, prefix));
    PetscCall(PetscOptionsInsertString(NULL, options));
    PetscCall(PetscOptionsPrefixPop(NULL));
    PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp[count]));
    PetscCall(KSPSetOptionsPrefix(ksp[count], prefix));
    PetscCall(KSPSetOperators(ksp[count], a, a));
    PetscCall(KSPSetFromOptions(ksp[count]));
  }
  for (round = 0; round < rounds; ++round) {
    for (k = 0; k < count; ++k) {
      PetscCall(MatScale(a, 1 + 1e-3 * (1 + (double)k))); /* values that nobody had before */
      PetscCall(VecSetRandom(x, NULL));
      PetscCall(MatMult(a, x, b));
      PetscCall(Round(ksp[k], config[k], round, a, b, x));
    }
  }
  for (k = 0; k < count; ++k) PetscCall(KSPDestroy(&ksp[k]));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(MatDestroy(&a));
  return PetscFinalize();
}
