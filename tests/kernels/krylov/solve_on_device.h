// The device of a program whose solves run on one.
#pragma once

#include <memory>

#include "kernels/base/cuda_device.h"

namespace spaid::kernels::krylov_test {

// True where the environment has SPAID_TEST_LAUNCHES: small systems are solved as large ones are,
// by diagonals and nodes and with launches for each phase. Else by rows, in one kernel for many
// iterations: on the chip, or with an explicit M in a persistent grid.
bool Launches();
const SpaidCudaInterface& Interface();  // opens devices accordingly
const std::shared_ptr<CudaDevice>& Device();

}  // namespace spaid::kernels::krylov_test
