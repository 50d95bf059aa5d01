// Small matrices by rows, and solves with them in one kernel for many iterations: on the chip, or
// with an explicit M in a grid that stays.
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/here_device.h"

namespace spaid::kernels::krylov_test {

CudaBackend& BackendHere() { return *ListCudaDevices().backend; }

int64_t LateHere() { return 40; }  // two launches

int64_t AtOnceHere() { return 1; }

}  // namespace spaid::kernels::krylov_test
