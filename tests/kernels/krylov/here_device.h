// The device of a program whose solves run on one.
#pragma once

#include <memory>

#include "kernels/base/cuda_device.h"

namespace spaid::kernels::krylov_test {

const std::shared_ptr<CudaDevice>& Device();
// The interface that opens it: here_persistent.cc, here_launches.cc.
const SpaidCudaInterface& InterfaceHere();

}  // namespace spaid::kernels::krylov_test
