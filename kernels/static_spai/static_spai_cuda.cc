#include "kernels/static_spai/static_spai_cuda.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/host_columns.h"
#include "kernels/static_spai/quality.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

SpaidCudaCsc Csc(const PatternView& a, const double* values) {
  return {a.n_cols, a.nnz(), a.col_ptr.data(), a.row_idx.data(), values};
}

int32_t StopRequested(void* context) {
  return static_cast<const Context*>(context)->stop.stop_requested() ? 1 : 0;
}

}  // namespace

class StaticSpaiCudaPlan : public std::enable_shared_from_this<StaticSpaiCudaPlan> {
 public:
  explicit StaticSpaiCudaPlan(const std::shared_ptr<CudaDevice>& on)
      : device(on),
        matrix(on, &SpaidCudaInterface::free_matrix),
        plan(on, &SpaidCudaInterface::free_plan) {}

  const std::shared_ptr<CudaDevice> device;
  CudaObject<SpaidCudaMatrix> matrix;
  CudaObject<SpaidCudaPlan> plan;  // goes before the matrix
  Pattern pattern;                 // of M
  uint64_t pattern_hash = 0;       // of A
  int64_t nnz_a = 0;
  bool by_qr = false;
  SpaidCudaPlanInfo info{};
};

class StaticSpaiCudaM {
 public:
  explicit StaticSpaiCudaM(const StaticSpaiCudaPlan& of)
      : plan(of.shared_from_this()), m(of.device, &SpaidCudaInterface::free_m) {}

  const std::shared_ptr<const StaticSpaiCudaPlan> plan;
  CudaObject<SpaidCudaM> m;
  bool compacted = false;  // has a pattern of its own; else the plan's
  int64_t nnz = 0;
};

const std::shared_ptr<CudaDevice>& DeviceOf(const StaticSpaiCudaM& m) { return m.plan->device; }

const SpaidCudaM* Object(const StaticSpaiCudaM& m) { return m.m.object; }

int64_t DeviceBytes(const StaticSpaiCudaM& m) {
  return DeviceBytes(*m.plan) + 8 * m.nnz +
         (m.compacted ? 4 * m.nnz + 8 * (m.plan->pattern.n_cols + 1) : 0);
}

int64_t DeviceBytes(const StaticSpaiCudaPlan& plan) {
  // The matrix; and of QR two orders of the groups, from the first build on.
  return plan.info.device_bytes + 12 * plan.nnz_a + 8 * (plan.pattern.n_cols + 1) +
         (plan.by_qr ? 8 * plan.info.groups : 0);
}

int64_t HostBytes(const StaticSpaiCudaPlan& plan) {
  return static_cast<int64_t>(sizeof(plan)) + 4 * plan.pattern.nnz() +
         8 * (plan.pattern.n_cols + 1);
}

namespace {

Result<std::shared_ptr<const StaticSpaiCudaPlan>> MakePlan(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, const PatternView* user_pattern,
    const StaticSpaiOptions& options, const Context& context, StaticSpaiCudaTimings& timings) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status = CheckColumns(a, context.threads); !status.ok()) return status;
  if (Status status = CheckPattern(a, user_pattern, options.pattern); !status.ok()) return status;
  auto plan = std::make_shared<StaticSpaiCudaPlan>(device);
  plan->pattern_hash = HashPattern(a, context.threads);
  plan->nnz_a = a.nnz();
  plan->by_qr = options.local_solver == LocalSolver::kQr;
  Array<int32_t> match;
  if (options.pattern.row_match) {
    auto permutation = RowPermutation(a, context);
    if (!permutation.ok()) return permutation.status();
    match = *std::move(permutation);
  }
  const PatternLimit limit =
      LimitPattern(user_pattern != nullptr ? *user_pattern : a, options.pattern);
  if (const StopReason reason = context.stop.Poll(); reason != StopReason::kNone) {
    return StopStatus(reason, "plan of static SPAI");
  }
  const SpaidCudaInterface& api = device->api();
  char message[kCudaMessageBytes] = "";
  const auto lock = device->Lock();
  auto start = Clock::now();
  // Values come with the builds; only a threshold reads them before.
  const bool reads_values =
      options.pattern.keep_tau.has_value() && user_pattern == nullptr && !a.values.empty();
  const SpaidCudaCsc csc = Csc(a, reads_values ? a.values.data() : nullptr);
  int32_t result =
      api.upload_matrix(device->context(), &csc, &plan->matrix.object, message, sizeof(message));
  timings.host_to_device_ms += MsSince(start);
  if (result == kSpaidCudaOk) {
    const SpaidCudaCsc base = user_pattern != nullptr ? Csc(*user_pattern, nullptr) : csc;
    Context caller = context;
    const SpaidCudaPatternOptions pattern{options.pattern.keep_tau.value_or(-1),
                                          options.pattern.power,
                                          options.pattern.ensure_row ? 1 : 0,
                                          options.pattern.row_match ? match.data() : nullptr,
                                          limit.nnz,
                                          &StopRequested,
                                          &caller};
    result = api.plan_static_spai(plan->matrix.object, user_pattern != nullptr ? &base : nullptr,
                                  &pattern, static_cast<int32_t>(options.local_solver),
                                  &plan->plan.object, &plan->info, message, sizeof(message));
  }
  if (result == kSpaidCudaOk) {
    start = Clock::now();
    plan->pattern.n_rows = plan->pattern.n_cols = a.n_cols;
    plan->pattern.col_ptr.resize(static_cast<size_t>(a.n_cols) + 1);
    plan->pattern.row_idx.resize(static_cast<size_t>(plan->info.nnz_m));
    result = api.download_pattern(plan->plan.object, plan->pattern.col_ptr.data(),
                                  plan->pattern.row_idx.data(), message, sizeof(message));
    timings.device_to_host_ms += MsSince(start);
  }
  if (result != kSpaidCudaOk) {
    plan->matrix.locked = plan->plan.locked = true;  // freed here and now
    if (result == kSpaidCudaStopped) {
      return StopStatus(context.stop.Poll(), "the pattern of the preconditioner");
    }
    if (result == kSpaidCudaPatternTooLarge) return PatternTooLarge(plan->info.nnz_m, limit);
    return device->Failed(result, message);
  }
  timings.device_plan_ms += plan->info.ms;
  timings.tables_in_waves = plan->info.in_waves != 0;
  timings.device_pattern_ms += plan->info.pattern_ms;
  timings.device_bytes = std::max(timings.device_bytes, plan->info.peak_bytes);
  return std::shared_ptr<const StaticSpaiCudaPlan>(std::move(plan));
}

