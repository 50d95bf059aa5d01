// Shared by the benchmarks on a CUDA device. They call the code of libspaid_cuda.so, which they
// link; an error ends the program.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/device.h"
#include "kernels/base/split.h"
#include "kernels/static_spai/cuda/build.h"
#include "kernels/static_spai/cuda/plan.h"

namespace spaid::kernels::bench {

// Ends the program with `message` unless `ok`.
void OrDie(bool ok, const char* message);

// The first device, opened by the first call with all of its memory. There must be one.
const std::shared_ptr<CudaDevice>& Device();
// The device's context, current for the calling thread.
cuda::Context& There(CudaDevice& device);
// For computations that nobody stops.
cuda::Caller Nobody();

// A plan of static SPAI, and what it took, by the device's clock.
struct PlanThere {
  cuda::StaticSpaiPlan plan;
  double ms = 0, pattern_ms = 0;  // of those, for the pattern of M
  int64_t peak_bytes = 0;
};
// `grown`: null, or M's pattern, which is taken.
PlanThere PlanSpaiThere(cuda::Context& context, const cuda::Matrix& a,
                        const StaticSpaiOptions& options, IndexRange columns,
                        cuda::DevicePattern* grown = nullptr);

// An M there, and what it took.
struct BuildThere {
  cuda::StaticSpaiResult m;
  double ms = 0;
  int64_t peak_bytes = 0;
};
BuildThere BuildSpaiThere(cuda::Context& context, cuda::StaticSpaiPlan& plan, const cuda::Matrix& a,
                          const StaticSpaiOptions& options);

}  // namespace spaid::kernels::bench
