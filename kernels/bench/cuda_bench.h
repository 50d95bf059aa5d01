// What the benchmarks on a CUDA device share.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/cuda_device.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

// Ends the program with `message` unless `result` is kSpaidCudaOk.
void OrDie(int32_t result, const char* message);

// The first device, opened by the first call with all of its memory. There must be one.
const std::shared_ptr<CudaDevice>& Device();

// A there, on the device of `context`; the caller's to free. Ends the program where that fails.
SpaidCudaMatrix* Upload(SpaidCudaContext* context, const CscView& a);

}  // namespace spaid::kernels::bench
