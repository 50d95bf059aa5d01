// FSAI on a CUDA device: as fsai.h, and the same results: the same pattern wherever no tie, and
// nothing within rounding of one, decides what joins a row, and values to rounding. The whole
// growth is on the device; of static FSAI the pattern comes from the host. A row of which what it
// needs while it grows does not fit in a block's shared memory is made in the device's memory;
// FsaiQuality.slow_rows counts these. Rows that repeat are looked for on prescribed patterns, too,
// and not where there is a post-filter.
//
//   auto grown = BuildFsaiCuda(device, a, nullptr, options, context);
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/cuda_device.h"
#include "kernels/fsai/fsai.h"

namespace spaid::kernels {

// Milliseconds by the host's clock unless said otherwise.
struct FsaiCudaTimings {
  double host_to_device_ms = 0;
  double device_ms = 0;  // by the device's clock: A to G, both there
  double device_to_host_ms = 0;
  int64_t device_bytes = 0;  // at once, at most
};

// As BuildFsaiOn, a prescribed pattern in the precision that options.precision says. Thread-safe.
// Stops between waves of rows. Errors besides: those of CudaDevice::Failed.
Result<FsaiResult> BuildFsaiOnCuda(const std::shared_ptr<CudaDevice>& device,
                                   const PatternView& pattern, const CscView& a,
                                   const FsaiOptions& options, const Context& context,
                                   FsaiCudaTimings* timings = nullptr);

// As BuildFsai. A time budget is looked at between passes over all rows. Otherwise as above.
Result<FsaiResult> BuildFsaiCuda(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                                 const PatternView* initial, const FsaiOptions& options,
                                 const Context& context, FsaiCudaTimings* timings = nullptr);

}  // namespace spaid::kernels
