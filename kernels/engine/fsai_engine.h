// FSAI and aFSAI behind the engine's face: specs, plans, builds, estimates, warnings.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_cuda.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct FsaiPlan {
  // By rows, as FsaiResult::g_rows. kFsai: of G. kAfsai: of G where `grown`, else from which it
  // grows (no columns at all: the diagonal).
  Pattern rows;
  bool grown = false;
  int power = 1;  // kFsai: of the pattern, unless that is the user's
  double drop_tol = 0;
  std::shared_ptr<const FsaiCudaPlan> there;  // the same on a CUDA device; null: it is the host's

  int64_t bytes() const;
};

// What of the options the kind reads, the others as they are by default; `adaptive` by the kind.
FsaiOptions FsaiOptionsOf(const PreconditionerSpec& spec);

// `user_pattern`: by columns, of which the lower triangle counts; may be null. `gpus`: for builds
// there; none: by the host. Errors: those of FsaiPattern and PlanFsaiCuda; PATTERN_SIZE_MISMATCH;
// stop statuses.
Result<std::shared_ptr<const FsaiPlan>> PlanFsai(const PreconditionerSpec& spec, const CscView& a,
                                                 const PatternView* user_pattern,
                                                 std::span<const std::shared_ptr<CudaDevice>> gpus,
                                                 const Context& context, DeviceTimings* timings);

struct FsaiBuild {
  CscMatrix g_rows;
  CscMatrix g_columns;                    // of no columns: not made yet
  std::shared_ptr<const FsaiCudaG> kept;  // on the device; null: none
  Quality quality;
  std::shared_ptr<const FsaiPlan> grown;  // BuildResult::grown
};
// `plan` is of the spec's kind and options. Errors: those of BuildFsai and BuildFsaiOn, and where
// it is for a CUDA device, of PlanFsaiCuda and GrowFsaiCuda.
Result<FsaiBuild> BuildOnFsaiPlan(const FsaiPlan& plan, const PreconditionerSpec& spec,
                                  std::span<const std::shared_ptr<CudaDevice>> gpus,
                                  const CscView& a, const Context& context, DeviceTimings* timings);

}  // namespace spaid::kernels
