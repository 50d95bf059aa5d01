#include "kernels/bench/cuda_bench.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernels/base/device.h"
#include "kernels/bench/support.h"

namespace spaid::kernels::bench {

void OrDie(bool ok, const char* message) {
  if (ok) return;
  std::fprintf(stderr, "spaid_bench: %s\n", message);
  std::exit(1);
}

const std::shared_ptr<CudaDevice>& Device() {
  static const std::shared_ptr<CudaDevice> device =
      Must(cuda::OpenDevice(ListCudaDevices().devices[0], 0));
  return device;
}

cuda::Context& There(CudaDevice& device) {
  cuda::Context& context = static_cast<cuda::Device&>(device).context();
  context.Enter();
  return context;
}

cuda::Caller Nobody() {
  static const StopToken never;
  return {never, "the benchmark"};
}

PlanThere PlanSpaiThere(cuda::Context& context, const cuda::Matrix& a,
                        const StaticSpaiOptions& options, IndexRange columns,
                        cuda::DevicePattern* grown) {
  PlanThere made;
  context.arena->ResetPeak();
  cuda::Stopwatch watch(context);
  const PatternView on_host;  // in whose place there is `grown`
  cuda::DevicePattern pattern = cuda::MakePattern(context, a, grown != nullptr ? &on_host : nullptr,
                                                  grown, options.pattern, {}, 0, Nobody());
  watch.Mark();
  made.plan =
      cuda::MakePlan(context, a, std::move(pattern), options.local_solver == LocalSolver::kQr,
                     {columns.begin, columns.end});
  made.ms = watch.Stop();
  made.pattern_ms = watch.Marked();
  made.peak_bytes = context.arena->peak();
  return made;
}

BuildThere BuildSpaiThere(cuda::Context& context, cuda::StaticSpaiPlan& plan, const cuda::Matrix& a,
                          const StaticSpaiOptions& options) {
  BuildThere made;
  context.arena->ResetPeak();
  cuda::Stopwatch watch(context);
  StaticSpaiCudaTimings timings;
  made.m = cuda::Build(context, plan, a, options, Nobody(), timings);
  made.ms = watch.Stop();
  made.peak_bytes = context.arena->peak();
  return made;
}

}  // namespace spaid::kernels::bench
