// What the benchmarks on a CUDA device share.
#pragma once

#include <memory>
#include <string>

#include "kernels/base/cuda_device.h"
#include "kernels/sparse/cuda_matrix.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

// Ends the program unless `status` is OK, or `failed` empty, with its text.
void OrDie(const Status& status);
void OrDie(const std::string& failed);

// The first device, opened by the first call with all of its memory. There must be one.
const std::shared_ptr<CudaDevice>& Device();

// A there, on the device of `context`. Ends the program where that fails.
std::unique_ptr<CudaMatrix> Upload(CudaContext& context, const CscView& a);

}  // namespace spaid::kernels::bench
