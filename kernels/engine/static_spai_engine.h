// Static SPAI's plans and numbers, on the host, on GPUs or over ranks: for its own builds, and for
// those on a pattern that dynamic SPAI grew.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/mpi/ranks_device.h"
#include "kernels/sparse/matrix.h"
#include "kernels/static_spai/static_spai.h"
#include "kernels/static_spai/static_spai_cuda.h"

namespace spaid::kernels {

// One of the three, by the device; none: there is no plan.
struct SpaiPlan {
  std::shared_ptr<const StaticSpaiPlan> here;
  std::shared_ptr<const StaticSpaiCudaPlan> there;
  std::shared_ptr<const OverRanks> over;
  std::shared_ptr<RanksDevice> ranks;  // of `over`

  explicit operator bool() const { return here != nullptr || there != nullptr || over != nullptr; }
  int64_t host_bytes() const;
  int64_t device_bytes() const;
};

// `gpus`: for builds there; none: by the host. `there`: as PlanStaticSpaiCuda has it. Adds to
// `timings`. Errors: those of PlanStaticSpai and PlanStaticSpaiCuda.
Result<SpaiPlan> PlanSpai(const StaticSpaiOptions& options, const CscView& a,
                          const PatternView* user_pattern,
                          std::span<const std::shared_ptr<CudaDevice>> gpus, const Context& context,
                          DeviceTimings* timings, std::shared_ptr<SpaiOnDevice> there = nullptr);

// The same over ranks.
Result<SpaiPlan> PlanSpaiOverRanks(const std::shared_ptr<RanksDevice>& ranks,
                                   const StaticSpaiOptions& options, const CscView& a,
                                   const PatternView* user_pattern, const Context& context,
                                   DeviceTimings* timings);

struct SpaiBuild {
  CscMatrix m;
  ShownResult shown;
  std::shared_ptr<const BuiltOnDevice> kept;  // on the GPU; null: none
  std::shared_ptr<const OverRanks> over;      // over the ranks; null: not there
  Quality quality;                            // warnings included
};
// `grown`: the pattern is one that has grown, so that warnings name other cures. Errors: those of
// BuildStaticSpai and BuildStaticSpaiCuda.
Result<SpaiBuild> BuildOnSpaiPlan(const SpaiPlan& plan, const StaticSpaiOptions& options,
                                  bool grown, const CscView& a, const Context& context,
                                  DeviceTimings* timings);

// Also of AUTO, before it is known what it comes to.
const GpuBuilds& StaticSpaiOnGpu();

// "12 of 100 columns (first 3)"
std::string Columns(int64_t count, int64_t n, int64_t first);

}  // namespace spaid::kernels
