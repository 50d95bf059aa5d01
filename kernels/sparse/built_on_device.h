// The result of a build, left on its CUDA device.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/cuda_device.h"

namespace spaid::kernels {

// M, or G of M = GᵀG, on the device that built it, for work to come there. Immutable; thread-safe;
// made, and ended, by libspaid_cuda.so.
struct BuiltOnDevice {
  std::shared_ptr<CudaDevice> device;
  int64_t device_bytes = 0;  // held, with the plan's if it is kept for that
  bool factor = false;       // G
  // M by columns, or Gᵀ, that is G by rows; on the device.
  int64_t n = 0, nnz = 0;
  const int64_t* col_ptr = nullptr;
  const int32_t* row_idx = nullptr;
  const double* values = nullptr;
};

}  // namespace spaid::kernels
