// Runs the tests on every rank of MPI, each rank the same ones in the same order; rank 0 reports,
// and others what fails there.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/kernels/mpi/support.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (PetscInitialize(nullptr, nullptr, nullptr, nullptr)) return 1;
  if (spaid::kernels::mpi::RankOf(PETSC_COMM_WORLD) != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    class Failures : public ::testing::EmptyTestEventListener {
      void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::fprintf(stderr, "rank %d: %s:%d: %s\n", spaid::kernels::mpi::RankOf(PETSC_COMM_WORLD),
                     result.file_name(), result.line_number(), result.message());
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  return PetscFinalize() ? 1 : failed;
}
