// Small matrices by rows, and solves with them in one kernel that stays.
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/here_device.h"

namespace spaid::kernels::krylov_test {

const SpaidCudaInterface& InterfaceHere() { return *ListCudaDevices().interface; }

int64_t LateHere() { return 40; }  // two launches

}  // namespace spaid::kernels::krylov_test
