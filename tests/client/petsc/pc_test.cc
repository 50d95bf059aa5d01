// -pc_type spaid: M as it is applied, set-ups as values and patterns change, what is refused.
#include <algorithm>
#include <cmath>

#include "tests/client/petsc/support.h"

namespace spaid::petsc_test {
namespace {

using ::testing::HasSubstr;

class PcTest : public WithDaemon {};

Dense MOf(const Solver& solver, Mat a) {
  return ToDense(a, [&](Vec x, Vec y) { return PCApply(solver.pc(), x, y); });
}

Dense TransposeOf(const Solver& solver, Mat a) {
  return ToDense(a, [&](Vec x, Vec y) { return PCApplyTranspose(solver.pc(), x, y); });
}

Dense DenseOf(Mat a) {
  return ToDense(a, [&](Vec x, Vec y) { return MatMult(a, x, y); });
}

void ExpectTransposed(const Dense& m, const Dense& t) {
  for (size_t i = 0; i < m.size(); ++i) {
    for (size_t j = 0; j < m.size(); ++j) EXPECT_DOUBLE_EQ(m[j][i], t[i][j]);
  }
}

// Each column of static SPAI has the pattern of A's and is there the least-squares solution of
// A m = e: the residual is orthogonal to the columns of A that it may use.
// In BAIJ and SBAIJ the pattern is one of blocks, with zeros stored.
void ExpectStaticSpai(const Dense& a, const Dense& m, size_t block = 1) {
  const size_t n = a.size();
  const auto has = [&](size_t j, size_t k) {
    bool found = j == k;
    for (size_t p = k / block * block; p < (k / block + 1) * block; ++p) {
      for (size_t q = j / block * block; q < (j / block + 1) * block; ++q) found |= a[p][q] != 0;
    }
    return found;
  };
  for (size_t k = 0; k < n; ++k) {
    std::vector<double> residual(n);
    residual[k] = -1;
    for (size_t j = 0; j < n; ++j) {
      if (!has(j, k)) {
        EXPECT_EQ(m[k][j], 0) << j << " " << k;
      }
      for (size_t i = 0; i < n; ++i) residual[i] += a[j][i] * m[k][j];
    }
    for (size_t j = 0; j < n; ++j) {
      if (!has(j, k)) continue;
      double product = 0;
      for (size_t i = 0; i < n; ++i) product += a[j][i] * residual[i];
      EXPECT_NEAR(product, 0, 1e-10) << j << " " << k;
    }
  }
}

// Solves a small dense SPD system, by elimination without pivots.
std::vector<double> Eliminate(Dense a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (size_t j = k; j < n; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (size_t k = n; k-- > 0;) {
    for (size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

// M = GᵀG of FSAI on the lower triangle of A, row by row as Kolotilina and Yeremin have it.
Dense Fsai(const Dense& a) {
  const size_t n = a.size();
  Dense m(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    std::vector<size_t> pattern;
    for (size_t j = 0; j <= i; ++j) {
      if (a[j][i] != 0) pattern.push_back(j);
    }
    Dense local(pattern.size(), std::vector<double>(pattern.size()));
    for (size_t p = 0; p < pattern.size(); ++p) {
      for (size_t q = 0; q < pattern.size(); ++q) local[p][q] = a[pattern[p]][pattern[q]];
    }
    std::vector<double> unit(pattern.size());
    unit.back() = 1;
    const std::vector<double> y = Eliminate(local, unit);
    for (size_t p = 0; p < pattern.size(); ++p) {
      for (size_t q = 0; q < pattern.size(); ++q) {
        m[pattern[p]][pattern[q]] += y[p] * y[q] / y.back();
      }
    }
  }
  return m;
}

void ExpectNear(const Dense& a, const Dense& b, double tolerance) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a.size(); ++j) EXPECT_NEAR(a[i][j], b[i][j], tolerance);
  }
}

TEST_F(PcTest, JacobiDividesByTheDiagonal) {
  const PetscInt n = 17;
  Mat a = Assemble(n, Band(n));
  Solver solver(a, "-ksp_type bcgs -pc_spaid_engine jacobi");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  const Dense m = MOf(solver, a);
  for (PetscInt i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    for (size_t j = 0; j < m.size(); ++j) {
      EXPECT_DOUBLE_EQ(m[j][at], j == at ? 1 / (6 + std::sin(3.0 * static_cast<double>(i))) : 0);
    }
  }
  OK(MatDestroy(&a));
}

TEST_F(PcTest, StaticSpaiAndItsTransposeAreThoseOfTheDefinition) {
  const PetscInt n = 26;
  Mat a = Assemble(n, Band(n));
  Solver solver(a, "-ksp_type bcgs -pc_spaid_engine static-spai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  const Dense m = MOf(solver, a);
  ExpectStaticSpai(DenseOf(a), m);
  ExpectTransposed(m, TransposeOf(solver, a));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, FsaiIsThatOfTheDefinition) {
  Mat a = Assemble(30, Grid(5, 1, 0, 6));
  Solver solver(a, "-ksp_type cg -pc_spaid_engine fsai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  const Dense m = MOf(solver, a);
  ExpectNear(m, Fsai(DenseOf(a)), 1e-13);
  ExpectNear(m, TransposeOf(solver, a), 0);
  OK(MatDestroy(&a));
}

TEST_F(PcTest, TakesEveryTypeWithEntries) {
  const PetscInt n = 24;
  Mat aij = Assemble(n, Band(n), 2);
  Mat symmetric = Assemble(n, Grid(6, 1, 0, 4), 2);
  OK(MatSetOption(symmetric, MAT_SYMMETRIC, PETSC_TRUE));
  const std::string kind = Size() == 1 ? "seq" : "mpi";
  for (const std::string type : {"aij", "baij", "sell", "sbaij", "aijperm", "is"}) {
    Mat from = type == "sbaij" ? symmetric : aij, a = nullptr;
    OK(MatConvert(from, (type == "is" ? type : kind + type).c_str(), MAT_INITIAL_MATRIX, &a));
    Solver solver(a, "-ksp_type bcgs -pc_spaid_engine static-spai");
    OK(KSPSetFromOptions(solver.ksp()));
    OK(KSPSetUp(solver.ksp()));
    const size_t block = type.find("baij") == std::string::npos ? 1 : 2;
    ExpectStaticSpai(DenseOf(a), MOf(solver, a), block);
    if (type == "sell" && Size() > 1) {  // PETSc 3.18 itself crashes in a second MatConvert
      OK(MatDestroy(&a));
      continue;
    }
    // Other values on the same pattern.
    OK(MatScale(a, 3));
    OK(KSPSetUp(solver.ksp()));
    ExpectStaticSpai(DenseOf(a), MOf(solver, a), block);
    OK(MatDestroy(&a));
  }
  OK(MatDestroy(&aij));
  OK(MatDestroy(&symmetric));
}

TEST_F(PcTest, TakesANestOfMatrices) {
  Mat parts[4];
  parts[0] = Assemble(12, Band(12));
  parts[3] = Assemble(9, Grid(3));
  for (const int k : {1, 2}) {
    OK(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, k == 1 ? 12 : 9, k == 1 ? 9 : 12,
                    3, nullptr, 3, nullptr, &parts[k]));
    PetscInt begin = 0, end = 0;
    OK(MatGetOwnershipRange(parts[k], &begin, &end));
    for (PetscInt i = begin; i < end; ++i) {
      if (i < 9) {
        OK(MatSetValue(parts[k], i, 8 - i, 0.1 * k, INSERT_VALUES));
      }
    }
    OK(MatAssemblyBegin(parts[k], MAT_FINAL_ASSEMBLY));
    OK(MatAssemblyEnd(parts[k], MAT_FINAL_ASSEMBLY));
  }
  Mat a = nullptr;
  OK(MatCreateNest(PETSC_COMM_WORLD, 2, nullptr, 2, nullptr, parts, &a));
  Solver solver(a, "-ksp_type bcgs -pc_spaid_engine static-spai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  ExpectStaticSpai(DenseOf(a), MOf(solver, a));
  OK(MatDestroy(&a));
  for (Mat& part : parts) OK(MatDestroy(&part));
}

TEST_F(PcTest, AppliesToManyColumnsAtOnce) {
  for (const std::string engine : {"static-spai", "fsai"}) {
    Mat a = Assemble(49, Grid(7)), x = nullptr, y = nullptr;
    Solver solver(a, "-ksp_type gmres -pc_spaid_engine " + engine);
    OK(KSPSetFromOptions(solver.ksp()));
    OK(KSPSetUp(solver.ksp()));
    PetscInt local = 0;
    OK(MatGetLocalSize(a, &local, nullptr));
    OK(MatCreateDense(PETSC_COMM_WORLD, local, PETSC_DECIDE, 49, 5, nullptr, &x));
    OK(MatSetRandom(x, nullptr));
    OK(MatDuplicate(x, MAT_DO_NOT_COPY_VALUES, &y));
    for (int twice = 0; twice < 2; ++twice) OK(PCMatApply(solver.pc(), x, y));
    for (PetscInt j = 0; j < 5; ++j) {
      Vec in = nullptr, out = nullptr, one = nullptr;
      PetscReal difference = 0;
      OK(MatDenseGetColumnVecRead(x, j, &in));
      OK(MatDenseGetColumnVecRead(y, j, &out));
      OK(VecDuplicate(out, &one));
      OK(PCApply(solver.pc(), in, one));
      OK(VecAXPY(one, -1, out));
      OK(VecNorm(one, NORM_INFINITY, &difference));
      EXPECT_LT(difference, 1e-15);
      OK(VecDestroy(&one));
      OK(MatDenseRestoreColumnVecRead(x, j, &in));
      OK(MatDenseRestoreColumnVecRead(y, j, &out));
    }
    OK(MatDestroy(&x));
    OK(MatDestroy(&y));
    OK(MatDestroy(&a));
  }
}

TEST_F(PcTest, SendsValuesAloneOnTheSamePattern) {
  const PetscInt side = 20, n = side * side, nnz = 5 * n - 4 * side;
  Mat a = Assemble(n, Grid(side, 1, 0.3));
  Vec b = Filled(a, [](PetscInt i) { return std::cos(static_cast<double>(i)); });
  Vec x = Filled(a, [](PetscInt) { return 0; });
  Solver solver(a, "-ksp_type bcgs -ksp_rtol 1e-10 -pc_spaid_engine static-spai");
  OK(KSPSetFromOptions(solver.ksp()));
  double before = Metric("spaid_array_bytes_received_total");
  for (int step = 0; step < 4; ++step) {
    Refill(a, Grid(side, 1, 0.3 + 0.01 * step));
    OK(solver.Solve(b, x));
    EXPECT_GT(solver.reason(), 0);
    EXPECT_LT(RelativeResidual(a, x, b), 1e-9);
    const double after = Metric("spaid_array_bytes_received_total");
    if (step == 0) {
      EXPECT_GE(after - before, 12 * nnz);
    } else {
      EXPECT_EQ(after - before, 8 * nnz) << step;
    }
    before = after;
  }
  EXPECT_THAT(solver.View(), HasSubstr("rebuild"));
  // Nothing has changed: nothing is set up.
  OK(solver.Solve(b, x));
  EXPECT_EQ(Metric("spaid_array_bytes_received_total"), before);
  OK(VecDestroy(&x));
  OK(VecDestroy(&b));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, KeepsMWhileItServes) {
  const PetscInt side = 16, n = side * side;
  Mat a = Assemble(n, Grid(side));
  Vec b = Filled(a, [](PetscInt i) { return 1 + std::sin(static_cast<double>(i)); });
  Vec x = Filled(a, [](PetscInt) { return 0; });
  Solver solver(a, "-ksp_type cg -pc_spaid_engine fsai -pc_spaid_reuse_factor 1.5");
  OK(KSPSetFromOptions(solver.ksp()));
  const double before = Metric("spaid_jobs_submitted_total", "build");
  for (int step = 0; step < 4; ++step) {
    Refill(a, Grid(side, 1 + 0.1 * step));  // M of the first serves all of them
    OK(solver.Solve(b, x));
    EXPECT_GT(solver.reason(), 0);
  }
  EXPECT_EQ(Metric("spaid_jobs_submitted_total", "build") - before, 1);
  // With rows that differ by orders it takes more, and M is built after that.
  const auto uneven = [&](PetscInt i) {
    Row row = Grid(side)(i);
    for (auto& [j, value] : row) value *= std::pow(10, -3.0 * static_cast<double>((i + j) % 2));
    for (auto& [j, value] : row) {
      if (j == i) value = 4 * std::pow(10, 3.0 * static_cast<double>(i % 3));
    }
    return row;
  };
  for (int step = 0; step < 2; ++step) {
    Refill(a, uneven);
    OK(solver.Solve(b, x));
  }
  EXPECT_EQ(Metric("spaid_jobs_submitted_total", "build") - before, 2);
  OK(VecDestroy(&x));
  OK(VecDestroy(&b));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, BeginsAnewAfterAReset) {
  Mat small = Assemble(9, Grid(3)), large = Assemble(64, Grid(8));
  Solver solver(small, "-ksp_type cg -ksp_rtol 1e-10 -pc_spaid_engine afsai");
  OK(KSPSetFromOptions(solver.ksp()));
  for (Mat a : {small, large, small}) {
    Vec b = Filled(a, [](PetscInt i) { return static_cast<double>(i + 1); });
    Vec x = Filled(a, [](PetscInt) { return 0; });
    OK(KSPReset(solver.ksp()));
    OK(KSPSetOperators(solver.ksp(), a, a));
    OK(solver.Solve(b, x));
    EXPECT_GT(solver.reason(), 0);
    EXPECT_LT(RelativeResidual(a, x, b), 1e-9);
    OK(VecDestroy(&x));
    OK(VecDestroy(&b));
  }
  OK(MatDestroy(&small));
  OK(MatDestroy(&large));
}

TEST_F(PcTest, LeavesRanksWithoutRows) {
  Mat a = Assemble(2, [](PetscInt i) { return Row{{i, 2.0 + static_cast<double>(i)}}; });
  Solver solver(a, "-ksp_type cg -pc_spaid_engine jacobi");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  const Dense m = MOf(solver, a);
  EXPECT_DOUBLE_EQ(m[0][0], 0.5);
  EXPECT_DOUBLE_EQ(m[1][1], 1 / 3.0);
  OK(MatDestroy(&a));
}

TEST_F(PcTest, TakesRowsThatAreNotSorted) {
  if (Size() > 1) GTEST_SKIP() << "arrays of one rank";
  PetscInt ptr[] = {0, 2, 4}, idx[] = {1, 0, 1, 0};
  PetscScalar values[] = {-1, 4, 4, -1};
  Mat a = nullptr;
  OK(MatCreateSeqAIJWithArrays(PETSC_COMM_SELF, 2, 2, ptr, idx, values, &a));
  Solver solver(a, "-ksp_type cg -pc_spaid_engine fsai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  const Dense m = MOf(solver, a);  // the lower triangle is whole: the inverse itself
  EXPECT_NEAR(m[0][0], 4 / 15.0, 1e-15);
  EXPECT_NEAR(m[1][0], 1 / 15.0, 1e-15);
  OK(MatDestroy(&a));
}

TEST_F(PcTest, TellsInAViewWhatItHas) {
  Mat a = Assemble(400, Grid(20));
  Solver solver(a, "-ksp_type bcgs -pc_spaid_engine static-spai -pc_spaid_pattern_power 2");
  OK(KSPSetFromOptions(solver.ksp()));
  EXPECT_THAT(solver.View(), HasSubstr("no M here"));
  OK(KSPSetUp(solver.ksp()));
  const std::string view = solver.View();
  for (const std::string& part :
       {"daemon: " + address, std::string("engine: static-spai"), std::string("matrices/"),
        std::string("preconditioners/"), std::string("density"), std::string("||A M - I||_F"),
        std::string("ms build"), std::string("bytes up")}) {
    EXPECT_THAT(view, HasSubstr(part));
  }
  OK(MatDestroy(&a));
}

TEST_F(PcTest, TellsWhatAutoChose) {
  Mat a = Assemble(400, Grid(20));
  Solver solver(a, "-ksp_type cg");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  const std::string view = solver.View();
  EXPECT_THAT(view, ::testing::ContainsRegex("engine: [a-z]+(-spai)?, .+"));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, RefusesWhatHasNoEntries) {
  Mat shell = nullptr;
  OK(MatCreateShell(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, 8, 8, nullptr, &shell));
  Solver solver(shell, "-ksp_type cg");
  OK(KSPSetFromOptions(solver.ksp()));
  const Failure failure = FailureOf([&] { return KSPSetUp(solver.ksp()); });
  EXPECT_EQ(failure.code, PETSC_ERR_SUP);
  EXPECT_THAT(failure.words, HasSubstr("one of type shell has none; pass an assembled matrix"));
  OK(MatDestroy(&shell));
}

TEST_F(PcTest, RefusesARectangle) {
  Mat a = nullptr;
  OK(MatCreateAIJ(PETSC_COMM_WORLD, PETSC_DECIDE, PETSC_DECIDE, 8, 9, 1, nullptr, 1, nullptr, &a));
  OK(MatAssemblyBegin(a, MAT_FINAL_ASSEMBLY));
  OK(MatAssemblyEnd(a, MAT_FINAL_ASSEMBLY));
  Solver solver(a, "-ksp_type lsqr");
  OK(KSPSetFromOptions(solver.ksp()));
  const Failure failure = FailureOf([&] { return PCSetUp(solver.pc()); });
  EXPECT_EQ(failure.code, PETSC_ERR_ARG_SIZ);
  EXPECT_THAT(failure.words, HasSubstr("8 rows and 9 columns"));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, RefusesCgWithAnUnsymmetricM) {
  Mat a = Assemble(49, Grid(7));
  Vec b = Filled(a, [](PetscInt) { return 1; });
  Vec x = Filled(a, [](PetscInt) { return 0; });
  for (const std::string type : {"cg", "minres", "pipecg"}) {
    Solver solver(a, "-pc_spaid_engine static-spai -ksp_type " + type);
    OK(KSPSetFromOptions(solver.ksp()));
    const Failure failure = FailureOf([&] { return solver.Solve(b, x); });
    EXPECT_EQ(failure.code, PETSC_ERR_SUP);
    EXPECT_THAT(failure.words, HasSubstr("-ksp_type " + type +
                                         " needs a symmetric M, and that of "
                                         "static SPAI is not"));
  }
  OK(VecDestroy(&x));
  OK(VecDestroy(&b));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, RefusesACycleThatTheDaemonAloneRuns) {
  Mat a = Assemble(49, Grid(7));
  Vec b = Filled(a, [](PetscInt) { return 1; });
  Vec x = Filled(a, [](PetscInt) { return 0; });
  Solver solver(a, "-pc_spaid_engine amg -ksp_type cg");
  OK(KSPSetFromOptions(solver.ksp()));
  const Failure failure = FailureOf([&] { return solver.Solve(b, x); });
  EXPECT_EQ(failure.code, PETSC_ERR_SUP);
  EXPECT_THAT(failure.words, HasSubstr("add -ksp_type spaid"));
  OK(VecDestroy(&x));
  OK(VecDestroy(&b));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, MakesARefusalOfTheDaemonAReasonOfTheKsp) {
  Mat a = Assemble(49, Grid(7, 1, 0.5));  // not symmetric
  Vec b = Filled(a, [](PetscInt) { return 1; });
  Vec x = Filled(a, [](PetscInt) { return 0; });
  const std::string options = "-ksp_type gmres -pc_spaid_engine fsai";
  Solver solver(a, options);
  OK(KSPSetFromOptions(solver.ksp()));
  OK(solver.Solve(b, x));
  EXPECT_EQ(solver.reason(), KSP_DIVERGED_PC_FAILED);
  PetscInt local = 0;
  Mat many = nullptr, out = nullptr;
  OK(MatGetLocalSize(a, &local, nullptr));
  OK(MatCreateDense(PETSC_COMM_WORLD, local, PETSC_DECIDE, 49, 2, nullptr, &many));
  OK(MatDuplicate(many, MAT_DO_NOT_COPY_VALUES, &out));
  EXPECT_THAT(FailureOf([&] { return PCMatApply(solver.pc(), many, out); }).words,
              HasSubstr("there is no M to apply"));
  // The same PC with a matrix that it can serve.
  Refill(a, Grid(7));
  OK(solver.Solve(b, x));
  EXPECT_GT(solver.reason(), 0);
  // And in words, where the program wants them.
  Refill(a, Grid(7, 1, 0.5));
  OK(KSPSetErrorIfNotConverged(solver.ksp(), PETSC_TRUE));
  const Failure failure = FailureOf([&] { return solver.Solve(b, x); });
  EXPECT_EQ(failure.code, PETSC_ERR_LIB);
  EXPECT_THAT(failure.words, HasSubstr("is not symmetric"));
  EXPECT_THAT(failure.words, HasSubstr("(NOT_SYMMETRIC)"));
  OK(MatDestroy(&many));
  OK(MatDestroy(&out));
  OK(VecDestroy(&x));
  OK(VecDestroy(&b));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, RefusesOptionsThatAreOutOfRange) {
  Mat a = Assemble(9, Grid(3));
  for (const auto& [options, words] : std::vector<std::pair<std::string, std::string>>{
           {"-pc_spaid_k_max 600", "-pc_spaid_k_max 600. is out of range; it goes from 0. to 512."},
           {"-pc_spaid_epsilon 1", "it goes from 0. to 1. (excluded)"},
           {"-pc_spaid_time_budget -1", "-pc_spaid_time_budget -1. is out of range"},
           {"-pc_spaid_timeout -2", "-pc_spaid_timeout -2. is out of range"},
           {"-pc_spaid_pattern a.mtx", "a.mtx is no handle of the daemon"},
           {"-pc_spaid_near_null_space b.mtx", "MatSetNearNullSpace"},
           {"-pc_spaid_coordinates x.mtx", "PCSetCoordinates"},
           {"-pc_spaid_token_file /none", "no token can be read from /none"},
           {"-pc_spaid_engine ilu", "Unknown option ilu for -t_pc_spaid_engine"}}) {
    Solver solver(a, options);
    const Failure failure = FailureOf([&] { return KSPSetFromOptions(solver.ksp()); });
    EXPECT_NE(failure.code, 0) << options;
    EXPECT_THAT(failure.words, HasSubstr(words));
  }
  OK(MatDestroy(&a));
}

TEST_F(PcTest, RefusesToGatherWhereItMayNot) {
  if (Size() == 1) GTEST_SKIP() << "one rank has all of it";
  Mat a = Assemble(49, Grid(7));
  for (const auto& [options, words] : std::vector<std::pair<std::string, std::string>>{
           {"-pc_spaid_parallel error", "-pc_spaid_parallel is error"},
           {"-pc_spaid_gather_limit 100",
            "rank 0 takes 100 at the most; raise "
            "-pc_spaid_gather_limit, or let each rank"}}) {
    Solver solver(a, options);
    OK(KSPSetFromOptions(solver.ksp()));
    const Failure failure = FailureOf([&] { return KSPSetUp(solver.ksp()); });
    EXPECT_EQ(failure.code, PETSC_ERR_SUP);
    EXPECT_THAT(failure.words, HasSubstr(words));
  }
  OK(MatDestroy(&a));
}

TEST_F(PcTest, TellsAllRanksOfADaemonThatIsNotThere) {
  Mat a = Assemble(49, Grid(7));
  for (const auto& [options, words] : std::vector<std::pair<std::string, std::string>>{
           {"-pc_spaid_address 127.0.0.1:1", "no spaid daemon can be reached at 127.0.0.1:1"},
           {"-pc_spaid_tls_ca /none", "/none"}}) {
    Solver solver(a, options);
    OK(KSPSetFromOptions(solver.ksp()));
    const Failure failure = FailureOf([&] { return KSPSetUp(solver.ksp()); });
    EXPECT_EQ(failure.code, PETSC_ERR_LIB);
    EXPECT_THAT(failure.words, HasSubstr(words));
  }
  OK(MatDestroy(&a));
}

TEST_F(PcTest, GoesWhereItsOptionsSay) {
  Mat a = Assemble(49, Grid(7));
  Vec b = Filled(a, [](PetscInt) { return 1; });
  Vec x = Filled(a, [](PetscInt) { return 0; });
  Solver solver(a, "-ksp_type cg -pc_spaid_engine fsai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSolve(solver.ksp(), b, x));
  EXPECT_GT(solver.reason(), 0);
  OK(PetscOptionsSetValue(nullptr, "-t_pc_spaid_address", "127.0.0.1:1"));
  OK(KSPSetFromOptions(solver.ksp()));
  const Failure failure = FailureOf([&] { return KSPSolve(solver.ksp(), b, x); });
  EXPECT_THAT(failure.words, HasSubstr("no spaid daemon can be reached at 127.0.0.1:1"));
  OK(VecDestroy(&x));
  OK(VecDestroy(&b));
  OK(MatDestroy(&a));
}

TEST_F(PcTest, EndsACallThatTakesTooLong) {
  Mat a = Assemble(10000, Grid(100));
  Solver solver(a,
                "-pc_spaid_engine afsai -pc_spaid_k_max 500 -pc_spaid_epsilon 0 "
                "-pc_spaid_timeout 0.05");
  OK(KSPSetFromOptions(solver.ksp()));
  const Failure failure = FailureOf([&] { return KSPSetUp(solver.ksp()); });
  EXPECT_EQ(failure.code, PETSC_ERR_LIB);
  EXPECT_THAT(failure.words, HasSubstr("(DEADLINE_INFEASIBLE)"));
  OK(MatDestroy(&a));
}

}  // namespace
}  // namespace spaid::petsc_test
