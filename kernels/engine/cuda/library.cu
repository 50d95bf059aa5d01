// The one symbol of libspaid_cuda.so.
#include "kernels/base/build_id.h"
#include "kernels/base/cuda/device.h"
#include "kernels/base/cuda/devices.h"
#include "kernels/engine/cuda_library.h"

namespace spaid::kernels {
namespace {

constexpr CudaLibrary kLibrary = {
    .begin_copy_ahead = &BeginCopyAhead,
    .plan_static_spai = &PlanStaticSpaiCuda,
    .build_static_spai = &BuildStaticSpaiCuda,
    .grow_dynamic_spai = &GrowDynamicSpaiCuda,
    .plan_fsai = &PlanFsaiCuda,
    .build_fsai = &BuildFsaiOnCuda,
    .grow_fsai = &GrowFsaiCuda,
    .operator_of_matrix = &CudaOperator::OfMatrix,
    .operator_of_built = &CudaOperator::OfBuilt,
    .operator_of_diagonal = &CudaOperator::OfDiagonal,
    .operator_of_factors = &CudaOperator::OfFactors,
    .operator_with_values = &CudaOperator::WithValues,
    .build_amg = &BuildAmgOnCuda,
    .rebuild_amg = &RebuildAmgOnCuda,
    .place_amg = &PlaceAmgOnCuda,
    .solve = &SolveCuda,
};

void Adopt(const ProcessState& program) {
  ThePool() = program.pool;
  TheFreedBlocks() = program.freed;
}

Result<std::shared_ptr<CudaDevice>> Open(const DeviceInfo& info, int64_t memory_limit) {
  return cuda::OpenDevice(info, memory_limit);
}

}  // namespace
}  // namespace spaid::kernels

extern "C" __attribute__((visibility("default")))
const spaid::kernels::CudaEntry spaid_cuda_entry = {
    SPAID_BUILD_ID, &spaid::kernels::Adopt, &spaid::cuda::ListDevices, &spaid::kernels::Open,
    &spaid::kernels::kLibrary};