// What the device's waves tell, and are told.
struct Progress {
  const Context& context;
  int64_t n;

  static int32_t Report(void* caller, int64_t done, int64_t total) {
    const auto& own = *static_cast<const Progress*>(caller);
    if (own.context.progress != nullptr && total > 0) {
      const double share = static_cast<double>(done) / static_cast<double>(total);
      own.context.progress->OnProgress(
          Stage::kBuild, static_cast<int64_t>(share * static_cast<double>(own.n)), own.n);
    }
    return own.context.stop.stop_requested() ? 1 : 0;
  }
};

// Fills values, norms, pivots and flags of `result`; its pattern too, where that is no longer the
// plan's. Returns the device's M.
Result<std::unique_ptr<StaticSpaiCudaM>> RunOnDevice(
    const StaticSpaiCudaPlan& plan, const CscView& a, const StaticSpaiOptions& options,
    const Context& context, StaticSpaiCudaTimings& timings, StaticSpaiResult& result,
    Array<uint8_t>& flags) {
  CudaDevice& device = *plan.device;
  const SpaidCudaInterface& api = device.api();
  char message[kCudaMessageBytes] = "";
  Progress progress{context, a.n_cols};
  const SpaidCudaBuildOptions build_options{options.gram_pivot_limit,
                                            options.post_filter,
                                            static_cast<int32_t>(options.local_solver),
                                            static_cast<int32_t>(options.thread_strategy),
                                            &Progress::Report,
                                            &progress};
  SpaidCudaBuildInfo info{};
  const auto lock = device.Lock();
  auto kept = std::make_unique<StaticSpaiCudaM>(plan);
  CudaObject<SpaidCudaM>& m = kept->m;
  m.locked = true;
  auto start = Clock::now();
  int32_t done = api.upload_values(plan.matrix.object, a.values.data(), message, sizeof(message));
  timings.host_to_device_ms += MsSince(start);
  if (done == kSpaidCudaOk) {
    done = api.build_static_spai(plan.plan.object, plan.matrix.object, &build_options, &m.object,
                                 &info, message, sizeof(message));
  }
  if (done == kSpaidCudaStopped) return StopStatus(context.stop.Poll(), "build of static SPAI");
  if (done == kSpaidCudaOk) {
    timings.device_build_ms += info.ms;
    timings.tables_in_waves = plan.info.in_waves != 0;
    timings.rescued_groups = info.rescued_groups;
    timings.thread_strategy = static_cast<ThreadStrategy>(info.thread_strategy);
    timings.qr_ms = info.qr_ms;
    timings.predicted_qr_ms = info.predicted_qr_ms;
    timings.device_bytes = std::max(timings.device_bytes, info.peak_bytes);
    start = Clock::now();
    kept->compacted = info.compacted != 0;
    kept->nnz = info.nnz_m;
    if (kept->compacted) {
      result.m.row_idx.resize(static_cast<size_t>(info.nnz_m));
      result.m.values.resize(static_cast<size_t>(info.nnz_m));
      done = api.download_m_pattern(m.object, result.m.col_ptr.data(), result.m.row_idx.data(),
                                    message, sizeof(message));
    }
  }
  if (done == kSpaidCudaOk) {
    done = api.download_m(m.object, result.m.values.data(), result.residual_norms.data(),
                          result.min_scaled_pivots.data(), flags.data(), message, sizeof(message));
    timings.device_to_host_ms += MsSince(start);
  }
  if (done != kSpaidCudaOk) return device.Failed(done, message);
  api.trim_m(m.object);
  m.locked = false;
  return kept;
}

