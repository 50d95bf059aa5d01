// Small matrices by rows, and solves with them in one persistent kernel for many iterations: within
// shared memory, or with an explicit M outside of it.
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/here_device.h"

namespace spaid::kernels::krylov_test {

const SpaidCudaInterface& InterfaceHere() { return *ListCudaDevices().interface; }

int64_t LateHere() { return 40; }  // two launches

int64_t AtOnceHere() { return 1; }

}  // namespace spaid::kernels::krylov_test
