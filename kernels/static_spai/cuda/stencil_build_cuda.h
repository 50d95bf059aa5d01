// The numeric phase of the stencil path (stencil_cuda.h).
#pragma once

#include "kernels/static_spai/cuda/build_cuda.h"
#include "kernels/static_spai/cuda/stencil_cuda.h"

namespace spaid::cuda {

// As Build (build_cuda.h), of a plan with a stencil; fills `result`, whose flags are 0.
void BuildStencil(Context& context, const StaticSpaiPlan& plan, const Matrix& a,
                  const SpaidCudaBuildOptions& options, StaticSpaiResult& result);

}  // namespace spaid::cuda
