// Static SPAI on a CUDA device: the same plan, build and rebuild as static_spai.h, and the same
// results. The pattern of M is made on the device, of any power; only the matching of row_match is
// found on the host. Local problems that are too large or too ill-conditioned for the device's
// kernels are solved on the host; StaticSpaiCudaTimings counts them. Where there are such columns M
// is post-filtered on the host, else on the device.
//
//   auto plan = PlanStaticSpaiCuda(device, a, nullptr, options, context);
//   auto result = BuildStaticSpaiCuda(**plan, a, options, context);
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/cuda_device.h"
#include "kernels/static_spai/cuda_spai.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// Milliseconds by the host's clock unless said otherwise. Of several devices the longest each, and
// the most bytes of one.
struct StaticSpaiCudaTimings {
  double host_to_device_ms = 0;
  double device_plan_ms = 0;     // by the device's clock
  double device_pattern_ms = 0;  // of those, for the pattern of M
  double device_build_ms = 0;    // by the device's clock
  double device_to_host_ms = 0;
  double host_solve_ms = 0;  // of what was left to the host
  int64_t host_columns = 0;
  // The plan's gather tables have no room beside the build: each build makes them again, in waves.
  // Of a plan, and of each build with it.
  bool tables_in_waves = false;
  int64_t device_bytes = 0;    // at once, at most, over plan and build
  int64_t rescued_groups = 0;  // of columns with equal J: given up by the Gram path
  // Where local_solver = QR: CONSTANT or VARIABLE, as chosen; what the kernels of problems with at
  // most 128 columns took, by the device's clock, and were predicted to take.
  ThreadStrategy thread_strategy = ThreadStrategy::kAuto;
  double qr_ms = 0, predicted_qr_ms = 0;
};

// What depends on the pattern alone, on the device; with the matrix, whose values each build
// replaces. Immutable but for those: builds of one device take turns. Thread-safe.
//
// Several devices share a plan, and its builds, by columns: each has all of A, knows the pattern
// and the groups of the whole M, and computes a range of about equal predicted work, on a thread of
// its own; its columns go straight to where they belong in M. Nothing of M stays on a device then,
// and small entries are filtered on the host. Each needs as much memory as one device alone. M is
// the same, bit for bit, unless one of them makes its tables in waves and another does not, or
// local_solver = QR with AUTO as thread strategy takes another one for a range: then it is the same
// to rounding.
class StaticSpaiCudaPlan;

// What another computation left on a device for a plan there.
struct SpaiOnDevice {
  explicit SpaiOnDevice(const std::shared_ptr<CudaDevice>& on)
      : device(on), matrix(on), pattern(on) {}
  // Here and now; the caller has the device's lock.
  void FreeLocked();

  const std::shared_ptr<CudaDevice> device;
  CudaObject<CudaMatrix> matrix;    // A
  CudaObject<CudaPattern> pattern;  // what M's pattern is to be made from
};

// As PlanStaticSpai, on one device or at least one, each but once. Of several the first error, once
// all have come to their ends. `there`: null, or A and the user's pattern on the device, which is
// the only one: what is there is not sent there. Errors besides: those of cuda_backend.h.
Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    std::span<const std::shared_ptr<CudaDevice>> devices, const CscView& a,
    const PatternView* user_pattern, const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings* timings = nullptr, std::unique_ptr<SpaiOnDevice> there = nullptr);
Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, const PatternView* user_pattern,
    const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings* timings = nullptr);

int64_t DeviceBytes(const StaticSpaiCudaPlan& plan);  // held, by one of its devices at the most
int64_t HostBytes(const StaticSpaiCudaPlan& plan);

// M on the device that built it, for work to come there; keeps the plan, whose pattern it has.
// Immutable; thread-safe.
class StaticSpaiCudaM;

// As BuildStaticSpai; context.result sees each device's columns once they are on the host, but for
// those behind one that is left to the host. `kept`: gets the M that stays on the device; null
// where the host had a part in it, or there are several. Errors besides: those of
// cuda_backend.h.
Result<StaticSpaiResult> BuildStaticSpaiCuda(
    const StaticSpaiCudaPlan& plan, const CscView& a, const StaticSpaiOptions& options,
    const Context& context, StaticSpaiCudaTimings* timings = nullptr,
    std::shared_ptr<const StaticSpaiCudaM>* kept = nullptr);

int64_t DeviceBytes(const StaticSpaiCudaM& m);  // held, its plan's included
// The device that it is on, and what that knows it by.
const std::shared_ptr<CudaDevice>& DeviceOf(const StaticSpaiCudaM& m);
const CudaSpaiM& Object(const StaticSpaiCudaM& m);
// The same M as the build's result. Errors: those of cuda_backend.h.
Result<CscMatrix> Download(const StaticSpaiCudaM& m);

}  // namespace spaid::kernels
