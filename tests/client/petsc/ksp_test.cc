// -ksp_type spaid: solutions, histories and reasons of whole solves, and what is refused.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tests/client/petsc/support.h"

namespace spaid::petsc_test {
namespace {

using ::testing::HasSubstr;

// A problem with a solution.
class KspTest : public WithDaemon {
 protected:
  void Make(PetscInt n, const std::function<Row(PetscInt)>& row) {
    a_ = Assemble(n, row);
    b_ = Filled(a_, [](PetscInt i) { return 1 + std::cos(static_cast<double>(i)); });
    x_ = Filled(a_, [](PetscInt) { return 0; });
  }
  void TearDown() override {
    OK(VecDestroy(&x_));
    OK(VecDestroy(&b_));
    OK(MatDestroy(&a_));
  }
  Mat a_ = nullptr;
  Vec b_ = nullptr, x_ = nullptr;
};

struct Seen {
  std::vector<PetscInt> iterations;
  std::vector<PetscReal> norms;
  std::function<PetscErrorCode()> then;
};

PetscErrorCode See(KSP, PetscInt iteration, PetscReal norm, void* context) {
  auto* seen = static_cast<Seen*>(context);
  seen->iterations.push_back(iteration);
  seen->norms.push_back(norm);
  return seen->then ? seen->then() : static_cast<PetscErrorCode>(0);
}

TEST_F(KspTest, SolvesAndTellsEveryResidual) {
  Make(400, Grid(20));
  Solver solver(a_, "-ksp_type spaid -ksp_rtol 1e-9 -pc_spaid_engine fsai");
  OK(KSPSetFromOptions(solver.ksp()));
  Seen seen;
  OK(KSPMonitorSet(solver.ksp(), See, &seen, nullptr));
  OK(KSPSetResidualHistory(solver.ksp(), nullptr, 1000, PETSC_TRUE));
  OK(solver.Solve(b_, x_));
  EXPECT_EQ(solver.reason(), KSP_CONVERGED_RTOL);
  EXPECT_LE(RelativeResidual(a_, x_, b_), 1e-9);
  PetscReal norm = 0, end = 0;
  OK(VecNorm(b_, NORM_2, &norm));
  OK(KSPGetResidualNorm(solver.ksp(), &end));
  EXPECT_NEAR(end / norm, RelativeResidual(a_, x_, b_), 1e-12);
  ASSERT_FALSE(seen.norms.empty());
  EXPECT_EQ(seen.iterations.back(), solver.iterations());
  EXPECT_TRUE(std::is_sorted(seen.iterations.begin(), seen.iterations.end()));
  EXPECT_LE(seen.norms.back(), 1.01e-9 * norm);
  const PetscReal* history = nullptr;
  PetscInt count = 0;
  OK(KSPGetResidualHistory(solver.ksp(), &history, &count));
  ASSERT_EQ(static_cast<size_t>(count), seen.norms.size());
  EXPECT_TRUE(std::equal(seen.norms.begin(), seen.norms.end(), history));
  EXPECT_THAT(solver.View(), HasSubstr("solved by cg with fsai"));
}

TEST_F(KspTest, BuildsAndDownloadsNoM) {
  Make(400, Grid(20));
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine afsai");
  OK(KSPSetFromOptions(solver.ksp()));
  const double builds = Metric("spaid_rpcs_started_total", "BuildPreconditioner");
  const double solves = Metric("spaid_rpcs_started_total", "SolverService/Solve");
  const double sent = Metric("spaid_array_bytes_sent_total");
  OK(solver.Solve(b_, x_));
  EXPECT_EQ(Metric("spaid_rpcs_started_total", "BuildPreconditioner"), builds);
  EXPECT_EQ(Metric("spaid_rpcs_started_total", "SolverService/Solve"), solves + 1);
  EXPECT_LT(Metric("spaid_array_bytes_sent_total"), sent + 2 * 8 * 400);  // x, and no M
}

TEST_F(KspTest, BeginsWithAGuess) {
  Make(400, Grid(20));
  Solver solver(a_, "-ksp_type spaid -ksp_rtol 1e-8 -pc_spaid_engine fsai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(solver.Solve(b_, x_));
  const PetscInt from_nothing = solver.iterations();
  OK(KSPSetInitialGuessNonzero(solver.ksp(), PETSC_TRUE));
  OK(VecScale(x_, 1 + 1e-6));
  OK(solver.Solve(b_, x_));
  EXPECT_GT(solver.reason(), 0);
  EXPECT_LT(solver.iterations(), from_nothing);
  EXPECT_LE(RelativeResidual(a_, x_, b_), 1e-8);
}

TEST_F(KspTest, SolvesForManyRightHandSidesInOneCall) {
  Make(400, Grid(20, 1, 0.4));
  Solver solver(a_, "-ksp_type spaid -ksp_rtol 1e-9 -pc_spaid_engine static-spai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(KSPSetUp(solver.ksp()));
  PetscInt local = 0;
  Mat b = nullptr, x = nullptr;
  OK(MatGetLocalSize(a_, &local, nullptr));
  OK(MatCreateDense(PETSC_COMM_WORLD, local, PETSC_DECIDE, 400, 4, nullptr, &b));
  OK(MatSetRandom(b, nullptr));
  OK(MatDuplicate(b, MAT_DO_NOT_COPY_VALUES, &x));
  const double solves = Metric("spaid_rpcs_started_total", "SolverService/Solve");
  OK(KSPMatSolve(solver.ksp(), b, x));
  EXPECT_EQ(Metric("spaid_rpcs_started_total", "SolverService/Solve"), solves + 1);
  EXPECT_GT(solver.reason(), 0);
  for (PetscInt j = 0; j < 4; ++j) {
    Vec bj = nullptr, xj = nullptr;
    OK(MatDenseGetColumnVecRead(b, j, &bj));
    OK(MatDenseGetColumnVecRead(x, j, &xj));
    EXPECT_LE(RelativeResidual(a_, xj, bj), 1e-9) << j;
    OK(MatDenseRestoreColumnVecRead(b, j, &bj));
    OK(MatDenseRestoreColumnVecRead(x, j, &xj));
  }
  OK(MatDestroy(&b));
  OK(MatDestroy(&x));
}

TEST_F(KspTest, KeepsOrRebuildsM) {
  Make(900, Grid(30));
  for (const auto& [options, decision] : std::vector<std::pair<std::string, std::string>>{
           {"", "M rebuilt"}, {"-pc_spaid_reuse_factor 2", "M kept"}}) {
    Solver solver(a_, "-ksp_type spaid -pc_spaid_engine fsai " + options);
    OK(KSPSetFromOptions(solver.ksp()));
    for (int step = 0; step < 3; ++step) {
      Refill(a_, Grid(30, 1 + 0.01 * step + 0.5 * (options.empty() ? 0 : 1)));
      const double before = Metric("spaid_array_bytes_received_total");
      OK(solver.Solve(b_, x_));
      EXPECT_GT(solver.reason(), 0);
      if (step == 0) continue;
      EXPECT_THAT(solver.View(), HasSubstr(decision));
      const double entries = 5 * 900 - 4 * 30;
      EXPECT_EQ(Metric("spaid_array_bytes_received_total") - before, 8 * (entries + 900));
    }
    if (!options.empty()) continue;
    // Reuse in PETSc's sense: M stays whatever it takes.
    OK(KSPSetReusePreconditioner(solver.ksp(), PETSC_TRUE));
    Refill(a_, Grid(30, 3));
    OK(solver.Solve(b_, x_));
    EXPECT_LE(RelativeResidual(a_, x_, b_), 1e-5);
    EXPECT_THAT(solver.View(), HasSubstr("M kept"));
  }
}

TEST_F(KspTest, LeavesMToTheNextKspOfPetscs) {
  Make(400, Grid(20));
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine fsai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(solver.Solve(b_, x_));
  const PetscInt whole = solver.iterations();
  OK(KSPSetType(solver.ksp(), KSPCG));
  OK(KSPSetNormType(solver.ksp(), KSP_NORM_UNPRECONDITIONED));
  OK(solver.Solve(b_, x_));
  EXPECT_GT(solver.reason(), 0);
  EXPECT_NEAR(static_cast<double>(solver.iterations()), static_cast<double>(whole), 2);
}

TEST_F(KspTest, GivesEveryOutcomeItsReason) {
  struct Case {
    std::string options;
    std::function<Row(PetscInt)> row;
    KSPConvergedReason reason;
  };
  const auto indefinite = [](PetscInt i) { return Row{{i, i % 2 == 0 ? 1.0 : -1.0}}; };
  const auto huge = [](PetscInt i) { return Row{{i, 1 + static_cast<double>(i)}}; };
  for (const Case& one : std::vector<Case>{
           {"-pc_spaid_engine jacobi -ksp_max_it 2", Grid(20), KSP_DIVERGED_ITS},
           {"-pc_spaid_engine jacobi -ksp_rtol 1e-14 -ksp_atol 1", Grid(20), KSP_CONVERGED_ATOL},
           {"-pc_spaid_engine none -ksp_spaid_method cg", indefinite, KSP_DIVERGED_INDEFINITE_MAT},
           {"-pc_spaid_engine jacobi -ksp_rtol 0 -ksp_atol 1e-3", Grid(20), KSP_CONVERGED_ATOL},
           {"-pc_spaid_engine none -ksp_spaid_method gmres -ksp_rtol 1e-17 -ksp_spaid_restart 5",
            huge, KSP_DIVERGED_BREAKDOWN}}) {
    Make(400, one.row);
    Solver solver(a_, "-ksp_type spaid " + one.options);
    OK(KSPSetFromOptions(solver.ksp()));
    OK(solver.Solve(b_, x_));
    EXPECT_EQ(solver.reason(), one.reason) << one.options << solver.View();
    TearDown();
  }
}

TEST_F(KspTest, TakesTheNullSpaceOfTheMatrix) {
  const auto neumann = [](PetscInt i) {  // two chains that do not touch
    const PetscInt at = i % 50;
    Row row;
    if (at > 0) row.emplace_back(i - 1, -1.0);
    row.emplace_back(i, at == 0 || at == 49 ? 1.0 : 2.0);
    if (at < 49) row.emplace_back(i + 1, -1.0);
    return row;
  };
  Make(100, neumann);
  OK(VecDestroy(&b_));
  b_ = Filled(a_, [](PetscInt i) { return i % 50 < 25 ? 1 : -1; });
  Vec chains[2];
  for (int k = 0; k < 2; ++k) {
    chains[k] = Filled(a_, [k](PetscInt i) { return i / 50 == k ? 1 / std::sqrt(50.0) : 0; });
  }
  MatNullSpace space = nullptr;
  OK(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_FALSE, 2, chains, &space));
  OK(MatSetNullSpace(a_, space));
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine jacobi -ksp_rtol 1e-9");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(solver.Solve(b_, x_));
  EXPECT_GT(solver.reason(), 0) << solver.View();
  EXPECT_LE(RelativeResidual(a_, x_, b_), 1e-8);
  for (Vec& chain : chains) {  // the solution is the one without any of them
    PetscScalar product = 1;
    OK(VecDot(chain, x_, &product));
    EXPECT_NEAR(product, 0, 1e-8);
    OK(VecDestroy(&chain));
  }
  OK(MatNullSpaceDestroy(&space));
}

TEST_F(KspTest, SolvesByMultigridWithTheNearNullSpaceOfTheMatrix) {
  Make(2500, Grid(50));
  const auto solve = [&] {
    Solver solver(a_, "-ksp_type spaid -pc_spaid_engine amg -ksp_spaid_method cg -ksp_rtol 1e-9");
    OK(KSPSetFromOptions(solver.ksp()));
    OK(solver.Solve(b_, x_));
    EXPECT_GT(solver.reason(), 0) << solver.View();
    EXPECT_LE(RelativeResidual(a_, x_, b_), 1e-8);
    EXPECT_LT(solver.iterations(), 30);
  };
  solve();
  Vec ones = Filled(a_, [](PetscInt) { return 1 / 50.0; });
  MatNullSpace space = nullptr;
  OK(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_FALSE, 1, &ones, &space));
  OK(MatSetNearNullSpace(a_, space));
  OK(MatNullSpaceDestroy(&space));
  solve();
  // Constants twice: that the daemon finds it shows that it has both.
  OK(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_TRUE, 1, &ones, &space));
  OK(MatSetNearNullSpace(a_, space));
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine amg");
  OK(KSPSetFromOptions(solver.ksp()));
  EXPECT_THAT(FailureOf([&] { return solver.Solve(b_, x_); }).words, HasSubstr("RANK_DEFICIENT"));
  OK(MatNullSpaceDestroy(&space));
  OK(VecDestroy(&ones));
}

TEST_F(KspTest, TakesCoordinatesForMultigrid) {
  Make(2592, Grid(54, 1, 0, 48));  // as two unknowns of 1296 nodes
  PetscInt begin = 0, end = 0;
  OK(MatGetOwnershipRange(a_, &begin, &end));
  std::vector<PetscReal> places;
  for (PetscInt node = begin / 2; node < end / 2; ++node) {
    places.push_back(static_cast<PetscReal>(node % 27));
    places.push_back(static_cast<PetscReal>(node / 27));
  }
  const auto nodes = static_cast<PetscInt>(places.size() / 2);
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine amg -pc_spaid_node_size 2 -ksp_rtol 1e-9");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(PCSetCoordinates(solver.pc(), 2, nodes, places.data()));
  OK(solver.Solve(b_, x_));
  EXPECT_GT(solver.reason(), 0) << solver.View();
  EXPECT_LE(RelativeResidual(a_, x_, b_), 1e-8);
  // Others, of the same matrix.
  OK(PCSetCoordinates(solver.pc(), 1, 2 * nodes, places.data()));
  EXPECT_THAT(FailureOf([&] { return solver.Solve(b_, x_); }).words, HasSubstr("BAD_COORDINATES"));
}

TEST_F(KspTest, TakesConstantsAsTheNullSpace) {
  const auto neumann = [](PetscInt i) {
    Row row;
    if (i > 0) row.emplace_back(i - 1, -1.0);
    row.emplace_back(i, i == 0 || i == 99 ? 1.0 : 2.0);
    if (i < 99) row.emplace_back(i + 1, -1.0);
    return row;
  };
  Make(100, neumann);
  OK(VecDestroy(&b_));
  b_ = Filled(a_, [](PetscInt i) { return i < 50 ? 1 : -1; });
  MatNullSpace space = nullptr;
  OK(MatNullSpaceCreate(PETSC_COMM_WORLD, PETSC_TRUE, 0, nullptr, &space));
  OK(MatSetNullSpace(a_, space));
  OK(MatNullSpaceDestroy(&space));
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine jacobi -ksp_rtol 1e-9");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(solver.Solve(b_, x_));
  EXPECT_GT(solver.reason(), 0) << solver.View();
  PetscScalar sum = 1;
  OK(VecSum(x_, &sum));
  EXPECT_NEAR(sum, 0, 1e-7);
}

TEST_F(KspTest, MakesARefusalOfTheDaemonAReason) {
  Make(49, Grid(7, 1, 0.5));
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine fsai");
  OK(KSPSetFromOptions(solver.ksp()));
  OK(solver.Solve(b_, x_));
  EXPECT_EQ(solver.reason(), KSP_DIVERGED_PC_FAILED);
  Refill(a_, Grid(7));
  OK(solver.Solve(b_, x_));
  EXPECT_EQ(solver.reason(), KSP_CONVERGED_RTOL);
  // With an M from before the daemon solves by that, and says so.
  Refill(a_, Grid(7, 1, 0.5));
  OK(solver.Solve(b_, x_));
  EXPECT_EQ(solver.reason(), KSP_CONVERGED_RTOL);
  EXPECT_THAT(solver.View(), HasSubstr("M kept: M could not be built of this matrix"));

  Solver strict(a_, "-ksp_type spaid -pc_spaid_engine fsai -ksp_error_if_not_converged");
  OK(KSPSetFromOptions(strict.ksp()));
  const Failure failure = FailureOf([&] { return strict.Solve(b_, x_); });
  EXPECT_EQ(failure.code, PETSC_ERR_NOT_CONVERGED);
  EXPECT_THAT(failure.words, HasSubstr("is not symmetric"));
}

PetscErrorCode NeverConverged(KSP, PetscInt, PetscReal, KSPConvergedReason*, void*) {
  return static_cast<PetscErrorCode>(0);
}

TEST_F(KspTest, RefusesWhatItCannotDo) {
  Make(49, Grid(7));
  {
    Solver solver(a_, "-ksp_type spaid -pc_type jacobi");
    OK(KSPSetFromOptions(solver.ksp()));
    EXPECT_THAT(FailureOf([&] { return KSPSetUp(solver.ksp()); }).words,
                HasSubstr("this one is jacobi; add -pc_type spaid"));
  }
  {
    Mat other = nullptr;
    OK(MatDuplicate(a_, MAT_COPY_VALUES, &other));
    Solver solver(a_, "-ksp_type spaid", other);
    OK(KSPSetFromOptions(solver.ksp()));
    EXPECT_THAT(FailureOf([&] { return solver.Solve(b_, x_); }).words,
                HasSubstr("Pmat is another one"));
    OK(MatDestroy(&other));
  }
  Solver solver(a_, "-ksp_type spaid");
  OK(KSPSetFromOptions(solver.ksp()));
  EXPECT_THAT(FailureOf([&] { return KSPSolveTranspose(solver.ksp(), b_, x_); }).words,
              HasSubstr("solves A x = b alone"));
  OK(KSPSetConvergenceTest(solver.ksp(), NeverConverged, nullptr, nullptr));
  EXPECT_THAT(FailureOf([&] { return solver.Solve(b_, x_); }).words,
              HasSubstr("a test of convergence of its own"));
}

TEST_F(KspTest, RefusesRightHandSidesThatAreNoNumbers) {
  Make(49, Grid(7));
  OK(VecSet(b_, NAN));
  Solver solver(a_, "-ksp_type spaid -pc_spaid_engine jacobi");
  OK(KSPSetFromOptions(solver.ksp()));
  const Failure failure = FailureOf([&] { return solver.Solve(b_, x_); });
  if (failure.code == 0) {
    EXPECT_EQ(solver.reason(), KSP_DIVERGED_NANORINF);
  } else {
    EXPECT_THAT(failure.words, HasSubstr("finite"));
  }
}

TEST_F(KspTest, EndsWhereAMonitorFails) {
  Make(10000, Grid(100));
  Solver solver(a_, "-ksp_type spaid -ksp_rtol 1e-12 -pc_spaid_engine jacobi");
  OK(KSPSetFromOptions(solver.ksp()));
  Seen seen;
  seen.then = [] { return static_cast<PetscErrorCode>(PETSC_ERR_USER); };
  OK(KSPMonitorSet(solver.ksp(), See, &seen, nullptr));
  PetscPushErrorHandler(PetscIgnoreErrorHandler, nullptr);
  const auto code = static_cast<int>(solver.Solve(b_, x_));
  PetscPopErrorHandler();
  EXPECT_EQ(code, PETSC_ERR_USER);
  EXPECT_EQ(seen.norms.size(), 1U);
}

TEST_F(KspTest, TellsOfASolveThatAnOperatorCancels) {
  Make(90000, Grid(300));
  Solver solver(a_, "-ksp_type spaid -ksp_rtol 1e-13 -pc_spaid_engine jacobi");
  OK(KSPSetFromOptions(solver.ksp()));
  Seen seen;
  bool cancelled = false;
  seen.then = [&] {
    if (Rank() == 0 && !std::exchange(cancelled, true)) {
      const std::string ctl = SPAIDCTL " --address=" + address;
      const e2e::Ran ran = e2e::RunProgram(
          {"/bin/sh", "-c",
           ctl + " cancel $(" + ctl +
               " jobs --state=running | grep -o 'jobs/[0-9a-f]*-[0-9a-z]*' | head -1)"});
      EXPECT_EQ(ran.status, 0) << ran.output;
    }
    return static_cast<PetscErrorCode>(0);
  };
  OK(KSPMonitorSet(solver.ksp(), See, &seen, nullptr));
  const Failure failure = FailureOf([&] { return solver.Solve(b_, x_); });
  EXPECT_EQ(failure.code, PETSC_ERR_LIB);
  EXPECT_THAT(failure.words, HasSubstr("cancel"));
}

TEST_F(KspTest, TellsOfASolveThatRunsTooLong) {
  Make(90000, Grid(300));
  Solver solver(a_,
                "-ksp_type spaid -ksp_rtol 1e-13 -pc_spaid_engine jacobi -pc_spaid_max_run 0.02");
  OK(KSPSetFromOptions(solver.ksp()));
  const Failure failure = FailureOf([&] { return solver.Solve(b_, x_); });
  EXPECT_EQ(failure.code, PETSC_ERR_LIB);
  EXPECT_THAT(failure.words, HasSubstr("max-run"));
}

// The daemon's flags differ.
TEST_F(KspTest, SharesArraysWithADaemonOnTheSameHost) {
  const e2e::TempDir folder;
  EndDaemon();
  StartDaemon({"--devices=cpu", "--local-socket=" + (folder / "socket").string()});
  Make(10000, Grid(100, 1, 0.2));
  for (const std::string type : {"spaid", "gmres"}) {
    Refill(a_, Grid(100, 2, type == "spaid" ? 0.2 : 0.3));
    Solver solver(a_, "-pc_spaid_engine static-spai -pc_spaid_local_socket " +
                          (folder / "socket").string() + " -ksp_type " + type);
    // Ranks have folders of their own; rank 0 alone uses it.
    OK(KSPSetFromOptions(solver.ksp()));
    for (int step = 1; step <= 2; ++step) {
      OK(MatScale(a_, 2));
      const double before = Metric("spaid_local_array_bytes_total", "read");
      OK(solver.Solve(b_, x_));
      EXPECT_GT(solver.reason(), 0);
      EXPECT_LE(RelativeResidual(a_, x_, b_), 1e-3);
      EXPECT_GE(Metric("spaid_local_array_bytes_total", "read") - before, 8 * (5 * 10000 - 400));
    }
  }
  EndDaemon();
  StartDaemon({"--devices=cpu"});
}

TEST_F(KspTest, EndsOnAllRanksWhenTheDaemonIsKilled) {
  Make(40000, Grid(200));
  for (const std::string options :
       {"-ksp_type spaid -ksp_rtol 1e-13 -pc_spaid_engine jacobi", "-ksp_type cg"}) {
    Solver solver(a_, options);
    OK(KSPSetFromOptions(solver.ksp()));
    Seen seen;
    const bool whole = options.find("-ksp_type spaid") == 0;
    if (whole) {
      seen.then = [&] {
        if (Rank() == 0) daemon->Signal(SIGKILL);
        return static_cast<PetscErrorCode>(0);
      };
      OK(KSPMonitorSet(solver.ksp(), See, &seen, nullptr));
    }
    const Failure failure = FailureOf([&] { return solver.Solve(b_, x_); });
    EXPECT_EQ(failure.code, PETSC_ERR_LIB);
    EXPECT_THAT(failure.words, HasSubstr("spaid daemon"));
    EXPECT_THAT(failure.words, HasSubstr(address));
  }
  EndDaemon();
  StartDaemon({"--devices=cpu"});
}

}  // namespace
}  // namespace spaid::petsc_test
