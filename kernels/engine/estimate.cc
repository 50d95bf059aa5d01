#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/engine/auto_tuning.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/engine/jacobi.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

int64_t CscBytes(int64_t n, int64_t nnz) {
  return (n + 1) * static_cast<int64_t>(sizeof(int64_t)) +
         nnz * static_cast<int64_t>(sizeof(int32_t) + sizeof(double));
}

// The counters of the transpose that makes the rows of M, at the most (transpose.h).
int64_t RowScratchBytes(int64_t n, int64_t nnz) {
  const auto counter = static_cast<int64_t>(nnz <= INT32_MAX ? sizeof(int32_t) : sizeof(int64_t));
  return counter * std::max(n, nnz);
}

double StreamMs(double bytes, int threads) {
  const double rate = std::min(kCpuRates.bytes_per_s * threads, kCpuRates.shared_bytes_per_s);
  return 1e3 * bytes / rate;
}

BuildEstimate EstimateBlockJacobi(const PatternView& a, int block_size, int threads) {
  const int64_t n = a.n_cols, b = block_size;
  BuildEstimate e;
  e.nnz_m = BlockJacobiEntries(n, block_size);
  e.download_bytes = CscBytes(n, e.nnz_m);
  // M by columns and by rows, with the list of row blocks; the residual norms twice, and the
  // condition numbers.
  e.host_bytes = static_cast<int64_t>(sizeof(EnginePlan) + sizeof(HostPreconditioner)) +
                 2 * CscBytes(n, e.nnz_m) + (n + 2) * static_cast<int64_t>(sizeof(int64_t)) +
                 RowScratchBytes(n, e.nnz_m) +
                 (2 * n + (n + b - 1) / b) * static_cast<int64_t>(sizeof(double));
  // Inverses, and A times them.
  e.flops = 2.0 * static_cast<double>(b) *
            (static_cast<double>(b) * static_cast<double>(n) + static_cast<double>(a.nnz()));
  e.predicted_ms = StreamMs(static_cast<double>(CscBytes(n, a.nnz()) + e.host_bytes), threads) +
                   1e3 * e.flops / (kCpuRates.block_flops_per_s * threads);
  for (int64_t first = 0; first < n; first += b) {
    const int64_t entries = a.col_ptr[std::min(first + b, n)] - a.col_ptr[first];
    e.n1_max = std::max(e.n1_max, std::min(entries, n));
  }
  e.n2_max = std::min(b, n);
  return e;
}

BuildEstimate EstimateJacobi(const PatternView& a, int threads) {
  const int64_t n = a.n_cols;
  BuildEstimate e;
  e.nnz_m = n;
  e.download_bytes = CscBytes(n, n);
  // M, and the residual norms twice: as they come and sorted.
  e.host_bytes = static_cast<int64_t>(sizeof(EnginePlan) + sizeof(HostPreconditioner)) +
                 CscBytes(n, n) + 2 * n * static_cast<int64_t>(sizeof(double));
  e.flops = 4.0 * static_cast<double>(a.nnz());
  e.predicted_ms = StreamMs(static_cast<double>(CscBytes(n, a.nnz()) + e.host_bytes), threads);
  e.n1_max = 0;
  for (int64_t j = 0; j < n; ++j) {
    e.n1_max = std::max(e.n1_max, a.col_ptr[j + 1] - a.col_ptr[j]);
  }
  e.n2_max = 1;
  return e;
}

