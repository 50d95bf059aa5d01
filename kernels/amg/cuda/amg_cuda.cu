#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/cycle.h"
#include "kernels/amg/cuda/hierarchy.h"
#include "kernels/amg/cuda/nodes.h"
#include "kernels/amg/set_up_rules.h"
#include "kernels/base/clock.h"
#include "kernels/base/cuda/device.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/sparse/cuda/symmetry.h"

namespace spaid::kernels {

namespace {

// Whether A is symmetric but for rounding; `exactly`: true where it is known to be so exactly.
bool IsSymmetric(cuda::Context& on, const cuda::RowMatrix& a,
                 const std::optional<cuda::NodeMatrix>& nodes, bool* exactly) {
  if (nodes) return cuda::IsNumericallySymmetric(on, *nodes, exactly);
  return cuda::IsNumericallySymmetric(on, a.pattern(), a.values.get());
}

// Calls make(on, begin), which brings A, calls begin(), and makes the levels. The plan of the
// result is null where they went by one.
template <class Make>
Result<std::optional<AmgResult>> SetUpThere(const std::shared_ptr<CudaDevice>& device,
                                            const PatternView& a, int threads,
                                            AmgCudaTimings* timings, const Make& make) {
  std::optional<AmgResult> built;
  const auto lock = device->Lock();
  const Status status = cuda::Guard(*device, [&](cuda::Context& on) {
    const int64_t before = on.arena->used();
    on.arena->ResetPeak();
    const auto start = Clock::now();
    std::optional<cuda::Stopwatch> watch;
    double upload_ms = 0;
    std::optional<cuda::Hierarchy> made = make(on, [&] {
      upload_ms = MsSince(start);
      watch.emplace(on);
    });
    const double device_ms = watch->Stop();
    if (timings != nullptr) {
      timings->host_to_device_ms += upload_ms;
      timings->device_ms += device_ms;
      timings->device_bytes = std::max(timings->device_bytes, on.arena->peak() - before);
    }
    if (!made) return;
    int64_t bytes = on.arena->used() - before;
    AmgResult of{.hierarchy = nullptr, .plan = nullptr, .there = nullptr, .quality = made->quality};
    if (made->plan) {
      of.there = std::make_shared<cuda::PlanOnDevice>(device, *std::move(made->plan), a, threads);
      bytes -= of.there->device_bytes();
      made->plan.reset();
    }
    of.hierarchy = std::make_shared<cuda::HierarchyOnDevice>(device, *std::move(made), bytes);
    built = std::move(of);
  });
  if (!status.ok()) return status;
  return built;
}

}  // namespace

Result<std::optional<AmgResult>> BuildAmgOnCuda(const std::shared_ptr<CudaDevice>& device,
                                                const CscView& a, const NearNullInput& near_null,
                                                const AmgOptions& options, const Context& context,
                                                AmgCudaTimings* timings) {
  if (!MaySetUpOnDevice(a.n_cols, near_null, options)) return std::optional<AmgResult>();
  AmgOptions resolved = options;
  if (resolved.block_size == 0) resolved.block_size = near_null.dimension;
  const auto given = GuardMemory("the near-null space", [&] {
    return VectorsToMake(a.n_cols, near_null, resolved.block_size);
  });
  if (!given.ok()) return given.status();
  return SetUpThere(device, a, context.threads, timings, [&](cuda::Context& on, const auto& begin) {
    cuda::RowMatrix there;
    static_cast<cuda::Matrix&>(there) = cuda::UploadMatrix(on, a, a.values.data(), context.ahead);
    there.columns = there.n;
    begin();
    if (resolved.block_size == 0) {
      resolved.block_size = cuda::DetectBlockSize(on, there.pattern());
    }
    const int block = resolved.block_size;
    std::optional<cuda::NodeMatrix> nodes;
    if (cuda::HasNodeProducts(block)) nodes = cuda::ByNodes(on, there, block, block);
    bool exactly = false;
    const bool symmetric = IsSymmetric(on, there, nodes, &exactly);
    auto made =
        cuda::SetUp(on, std::move(there), std::move(nodes), symmetric, *given, resolved, context);
    if (made) made->exactly_symmetric = exactly;
    return made;
  });
}

Result<std::optional<AmgResult>> RebuildAmgOnCuda(const std::shared_ptr<CudaDevice>& device,
                                                  const std::shared_ptr<const AmgPlanThere>& plan,
                                                  const CscView& a, const NearNullInput& near_null,
                                                  const Context& context, AmgCudaTimings* timings) {
  const auto& known = static_cast<const cuda::PlanOnDevice&>(*plan);
  if (known.device() != device) {
    return device->Failed(CudaFault::kPlanMismatch, "the plan of multigrid is another device's");
  }
  if (Status status = known.Check(a, context.threads); !status.ok()) return status;
  const int block = known.plan().options.block_size;
  if (!MaySetUpOnDevice(a.n_cols, near_null, known.plan().options)) {
    return std::optional<AmgResult>();
  }
  const auto given =
      GuardMemory("the near-null space", [&] { return VectorsToMake(a.n_cols, near_null, block); });
  if (!given.ok()) return given.status();
  auto built =
      SetUpThere(device, a, context.threads, timings,
                 [&](cuda::Context& on, const auto& begin) -> std::optional<cuda::Hierarchy> {
                   cuda::RowMatrix there = cuda::OnPattern(on, known.plan().of_a());
                   cuda::UploadValues(on, a.values.data(), there, context.ahead);
                   begin();
                   auto nodes = cuda::KnownNodes(on, known.plan(), there);
                   bool exactly = false;
                   if (IsSymmetric(on, there, nodes, &exactly) != known.plan().symmetric) {
                     return std::nullopt;
                   }
                   auto made = cuda::SetUpAgain(on, known.plan(), std::move(there),
                                                std::move(nodes), *given, context);
                   if (made) made->exactly_symmetric = exactly;
                   return made;
                 });
  if (built.ok() && *built) (*built)->there = plan;
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
