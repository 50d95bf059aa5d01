// The numeric phase of static SPAI on a device.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/caller.h"
#include "kernels/static_spai/cuda/plan.h"
#include "kernels/static_spai/static_spai_cuda.h"

namespace spaid::cuda {

// The columns of M; valid in the plan's range only.
struct StaticSpaiResult {
  Buffer<double> values;  // M in the plan's pattern; zero in columns without a flag
  Buffer<double> residual_norms, pivots;
  Buffer<uint8_t> flags;  // ColumnFlag; 0: left to the host
  // The pattern of `values` after CompactM (post_filter.h); empty: the plan's.
  Buffer<int64_t> m_ptr;
  Buffer<int32_t> m_idx;
};

// `a` has the plan's pattern, and values. Waits for the device. Reports to `caller` between
// waves of groups. Fills what `timings` has of QR and rescues.
StaticSpaiResult Build(Context& context, StaticSpaiPlan& plan, const Matrix& a,
                       const kernels::StaticSpaiOptions& options, const Caller& caller,
                       kernels::StaticSpaiCudaTimings& timings);

}  // namespace spaid::cuda
