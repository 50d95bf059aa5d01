#include "kernels/engine/engine_costs.h"

#include <algorithm>
#include <cmath>

#include "kernels/engine/auto_tuning.h"

namespace spaid::kernels {
namespace {

namespace tuning = auto_tuning;
namespace gpu = auto_tuning::gpu;

// Of a count of entries, and of `few` beside it that cost more each.
double OnceMs(const gpu::Once& once, double n, double entries, double few_ms) {
  return once.fixed_ms + once.row_ms * n + once.entry_ms * entries +
         std::min(few_ms, once.few_most_ms);
}
double OnceMs(const gpu::Once& once, double n, double entries) {
  return OnceMs(once, n, entries, once.few_entry_ms * entries);
}

gpu::Iteration IterationOf(Method method, bool diagonal) {
  switch (method) {
    case Method::kCg:
      return diagonal ? gpu::kCgDiagonal : gpu::kCgFactored;
    case Method::kGmres:
      return gpu::kGmres;
    default:
      return diagonal ? gpu::kBicgstabDiagonal : gpu::kBicgstabExplicit;
  }
}

}  // namespace

EngineCosts::EngineCosts(const CscView& a, const LocalSample& sample, int64_t longest_column,
                         Method method, int64_t n_rhs, Backend backend, int threads)
    : sample_(sample),
      n_(static_cast<double>(a.n_cols)),
      nnz_(static_cast<double>(a.nnz())),
      longest_column_(static_cast<double>(longest_column)),
      method_(method),
      n_rhs_(std::max<int64_t>(1, n_rhs)),
      backend_(backend),
      threads_(threads) {}

double EngineCosts::worth() const {
  return backend_ == Backend::kCuda ? gpu::kWorth : tuning::kWorth;
}

double EngineCosts::LookMs() const {
  if (backend_ == Backend::kCpu) return 0;
  return gpu::kLookMs + gpu::kLookRowMs * n_ + gpu::kLookEntryMs * nnz_;
}

double EngineCosts::SetupMs(const EngineWork& work) const {
  return backend_ == Backend::kCuda ? GpuSetupMs(work) : CpuSetupMs(work);
}

double EngineCosts::LongColumnCube() const {
  return longest_column_ > tuning::kLongColumn ? std::pow(longest_column_, 3) : 0;
}

double EngineCosts::CpuSetupMs(const EngineWork& work) const {
  if (work.counted_ms > 0) return work.counted_ms;
  double entries = 0;
  switch (work.kind) {
    case EngineKind::kStaticSpai:
      entries = n_ * (tuning::kSpaiColumn + tuning::kSpaiEntry * sample_.local_entries) +
                LongColumnCube() / tuning::kLongColumnCube;
      break;
    case EngineKind::kFsai:
      entries = n_ * (tuning::kFsaiRow + tuning::kFsaiEntry * sample_.entries);
      break;
    case EngineKind::kAfsai:
      entries = n_ * tuning::kAfsaiRow + tuning::kAfsaiEntry * nnz_;
      break;
    default:
      entries = n_ * tuning::kJacobiRow;
  }
  return 1e-6 * tuning::kEntryNs / threads_ * entries;
}

double EngineCosts::GpuSetupMs(const EngineWork& work) const {
  const double common =
      OnceMs(gpu::kPlace, n_, nnz_) + gpu::kVectorRowMs * n_ * static_cast<double>(n_rhs_);
  switch (work.kind) {
    case EngineKind::kStaticSpai:
      return common + OnceMs(gpu::kSpaiOnce, n_, work.entries) +
             gpu::kLongColumnCubeMs * LongColumnCube() + gpu::kFlopMs * work.counted_flops;
    case EngineKind::kFsai:
      return common + OnceMs(gpu::kFsaiOnce, n_, work.entries / 2);
    case EngineKind::kAfsai:
      return common + OnceMs(gpu::kAfsaiOnce, n_, work.entries / 2) + gpu::kAfsaiEntryOfA * nnz_;
    default:
      return common + OnceMs(gpu::kJacobiOnce, n_, nnz_,
                             gpu::kJacobiFewRowMs * n_ + gpu::kJacobiOnce.few_entry_ms * nnz_);
  }
}

double EngineCosts::IterationMs(const EngineWork& work) const {
  if (backend_ == Backend::kCuda) return GpuIterationMs(work);
  const double passes = tuning::kPasses + (method_ == Method::kGmres ? tuning::kGmresPasses : 0);
  const double one = nnz_ + passes * n_ + work.entries;
  const double solve_threads = std::min(static_cast<double>(threads_), tuning::kSolveThreads);
  return static_cast<double>(n_rhs_) * 1e-6 * tuning::kEntryNs / solve_threads *
         (method_ == Method::kBicgstab ? 2 : 1) * one;
}

double EngineCosts::GpuIterationMs(const EngineWork& work) const {
  const bool diagonal = work.entries == 0, bicgstab = method_ == Method::kBicgstab;
  const auto n_rhs = static_cast<double>(n_rhs_);
  if (diagonal && method_ != Method::kGmres && 12 * nnz_ + 8 * n_ <= gpu::kOnChipBytes) {
    const double us = bicgstab ? gpu::kBicgstabChipUs + gpu::kBicgstabChipEntryUs * nnz_ +
                                     gpu::kBicgstabChipRowUs * n_
                               : gpu::kCgChipUs + gpu::kCgChipEntryUs * nnz_;
    return 1e-3 * n_rhs * us;
  }
  const gpu::Iteration each = IterationOf(method_, diagonal);
  const double values = (bicgstab ? 2 : 1) * gpu::kValueBytes * (nnz_ + work.entries);
  const auto block_us = [&](double rhs) {
    return each.launches_us * (1 + gpu::kBlockShare * (rhs - 1)) +
           (values + 8 * each.passes * n_ * rhs) / gpu::kBytesPerUs;
  };
  if (method_ == Method::kGmres) return 1e-3 * n_rhs * block_us(1);
  // Blocks of four, two and one.
  return 1e-3 * (static_cast<double>(n_rhs_ / 4) * block_us(4) +
                 static_cast<double>(n_rhs_ % 4 / 2) * block_us(2) +
                 static_cast<double>(n_rhs_ % 2) * block_us(1));
}

}  // namespace spaid::kernels
