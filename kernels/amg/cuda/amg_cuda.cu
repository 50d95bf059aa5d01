#include <utility>
#include <variant>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/cycle.h"
#include "kernels/amg/cuda/hierarchy.h"
#include "kernels/amg/cuda/nodes.h"
#include "kernels/base/clock.h"
#include "kernels/base/cuda/device.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/sparse/cuda/symmetry.h"

namespace spaid::kernels {

Result<std::optional<AmgResult>> BuildAmgOnCuda(const std::shared_ptr<CudaDevice>& device,
                                                const CscView& a, const NearNullInput& near_null,
                                                const AmgOptions& options, const Context& context,
                                                AmgCudaTimings* timings) {
  if (!MaySetUpOnDevice(a.n_cols, near_null, options)) return std::optional<AmgResult>();
  AmgOptions resolved = options;
  if (resolved.block_size == 0) resolved.block_size = near_null.dimension;
  const auto given = GuardMemory("the near-null space", [&] {
    return GivenNearNull(a.n_cols, near_null, resolved.block_size);
  });
  if (!given.ok()) return given.status();
  std::optional<AmgResult> built;
  const auto lock = device->Lock();
  const Status status = cuda::Guard(*device, [&](cuda::Context& on) {
    const int64_t before = on.arena->used();
    on.arena->ResetPeak();
    const auto start = Clock::now();
    cuda::Matrix there = cuda::UploadMatrix(on, a, a.values.data(), context.ahead);
    const double upload_ms = MsSince(start);
    cuda::Stopwatch watch(on);
    const bool symmetric = cuda::IsNumericallySymmetric(on, there.pattern(), there.values.get());
    if (resolved.block_size == 0) {
      resolved.block_size = cuda::DetectBlockSize(on, there.pattern());
    }
    auto made = cuda::SetUp(on, std::move(there), symmetric, *given, resolved, context);
    const double device_ms = watch.Stop();
    if (timings != nullptr) {
      timings->host_to_device_ms += upload_ms;
      timings->device_ms += device_ms;
      timings->device_bytes = std::max(timings->device_bytes, on.arena->peak() - before);
    }
    if (!made) return;
    built = AmgResult{.hierarchy = nullptr, .plan = nullptr, .quality = made->quality};
    built->hierarchy = std::make_shared<cuda::HierarchyOnDevice>(device, *std::move(made),
                                                                 on.arena->used() - before);
  });
  if (!status.ok()) return status;
  return built;
}

Result<std::shared_ptr<const CudaOperator>> PlaceAmgOnCuda(
    const std::shared_ptr<CudaDevice>& device, const AmgHierarchy& hierarchy,
    const Context& context, const CudaOperator* beside) {
  const int64_t n = hierarchy.n(), bytes = hierarchy.bytes_per_apply();
  const auto* of_device = dynamic_cast<const cuda::HierarchyOnDevice*>(&hierarchy);
  if (of_device != nullptr && of_device->device() == device) {
    if (const auto there = of_device->There()) {
      return cuda::PlaceApplied(device, n, beside,
                                [&](cuda::Context& on, const cuda::UnknownOrder* order) {
                                  return cuda::MakeCycle(on, *there, bytes, order, context);
                                });
    }
  }
  const auto here = hierarchy.OnHost(context);
  if (!here.ok()) return here.status();
  return cuda::PlaceApplied(
      device, n, beside, [&](cuda::Context& on, const cuda::UnknownOrder* order) {
        return std::visit(
            [&](const auto* parts) { return cuda::MakeCycle(on, *parts, bytes, order, context); },
            (*here)->cycle());
      });
}

}  // namespace spaid::kernels