Result<StaticSpaiResult> BuildM(const StaticSpaiCudaPlan& plan, const CscView& a,
                                const StaticSpaiOptions& options, const Context& context,
                                StaticSpaiCudaTimings& timings,
                                std::shared_ptr<const StaticSpaiCudaM>* kept) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status =
          CheckPlanPattern(a, plan.pattern.n_cols, plan.nnz_a, plan.pattern_hash, context.threads);
      !status.ok()) {
    return status;
  }
  const auto n = static_cast<size_t>(a.n_cols);
  StaticSpaiResult result;
  result.m.n_rows = result.m.n_cols = a.n_cols;
  result.m.col_ptr.resize(plan.pattern.col_ptr.size());
  result.m.row_idx.resize(plan.pattern.row_idx.size());
  result.m.values.resize(plan.pattern.row_idx.size());
  ParallelCopy(plan.pattern.col_ptr, result.m.col_ptr, context.threads);
  ParallelCopy(plan.pattern.row_idx, result.m.row_idx, context.threads);
  result.residual_norms.resize(n);
  result.min_scaled_pivots.resize(n);
  Array<uint8_t> flags;
  flags.assign(n, 0);
  auto m = RunOnDevice(plan, a, options, context, timings, result, flags);
  if (!m.ok()) return m.status();
  const auto start = Clock::now();
  timings.host_columns = std::count(flags.begin(), flags.end(), 0);
  if (timings.host_columns > 0) {
    if (const StopReason stopped = SolveLeftColumns(a, options, context, result, flags);
        stopped != StopReason::kNone) {
      return StopStatus(stopped, "build of static SPAI");
    }
  }
  timings.host_solve_ms += MsSince(start);
  const bool filter = options.post_filter > 0 && !(*m)->compacted;
  if (kept != nullptr && timings.host_columns == 0 && !filter) *kept = *std::move(m);
  if (filter) {
    auto filtered =
        PostFilter(result.m, options.post_filter,
                   Context{.stop = {}, .progress = nullptr, .threads = context.threads});
    if (!filtered.ok()) return filtered.status();
    result.m = std::move(filtered).value();
  }
  Summarise(flags, a.nnz(), context.threads, result);
  result.quality.thread_strategy = timings.thread_strategy;
  return result;
}

}  // namespace

Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, const PatternView* user_pattern,
    const StaticSpaiOptions& options, const Context& context, StaticSpaiCudaTimings* timings) {
  StaticSpaiCudaTimings own;
  return GuardMemory("plan of static SPAI", [&] {
    return MakePlan(device, a, user_pattern, options, context, timings != nullptr ? *timings : own);
  });
}

Result<StaticSpaiResult> BuildStaticSpaiCuda(const StaticSpaiCudaPlan& plan, const CscView& a,
                                             const StaticSpaiOptions& options,
                                             const Context& context, StaticSpaiCudaTimings* timings,
                                             std::shared_ptr<const StaticSpaiCudaM>* kept) {
  StaticSpaiCudaTimings own;
  return GuardMemory("build of static SPAI", [&] {
    return BuildM(plan, a, options, context, timings != nullptr ? *timings : own, kept);
  });
}

Result<CscMatrix> Download(const StaticSpaiCudaM& m) {
  return GuardMemory("download of static SPAI", [&]() -> Result<CscMatrix> {
    CscMatrix out;
    const Pattern& pattern = m.plan->pattern;
    out.n_rows = out.n_cols = pattern.n_cols;
    out.values.resize(static_cast<size_t>(m.nnz));
    CudaDevice& device = *m.plan->device;
    char message[kCudaMessageBytes] = "";
    const auto lock = device.Lock();
    int32_t done = device.api().download_m(m.m.object, out.values.data(), nullptr, nullptr, nullptr,
                                           message, sizeof(message));
    if (!m.compacted) {
      out.col_ptr = pattern.col_ptr;
      out.row_idx = pattern.row_idx;
    } else if (done == kSpaidCudaOk) {
      out.col_ptr.resize(static_cast<size_t>(pattern.n_cols) + 1);
      out.row_idx.resize(static_cast<size_t>(m.nnz));
      done = device.api().download_m_pattern(m.m.object, out.col_ptr.data(), out.row_idx.data(),
                                             message, sizeof(message));
    }
    if (done != kSpaidCudaOk) return device.Failed(done, message);
    return out;
  });
}

}  // namespace spaid::kernels