Result<BuildEstimate> EstimateSpai(const StaticSpaiOptions& options, const PatternView& a,
                                   const PatternView* user_pattern, const Context& context) {
  auto counts = EstimateStaticSpai(a, user_pattern, options, context);
  if (!counts.ok()) return counts.status();
  const int threads = ResolveThreads(context.threads);
  BuildEstimate e;
  e.nnz_m = counts->nnz_m;
  e.n1_max = counts->n1_max;
  e.n2_max = counts->n2_max;
  e.download_bytes = CscBytes(a.n_cols, e.nnz_m);
  // The row layout of M and its list of row blocks (at most one a row) come on top of the build.
  e.host_bytes = static_cast<int64_t>(sizeof(EnginePlan) + sizeof(HostPreconditioner)) +
                 counts->plan_bytes + counts->build_bytes + CscBytes(a.n_cols, e.nnz_m) +
                 2 * (a.n_cols + 2) * static_cast<int64_t>(sizeof(int64_t)) +
                 RowScratchBytes(a.n_cols, e.nnz_m);
  e.device_bytes = counts->device_bytes;
  e.device_bytes_min = counts->device_bytes_min;
  e.flops = options.local_solver == LocalSolver::kQr ? counts->qr_flops
            : options.local_solver == LocalSolver::kGram
                ? counts->gram_flops
                : std::min(counts->gram_flops, counts->qr_flops);
  e.predicted_ms = 1e-6 * counts->predicted_ns / threads +
                   StreamMs(4.0 * static_cast<double>(e.download_bytes), threads);
  return e;
}

Result<BuildEstimate> EstimateFactored(const PreconditionerSpec& spec, const PatternView& a,
                                       const PatternView* user_pattern, const Context& context) {
  const FsaiOptions options = FsaiOptionsOf(spec);
  Result<Pattern> by_rows = Pattern();
  PatternView view;
  if (user_pattern != nullptr) {
    by_rows = Transpose(*user_pattern, context);
    if (!by_rows.ok()) return by_rows.status();
    view = *by_rows;
  }
  const auto counts = EstimateFsai(a, user_pattern != nullptr ? &view : nullptr, options, context);
  if (!counts.ok()) return counts.status();
  const int64_t n = a.n_cols, nnz = counts->nnz_g;
  const auto pointers = static_cast<int64_t>((n + 2) * sizeof(int64_t));
  const auto indices = static_cast<int64_t>(sizeof(int32_t));
  const int threads = ResolveThreads(context.threads);
  BuildEstimate e;
  e.nnz_m = nnz;
  e.download_bytes = CscBytes(n, nnz);
  // Beside the build: its plan, and the one that it leaves; the user's pattern by rows; G by
  // columns, with the lists of row blocks of both; a vector between them.
  e.host_bytes = static_cast<int64_t>(2 * (sizeof(EnginePlan) + sizeof(FsaiPlan)) +
                                      sizeof(HostPreconditioner)) +
                 counts->host_bytes + 2 * (pointers + indices * nnz) +
                 (user_pattern != nullptr ? pointers + indices * view.nnz() : 0) +
                 e.download_bytes + 3 * pointers + RowScratchBytes(n, nnz);
  e.flops = counts->flops;
  e.device_bytes = counts->device_bytes;
  e.device_bytes_min = counts->device_bytes_min;
  e.predicted_device_ms = 1e-6 * counts->predicted_device_ns;
  e.predicted_ms = 1e-6 * counts->predicted_ns / threads +
                   StreamMs(4.0 * static_cast<double>(e.download_bytes), threads);
  return e;
}

Result<BuildEstimate> EstimateGrown(const DynamicSpaiOptions& options, const CscView& a,
                                    const PatternView* user_pattern, const Context& context) {
  const auto counts = EstimateDynamicSpai(a, user_pattern, options, context);
  if (!counts.ok()) return counts.status();
  const int64_t n = a.n_cols, nnz = counts->nnz_m;
  const int threads = ResolveThreads(context.threads);
  BuildEstimate e;
  e.nnz_m = nnz;
  e.download_bytes = CscBytes(n, nnz);
  // Beside the build: its plan, with a pattern to begin with, and the one that it leaves; the row
  // layout of M and its list of row blocks.
  e.host_bytes = static_cast<int64_t>(2 * (sizeof(EnginePlan) + sizeof(DynamicSpaiPlan)) +
                                      sizeof(HostPreconditioner)) +
                 counts->host_bytes + e.download_bytes +
                 2 * (n + 2) * static_cast<int64_t>(sizeof(int64_t)) + RowScratchBytes(n, nnz) +
                 (user_pattern != nullptr ? CscBytes(n, user_pattern->nnz()) : 0);
  e.flops = counts->flops;
  e.device_bytes = counts->device_bytes;
  e.device_bytes_min = counts->device_bytes_min;
  e.predicted_device_ms = 1e-6 * counts->predicted_device_ns;
  e.predicted_ms =
      1e-6 * counts->predicted_ns * (kDynamicSerialShare + (1 - kDynamicSerialShare) / threads) +
      StreamMs(4.0 * (12 * counts->expected_nnz + 8 * static_cast<double>(n)), threads);
  return e;
}

