// The CUDA device of a program whose solves run on one; without one all its tests are skipped.
#pragma once

#include <memory>

#include "kernels/base/cuda_device.h"

namespace spaid::kernels::krylov_test {

// True where the environment has SPAID_TEST_LAUNCHES: small systems are solved as large ones are,
// by diagonals and nodes, with a launch for each step. False: small matrices are held by rows, and
// solved in one persistent kernel for many iterations, within shared memory or, with an explicit M,
// outside of it.
bool Launches();
// Opened accordingly, under a limit of memory.
std::shared_ptr<CudaDevice> OpenSo(int64_t memory_limit);
const std::shared_ptr<CudaDevice>& Device();

}  // namespace spaid::kernels::krylov_test
