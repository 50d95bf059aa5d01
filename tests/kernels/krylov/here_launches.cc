// Small matrices as large ones are: by diagonals and nodes, and a launch for each phase.
#include "kernels/krylov/cuda_solve.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/here_device.h"
#include "tests/kernels/krylov/rows_bytes.h"

namespace spaid::kernels::krylov_test {

CudaBackend& BackendHere() { return WithRowsBytes<0>(); }

int64_t LateHere() { return 20; }  // two graphs

int64_t AtOnceHere() { return kMostCudaColumns; }

}  // namespace spaid::kernels::krylov_test
