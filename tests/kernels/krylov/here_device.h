// The device of a program whose solves run on one.
#pragma once

#include <memory>

#include "kernels/base/cuda_device.h"

namespace spaid::kernels::krylov_test {

const std::shared_ptr<CudaDevice>& Device();
// That opens it: here_stays.cc, here_launches.cc.
CudaBackend& BackendHere();

}  // namespace spaid::kernels::krylov_test
