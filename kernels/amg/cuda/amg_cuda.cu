#include <variant>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/cuda/cycle.h"
#include "kernels/krylov/cuda/operator_on_device.h"

namespace spaid::kernels {

Result<std::shared_ptr<const CudaOperator>> PlaceAmgOnCuda(
    const std::shared_ptr<CudaDevice>& device, const AmgHierarchy& hierarchy,
    const Context& context, const CudaOperator* beside) {
  return cuda::PlaceApplied(
      device, hierarchy.n(), beside, [&](cuda::Context& there, const cuda::UnknownOrder* order) {
        return std::visit(
            [&](const auto* parts) {
              return cuda::MakeCycle(there, *parts, hierarchy.bytes_per_apply(), order, context);
            },
            hierarchy.cycle());
      });
}

}  // namespace spaid::kernels
