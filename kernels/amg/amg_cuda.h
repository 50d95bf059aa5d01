// The cycle of multigrid on a CUDA device. It is libspaid_cuda.so's; programs call it by
// kernels/engine/cuda_library.h.
//
//   auto m_there = PlaceAmgOnCuda(device, *built->hierarchy, context, a_there->get());
//   auto result = SolveCuda(**a_there, m_there->get(), a, b, {}, options, context);
#pragma once

#include <memory>

#include "kernels/amg/amg.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/status.h"
#include "kernels/krylov/krylov_cuda.h"

namespace spaid::kernels {

// Uploads a hierarchy and lays it out for cycles, in its precision, beside A (CudaOperator). A
// cycle there adds in fp64 and stores its vectors in the hierarchy's precision, so that it differs
// from the host's by rounding: by 1e-5 of the largest element in fp32, by 1e-12 in fp64. The same
// bits in every run. One right-hand side after the other. Errors: stop statuses; those of
// CudaDevice::Failed.
Result<std::shared_ptr<const CudaOperator>> PlaceAmgOnCuda(
    const std::shared_ptr<CudaDevice>& device, const AmgHierarchy& hierarchy,
    const Context& context, const CudaOperator* beside);

}  // namespace spaid::kernels
