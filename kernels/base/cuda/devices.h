// The devices of this machine.
#pragma once

#include "kernels/base/cuda_backend.h"

namespace spaid::cuda {

kernels::CudaListing ListDevices();

}  // namespace spaid::cuda