BuildEstimate Larger(const BuildEstimate& x, const BuildEstimate& y) {
  BuildEstimate e;
  e.host_bytes = std::max(x.host_bytes, y.host_bytes);
  e.device_bytes = std::max(x.device_bytes, y.device_bytes);
  e.device_bytes_min = std::max(x.device_bytes_min, y.device_bytes_min);
  e.nnz_m = std::max(x.nnz_m, y.nnz_m);
  e.download_bytes = std::max(x.download_bytes, y.download_bytes);
  e.predicted_ms = std::max(x.predicted_ms, y.predicted_ms);
  e.flops = std::max(x.flops, y.flops);
  e.n1_max = std::max(x.n1_max, y.n1_max);
  e.n2_max = std::max(x.n2_max, y.n2_max);
  return e;
}

// AUTO looks at values, of which an estimate knows nothing: the largest of what it can choose.
Result<BuildEstimate> EstimateAuto(const PreconditionerSpec& spec, const PatternView& a,
                                   const PatternView* user_pattern, const Context& context) {
  if (FirstEmptyColumn(a) >= 0) return BuildEstimate{};  // AUTO is NONE there
  StaticSpaiOptions ensure_row = spec.static_spai;
  ensure_row.pattern.ensure_row = true;
  BuildEstimate bound = EstimateJacobi(a, ResolveThreads(context.threads));
  PreconditionerSpec fixed, light, full;
  fixed.engine = EngineKind::kFsai;
  light.engine = full.engine = EngineKind::kAfsai;
  light.fsai.k_max = auto_tuning::kAfsaiSteps;
  light.fsai.s = auto_tuning::kAfsaiPerStep;
  full.fsai.k_max = auto_tuning::gpu::kAfsaiSteps;
  full.fsai.s = auto_tuning::gpu::kAfsaiPerStep;
  std::vector<PreconditionerSpec> factors = {fixed, light};
  if (spec.backend == Backend::kCuda) factors.push_back(full);
  for (const PreconditionerSpec& factored : factors) {
    auto estimate = EstimateFactored(factored, a, nullptr, context);
    if (!estimate.ok()) return estimate.status();
    bound = Larger(bound, *estimate);
  }
  for (const StaticSpaiOptions& options : {spec.static_spai, ensure_row}) {
    auto estimate = EstimateSpai(options, a, user_pattern, context);
    if (!estimate.ok()) return estimate.status();
    bound = Larger(bound, *estimate);
  }
  return bound;
}

}  // namespace

Result<BuildEstimate> EstimateBuild(const PreconditionerSpec& spec, const CscView& a,
                                    const PatternView* user_pattern, const Context& context) {
  switch (spec.engine) {
    case EngineKind::kNone:
      return BuildEstimate{};
    case EngineKind::kJacobi:
      return spec.block_size == 1
                 ? EstimateJacobi(a, ResolveThreads(context.threads))
                 : EstimateBlockJacobi(a, spec.block_size, ResolveThreads(context.threads));
    case EngineKind::kStaticSpai:
      return EstimateSpai(spec.static_spai, a, user_pattern, context);
    case EngineKind::kFsai:
    case EngineKind::kAfsai:
      return EstimateFactored(spec, a, user_pattern, context);
    case EngineKind::kDynamicSpai:
      return EstimateGrown(spec.dynamic_spai, a, user_pattern, context);
    case EngineKind::kAuto:
      break;
  }
  return EstimateAuto(spec, a, user_pattern, context);
}

}  // namespace spaid::kernels
