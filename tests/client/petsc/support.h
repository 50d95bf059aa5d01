// A daemon, PETSc with libspaidpetsc.so, and small matrices, for tests that run on any number of
// ranks: every rank runs every test, and tests alike.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <petscksp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/daemon.h"

namespace spaid::petsc_test {

// Ends the test where PETSc fails.
#define OK(...) ASSERT_EQ(static_cast<int>(__VA_ARGS__), 0) << #__VA_ARGS__

int Rank();
int Size();

// The words of the first error that a call of PETSc's ends with, and its number.
struct Failure {
  int code = 0;
  std::string words;
};
Failure FailureOf(const std::function<PetscErrorCode()>& call);

using Row = std::vector<std::pair<PetscInt, PetscScalar>>;
// An AIJ matrix from its rows.
Mat Assemble(PetscInt n, const std::function<Row(PetscInt)>& row, PetscInt block = 1);
// Puts other values in its place, on the same pattern.
void Refill(Mat a, const std::function<Row(PetscInt)>& row);
// Rows of a 2-D Laplacian of side x side unknowns, or of another height, times `scale`, with
// convection to the right.
std::function<Row(PetscInt)> Grid(PetscInt side, double scale = 1, double convection = 0,
                                  PetscInt height = 0);
// An unsymmetric band whose rows are all different; its pattern is symmetric. Dominant.
std::function<Row(PetscInt)> Band(PetscInt n);

using Dense = std::vector<std::vector<double>>;  // by columns
// Columns of a linear map: what it does to unit vectors, the same on all ranks.
Dense ToDense(Mat like, const std::function<PetscErrorCode(Vec, Vec)>& apply);
std::vector<double> Whole(Vec v);
double RelativeResidual(Mat a, Vec x, Vec b);
Vec Filled(Mat a, const std::function<double(PetscInt)>& value);

// A KSP with options of its own ("-ksp_type cg -pc_spaid_engine fsai"), under the prefix "t_". The
// PC is spaid where the options do not say otherwise.
class Solver {
 public:
  Solver(Mat a, const std::string& options, Mat p = nullptr);
  ~Solver();
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;
  KSP ksp() const { return ksp_; }
  // As a program does whose matrix has changed.
  PetscErrorCode Solve(Vec b, Vec x);
  PC pc() const;
  KSPConvergedReason reason() const;
  PetscInt iterations() const;
  std::string View() const;  // -ksp_view

 private:
  KSP ksp_ = nullptr;
};

// Tests with a daemon that they share.
class WithDaemon : public ::testing::Test {
 public:
  static void StartDaemon(const std::vector<std::string>& flags = {});
  static void EndDaemon();
  // The sum of a counter over those of its labels that hold `label`.
  static double Metric(const std::string& name, const std::string& label = "");
  static std::unique_ptr<e2e::Daemon> daemon;  // rank 0
  static std::string address;
};

}  // namespace spaid::petsc_test
