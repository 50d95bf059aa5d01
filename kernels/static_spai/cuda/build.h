// The numeric phase of static SPAI on a device.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/caller.h"
#include "kernels/static_spai/cuda/plan.h"
#include "kernels/static_spai/cuda_spai.h"

namespace spaid::cuda {

// Of all columns; worth something in those of the plan's range.
struct StaticSpaiResult {
  Buffer<double> values;  // of M, in the plan's pattern; zero in columns without a flag
  Buffer<double> residual_norms, pivots;
  Buffer<uint8_t> flags;  // ColumnFlag; 0: left to the host
  // The pattern of `values` after CompactM (post_filter.h); empty: the plan's.
  Buffer<int64_t> m_ptr;
  Buffer<int32_t> m_idx;
};

// `a` has the plan's pattern, and values. Waits for the device. Reports to `caller` between waves
// of groups. Fills what `figures` has of QR and rescues.
StaticSpaiResult Build(Context& context, StaticSpaiPlan& plan, const Matrix& a,
                       const kernels::StaticSpaiOptions& options, const Caller& caller,
                       kernels::CudaBuildFigures& figures);

}  // namespace spaid::cuda
