// FSAI on a CUDA device, with the results of fsai.h: the same pattern wherever no tie, and nothing
// within rounding of one, decides what joins a row, and values to rounding. The whole growth runs
// on the device; the pattern of static FSAI comes from the host. A row whose workspace does not fit
// a block's shared memory is made in the device's memory; FsaiQuality.slow_rows counts these. A row
// whose workspace takes over 64 MiB, or that has over 2048 entries on a given pattern, is made by
// the host; FsaiCudaTimings.host_rows counts those among them. Rows that repeat are looked for
// where rows grow and there is no post-filter.
//
// All of this is libspaid_cuda.so's; programs call it by kernels/engine/cuda_library.h.
//
//   auto plan = PlanFsaiCuda({&device, 1}, a, nullptr, context);
//   FsaiCudaOutputs outputs;
//   auto first = GrowFsaiCuda(**plan, nullptr, a, options, context, nullptr, &outputs);
//   // New values, the same pattern:
//   auto again = BuildFsaiOnCuda(*outputs.plan, first->g_rows.pattern(), a2, options, context);
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/cuda_device.h"
#include "kernels/fsai/fsai.h"
#include "kernels/sparse/built_on_device.h"

namespace spaid::kernels {

// Milliseconds by the host's clock unless said otherwise. With several devices the longest time of
// any, and the most bytes of any.
struct FsaiCudaTimings {
  double host_to_device_ms = 0;
  double device_ms = 0;  // by the device's clock: A to G, both there
  double build_ms = 0;   // the same by the host's
  double join_ms = 0;    // parts of G to the first device, where it is kept
  double device_to_host_ms = 0;
  double columns_ms = 0;     // of that, G by columns, made there
  int64_t device_bytes = 0;  // at once, at most
  int waves = 0;             // batches of rows, as memory allows
  int64_t host_rows = 0;
  double host_solve_ms = 0;  // for these
};

// The data on the device that depends on patterns alone: memory for A, whose values each build
// replaces, and, if given, a pattern of G or one from which it grows. Builds of one device take
// turns. Thread-safe.
//
// Several devices share a plan, and its builds, by rows: each has all of A, comes for ranges of
// rows until there are no more (kernels/base/split.h), on a thread of its own, and sends them to
// the first one, where G then is as if that had made it. Arrays for the host come from all of them.
// G is the same, bit for bit; Kaporin numbers to rounding; copied_rows may differ, as each device
// copies from its own rows only.
struct FsaiCudaPlan {
  int64_t device_bytes = 0;  // held on any one of its devices, at most
};

// `rows`: as BuildFsaiOn's; may be null. Errors: INVALID_ARGUMENT/NOT_SQUARE,
// /PATTERN_SIZE_MISMATCH, /PATTERN_NOT_LOWER; those of CudaDevice::Failed. `devices`: at least one,
// each only once; with several the first error is returned, once all have ended.
Result<std::shared_ptr<const FsaiCudaPlan>> PlanFsaiCuda(
    std::span<const std::shared_ptr<CudaDevice>> devices, const PatternView& a,
    const PatternView* rows, const Context& context, FsaiCudaTimings* timings = nullptr);
// Outputs of a build beside its result.
struct FsaiCudaOutputs {
  // G by columns, made by the device; without columns where it has no memory for that.
  CscMatrix g_columns;
  // On the first device. All null, and no columns, where the host made some rows of G.
  std::shared_ptr<const BuiltOnDevice> g;
  std::shared_ptr<const FsaiCudaPlan> plan;  // with the pattern of G, for values to come
};

// As BuildFsaiOn, a prescribed pattern in the precision that options.precision says. `pattern`:
// that of the plan, on the host. Thread-safe. Stops between launches of rows. Errors besides:
// INVALID_ARGUMENT/PLAN_MISMATCH where A has not the plan's pattern; those of CudaDevice::Failed.
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

}  // namespace spaid::kernels
