// Data on a device between the growth of a pattern and the plan on it.
#pragma once

#include <memory>

#include "kernels/base/cuda_device.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/pattern.h"

namespace spaid::kernels {

struct SpaiOnDevice {
  std::shared_ptr<CudaDevice> device;
  std::shared_ptr<cuda::Matrix> matrix;          // A
  std::shared_ptr<cuda::DevicePattern> pattern;  // the user's pattern
};

}  // namespace spaid::kernels
