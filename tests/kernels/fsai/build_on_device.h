// FSAI on one CUDA device at a call.
#pragma once

#include <memory>

#include "kernels/fsai/fsai_cuda.h"
#include "kernels/fsai/fsai_pattern.h"
#include "tests/kernels/base/gpu_context.h"

namespace spaid::kernels {

// The lower triangle of `user`, by rows, with the diagonal last.
inline Pattern LowerRows(const PatternView& user) {
  Pattern lower;
  lower.n_rows = lower.n_cols = user.n_cols;
  lower.col_ptr.push_back(0);
  for (int64_t i = 0; i < user.n_cols; ++i) {
    for (const int32_t j : user.column(i)) {
      if (j < i) lower.row_idx.push_back(j);
    }
    lower.row_idx.push_back(static_cast<int32_t>(i));
    lower.col_ptr.push_back(lower.nnz());
  }
  return lower;
}

// As BuildFsaiOn.
inline Result<FsaiResult> BuildFsaiOnCuda(const std::shared_ptr<CudaDevice>& device,
                                          const PatternView& pattern, const CscView& a,
                                          const FsaiOptions& options, const Context& context,
                                          FsaiCudaTimings* timings = nullptr) {
  const auto plan = PlanFsaiCuda({&device, 1}, a, &pattern, context, timings);
  if (!plan.ok()) return plan.status();
  return BuildFsaiOnCuda(**plan, pattern, a, options, context, timings);
}

// As BuildFsai; `initial` is of A's size.
inline Result<FsaiResult> BuildFsaiCuda(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                                        const PatternView* initial, const FsaiOptions& options,
                                        const Context& context,
                                        FsaiCudaTimings* timings = nullptr) {
  if (!options.adaptive) {
    auto pattern = FsaiPattern(a, initial, options, context);
    if (!pattern.ok()) return pattern.status();
    return BuildFsaiOnCuda(device, *pattern, a, options, context, timings);
  }
  const Pattern start = initial != nullptr ? LowerRows(*initial) : Pattern();
  const PatternView view = start;
  const PatternView* const rows = initial != nullptr ? &view : nullptr;
  const auto plan = PlanFsaiCuda({&device, 1}, a, rows, context, timings);
  if (!plan.ok()) return plan.status();
  return GrowFsaiCuda(**plan, rows, a, options, context, timings);
}

}  // namespace spaid::kernels
