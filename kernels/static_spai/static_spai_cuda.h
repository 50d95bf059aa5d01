// Static SPAI on a CUDA device: the same plan, build and rebuild as static_spai.h, and the same
// results. The pattern of M is made on the device, of any power; only the matching of row_match is
// found on the host. Local problems that are too large or too ill-conditioned for the device's
// kernels are solved on the host; StaticSpaiCudaTimings counts them. Where there are such columns M
// is post-filtered on the host, else on the device.
//
// All of this is libspaid_cuda.so's; programs call it by kernels/engine/cuda_library.h.
//
//   auto plan = PlanStaticSpaiCuda({&device, 1}, a, nullptr, options, context);
//   auto result = BuildStaticSpaiCuda(**plan, a, options, context);
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/cuda_device.h"
#include "kernels/sparse/built_on_device.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// Milliseconds by the host's clock unless said otherwise. With several devices the longest time of
// any, and the most bytes of any.
struct StaticSpaiCudaTimings {
  double host_to_device_ms = 0;
  double device_plan_ms = 0;     // by the device's clock
  double device_pattern_ms = 0;  // the part of it for the pattern of M
  double device_build_ms = 0;    // by the device's clock
  double device_to_host_ms = 0;
  double host_solve_ms = 0;  // for the columns that were left to the host
  int64_t host_columns = 0;
  // The plan's gather tables do not fit beside the build: each build makes them again, in waves.
  // Set for a plan, and for each build with it.
  bool tables_in_waves = false;
  int64_t device_bytes = 0;    // at once, at most, over plan and build
  int64_t rescued_groups = 0;  // groups of equal J that the Gram path gave up
  // With local_solver = QR: CONSTANT or VARIABLE, as chosen; the time of the kernels for problems
  // with at most 128 columns, by the device's clock, and its prediction.
  ThreadStrategy thread_strategy = ThreadStrategy::kAuto;
  double qr_ms = 0, predicted_qr_ms = 0;
};

// The data on the device that depends on the pattern alone, and the matrix, whose values each build
// replaces. Immutable but for these: builds of one device take turns. Thread-safe.
//
// Several devices share a plan, and its builds, by columns: each has all of A, knows the pattern
// and the groups of the whole M, and computes a range of about equal predicted work, on a thread of
// its own; its columns go straight to their place in M on the host. No part of M is kept on a
// device then, and small entries are filtered on the host. Each needs as much memory as one device
// alone. M is the same, bit for bit, unless one device makes its tables in waves and another does
// not, or local_solver = QR with AUTO as thread strategy chooses another one for a range: then it
// is the same to rounding.
struct StaticSpaiCudaPlan {
  int64_t device_bytes = 0;  // held on any one of its devices, at most
  int64_t host_bytes = 0;
};

// Data that another computation has left on a device for a plan there.
struct SpaiOnDevice;

// Plans as PlanStaticSpai. `devices`: at least one, each only once; with several the first error is
// returned, once all have ended. `there`: null, or A and the user's pattern on the device, which
// must be the only one: they are taken, not uploaded then. Further errors: those of
// CudaDevice::Failed.
Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    std::span<const std::shared_ptr<CudaDevice>> devices, const CscView& a,
    const PatternView* user_pattern, const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings* timings = nullptr, std::shared_ptr<SpaiOnDevice> there = nullptr);

// Builds as BuildStaticSpai; context.result is shown each device's columns as they come to the
// host, except for those after one that is left to the host. `kept`: gets the M that is kept on the
// device, and keeps the plan, whose pattern it may have; null where the host solved some columns,
// or with several devices. Further errors: those of CudaDevice::Failed.
Result<StaticSpaiResult> BuildStaticSpaiCuda(const StaticSpaiCudaPlan& plan, const CscView& a,
                                             const StaticSpaiOptions& options,
                                             const Context& context,
                                             StaticSpaiCudaTimings* timings = nullptr,
                                             std::shared_ptr<const BuiltOnDevice>* kept = nullptr);

}  // namespace spaid::kernels
