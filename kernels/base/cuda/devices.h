// The devices of this machine.
#pragma once

#include "kernels/base/cuda_loader.h"

namespace spaid::cuda {

kernels::CudaListing ListDevices();

}  // namespace spaid::cuda
