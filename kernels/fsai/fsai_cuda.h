// FSAI on a CUDA device: as fsai.h, and the same results: the same pattern wherever no tie, and
// nothing within rounding of one, decides what joins a row, and values to rounding. The whole
// growth is on the device; of static FSAI the pattern comes from the host. A row of which what it
// needs while it grows does not fit in a block's shared memory is made in the device's memory;
// FsaiQuality.slow_rows counts these. Where it takes over 64 MiB, or a row of a pattern has over
// 2048 entries, the host makes the row; FsaiCudaTimings.host_rows counts those among them. Rows
// that repeat are looked for where rows grow, and not where there is a post-filter.
//
//   auto grown = BuildFsaiCuda(device, a, nullptr, options, context);
//   ... or, with what is on the device kept there:
//   auto plan = PlanFsaiCuda(device, a, nullptr, context);
//   FsaiCudaOutputs outputs;
//   auto first = GrowFsaiCuda(**plan, nullptr, a, options, context, nullptr, &outputs);
//   ... new values, the same pattern ...
//   auto again = BuildFsaiOnCuda(*outputs.plan, first->g_rows.pattern(), a2, options, context);
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/cuda_device.h"
#include "kernels/fsai/cuda_fsai.h"
#include "kernels/fsai/fsai.h"

namespace spaid::kernels {

// Milliseconds by the host's clock unless said otherwise. Of several devices the longest each, and
// the most bytes of one.
struct FsaiCudaTimings {
  double host_to_device_ms = 0;
  double device_ms = 0;  // by the device's clock: A to G, both there
  double device_to_host_ms = 0;
  int64_t device_bytes = 0;  // at once, at most
  int waves = 0;             // of rows, as memory allows
  int64_t host_rows = 0;
  double host_solve_ms = 0;  // of those
};

// What depends on patterns alone, on the device: room for A, whose values each build replaces, and,
// where it was given one, a pattern of G, or from which it grows. Builds of one device take turns.
// Thread-safe.
//
// Several devices share a plan, and its builds, by rows: each has all of A and makes a range of
// rows of about equal predicted work, on a thread of its own; they go straight to where they belong
// in G, of which nothing stays on a device: each has its rows alone, and to join them on the one
// that solves takes the same bytes to there, over the same bus, as a solve spends that finds no
// copy, which not every build is followed by. G is the same, bit for bit; kaporin numbers to
// rounding; copied_rows may be other, as each copies from its own rows alone.
class FsaiCudaPlan;

// `rows`: as BuildFsaiOn's; may be null. Errors: INVALID_ARGUMENT/NOT_SQUARE,
// /PATTERN_SIZE_MISMATCH, /PATTERN_NOT_LOWER; those of cuda_backend.h. On one device or at
// least one, each but once; of several the first error, once all have come to their ends.
Result<std::shared_ptr<const FsaiCudaPlan>> PlanFsaiCuda(
    std::span<const std::shared_ptr<CudaDevice>> devices, const PatternView& a,
    const PatternView* rows, const Context& context, FsaiCudaTimings* timings = nullptr);
Result<std::shared_ptr<const FsaiCudaPlan>> PlanFsaiCuda(const std::shared_ptr<CudaDevice>& device,
                                                         const PatternView& a,
                                                         const PatternView* rows,
                                                         const Context& context,
                                                         FsaiCudaTimings* timings = nullptr);
int64_t DeviceBytes(const FsaiCudaPlan& plan);  // held, by one of its devices at the most

// G on the device that built it, for work to come there. Immutable; thread-safe.
class FsaiCudaG;
int64_t DeviceBytes(const FsaiCudaG& g);  // held
// The device that it is on, and what that knows it by.
const std::shared_ptr<CudaDevice>& DeviceOf(const FsaiCudaG& g);
const CudaG& Object(const FsaiCudaG& g);

// What a build gives besides its result.
struct FsaiCudaOutputs {
  // G by columns, made by the device; of no columns where it has no room for that.
  CscMatrix g_columns;
  // Neither of these, and no columns, where the host had a part in G. Of several devices the plan
  // alone.
  std::shared_ptr<const FsaiCudaG> g;
  std::shared_ptr<const FsaiCudaPlan> plan;  // with the pattern of G, for values to come
};

// As BuildFsaiOn, a prescribed pattern in the precision that options.precision says. `pattern`:
// that of the plan, on the host. Thread-safe. Stops between launches of rows. Errors besides:
// INVALID_ARGUMENT/PLAN_MISMATCH where A has not the plan's pattern; those of cuda_backend.h.
// `outputs`: null: not wanted.
Result<FsaiResult> BuildFsaiOnCuda(const FsaiCudaPlan& plan, const PatternView& pattern,
                                   const CscView& a, const FsaiOptions& options,
                                   const Context& context, FsaiCudaTimings* timings = nullptr,
                                   FsaiCudaOutputs* outputs = nullptr);
// As BuildFsai where options.adaptive. `initial`: the plan's pattern, on the host; null: it has
// none. A time budget is looked at between passes over all rows. Otherwise as above.
Result<FsaiResult> GrowFsaiCuda(const FsaiCudaPlan& plan, const PatternView* initial,
                                const CscView& a, const FsaiOptions& options,
                                const Context& context, FsaiCudaTimings* timings = nullptr,
                                FsaiCudaOutputs* outputs = nullptr);

// The same, of which nothing stays on the device.
Result<FsaiResult> BuildFsaiOnCuda(const std::shared_ptr<CudaDevice>& device,
                                   const PatternView& pattern, const CscView& a,
                                   const FsaiOptions& options, const Context& context,
                                   FsaiCudaTimings* timings = nullptr);
// As BuildFsai: `initial` may be any pattern.
Result<FsaiResult> BuildFsaiCuda(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                                 const PatternView* initial, const FsaiOptions& options,
                                 const Context& context, FsaiCudaTimings* timings = nullptr);

}  // namespace spaid::kernels
