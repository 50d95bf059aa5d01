// The numeric phase of the path by diagonals (dia.h).
#pragma once

#include "kernels/static_spai/cuda/build.h"
#include "kernels/static_spai/cuda/dia.h"

namespace spaid::cuda {

// As Build (build.h), for a plan by diagonals; fills `result`, whose flags are 0.
void BuildDia(Context& context, const StaticSpaiPlan& plan, const Matrix& a,
              const kernels::StaticSpaiOptions& options, const Caller& caller,
              StaticSpaiResult& result);

}  // namespace spaid::cuda
