// The growth of dynamic SPAI on CUDA devices: as GrowDynamicSpai, and the same patterns wherever no
// tie, and nothing within rounding of one, decides what joins a column. AᵀA is formed on the
// device, and all steps of a column are one kernel's work. A column that outgrows a block's shared
// memory is grown in the device's memory; DynamicSpaiQuality.slow_columns counts these. Where it
// would take over 64 MiB the host grows the column; DynamicSpaiCudaTimings.host_columns counts
// those among them. This is libspaid_cuda.so's; programs call it by kernels/engine/cuda_library.h.
//
//   auto grown = GrowDynamicSpaiCuda(gpus, a, nullptr, options, context, nullptr, &there);
//   const PatternView of_m = grown->m;
//   auto plan = PlanStaticSpaiCuda(gpus, a, &of_m, NumbersOf(options), context, nullptr,
//                                  std::move(there));
//   auto result = BuildStaticSpaiCuda(**plan, a, NumbersOf(options), context);
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/cuda_device.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/static_spai/static_spai_cuda.h"

namespace spaid::kernels {

// Milliseconds by the host's clock unless said otherwise. For several devices the longest each, and
// the most bytes of one.
struct DynamicSpaiCudaTimings {
  double host_to_device_ms = 0;
  double device_ms = 0;  // by the device's clock: A to its pattern of M, both there
  double gram_ms = 0;    // of those, for AᵀA
  double device_to_host_ms = 0;
  int64_t device_bytes = 0;  // at once, at most
  int waves = 0;             // of columns, as memory allows
  int64_t host_columns = 0;
  double host_ms = 0;  // of those
};

// On one device or at least one, each but once. Several share the columns: each has all of A, forms
// all of AᵀA, and grows a range of columns of about equal predicted work, on a thread of its own.
// The pattern is the same; copied_columns may be other, as each copies from its own columns alone.
// `there`: null, or gets what a plan on this device finds there (PlanStaticSpaiCuda): of one device
// alone, and null where the host had a part in the pattern. Thread-safe. Errors: as
// GrowDynamicSpai, GRAM_TOO_LARGE by the device's memory; those of CudaDevice::Failed. From several
// devices the first error, once all have come to their ends.
Result<DynamicSpaiPattern> GrowDynamicSpaiCuda(std::span<const std::shared_ptr<CudaDevice>> devices,
                                               const CscView& a, const PatternView* initial,
                                               const DynamicSpaiOptions& options,
                                               const Context& context,
                                               DynamicSpaiCudaTimings* timings = nullptr,
                                               std::shared_ptr<SpaiOnDevice>* there = nullptr);

}  // namespace spaid::kernels
