// Runs the tests on every rank of MPI, with one daemon; rank 0 reports, and others what fails
// there.
#include "tests/client/petsc/support.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  char append[] = "-dll_append", library[] = SPAID_PETSC_LIBRARY, quiet[] = "-options_left",
       no[] = "0";
  char* arguments[] = {argv[0], append, library, quiet, no, nullptr};
  int count = 5;
  char** given = arguments;
  if (PetscInitialize(&count, &given, nullptr, nullptr)) return 1;
  using spaid::petsc_test::WithDaemon;
  if (spaid::petsc_test::Rank() != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    class Failures : public ::testing::EmptyTestEventListener {
      void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (!result.failed()) return;
        std::fprintf(stderr, "rank %d: %s:%d: %s\n", spaid::petsc_test::Rank(), result.file_name(),
                     result.line_number(), result.message());
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Failures);
  }
  WithDaemon::StartDaemon({"--devices=cpu"});
  int failed = RUN_ALL_TESTS();
  WithDaemon::EndDaemon();
  PetscOptionsClear(nullptr);
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  return PetscFinalize() ? 1 : failed;
}
