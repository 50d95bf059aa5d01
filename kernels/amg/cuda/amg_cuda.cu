#include <utility>
#include <variant>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/cycle.h"
#include "kernels/amg/cuda/hierarchy.h"
#include "kernels/base/clock.h"
#include "kernels/base/cuda/device.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/sparse/cuda/symmetry.h"

namespace spaid::kernels {

Result<std::optional<AmgResult>> BuildAmgOnCuda(const std::shared_ptr<CudaDevice>& device,
                                                const CscView& a, const NearNullInput& near_null,
                                                const AmgOptions& options, const Context& context,
                                                AmgCudaTimings* timings) {
  if (!MaySetUpOnDevice(a, near_null, options)) return std::optional<AmgResult>();
  if (near_null.count > 0) {
    if (Status status = CheckNearNull(a.n_cols, near_null); !status.ok()) return status;
  }
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
    auto made = cuda::SetUp(on, std::move(there), symmetric, near_null, options, context);
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
