// The functions of the rooms' *_cuda.h, as libspaid_cuda.so has them: programs do not link these,
// but call them by this table.
//
//   if (device is a GPU) ... Cuda().plan_static_spai(gpus, a, nullptr, options, context, ...) ...
#pragma once

#include "kernels/amg/amg_cuda.h"
#include "kernels/base/copy_ahead.h"
#include "kernels/base/cuda_loader.h"
#include "kernels/base/device.h"
#include "kernels/dynamic_spai/dynamic_spai_cuda.h"
#include "kernels/fsai/fsai_cuda.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/static_spai/static_spai_cuda.h"

namespace spaid::kernels {

struct CudaLibrary {
  decltype(&BeginCopyAhead) begin_copy_ahead;
  decltype(&PlanStaticSpaiCuda) plan_static_spai;
  decltype(&BuildStaticSpaiCuda) build_static_spai;
  decltype(&GrowDynamicSpaiCuda) grow_dynamic_spai;
  decltype(&PlanFsaiCuda) plan_fsai;
  decltype(&BuildFsaiOnCuda) build_fsai;
  decltype(&GrowFsaiCuda) grow_fsai;
  decltype(&CudaOperator::OfMatrix) operator_of_matrix;
  decltype(&CudaOperator::OfBuilt) operator_of_built;
  decltype(&CudaOperator::OfDiagonal) operator_of_diagonal;
  decltype(&CudaOperator::OfFactors) operator_of_factors;
  decltype(&CudaOperator::WithValues) operator_with_values;
  decltype(&BuildAmgOnCuda) build_amg;
  decltype(&RebuildAmgOnCuda) rebuild_amg;
  decltype(&PlaceAmgOnCuda) place_amg;
  decltype(&SolveCuda) solve;
};

// Only where there is a CUDA device. A test may put another table in its place.
inline const CudaLibrary*& TheCudaLibrary() {
  static const CudaLibrary* library = ListCudaDevices().entry->library;
  return library;
}
inline const CudaLibrary& Cuda() { return *TheCudaLibrary(); }

}  // namespace spaid::kernels
