#include "kernels/static_spai/static_spai_cuda.h"

#include <algorithm>
#include <functional>
#include <latch>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/parallel.h"
#include "kernels/base/split.h"
#include "kernels/sparse/csc_cuda.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/host_columns.h"
#include "kernels/static_spai/quality.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

int32_t StopRequested(void* context) {
  return static_cast<const Context*>(context)->stop.stop_requested() ? 1 : 0;
}

// A device's part in a plan.
struct DevicePart {
  DevicePart(const std::shared_ptr<CudaDevice>& on, IndexRange range)
      : device(on),
        columns(range),
        matrix(on, &SpaidCudaInterface::free_matrix),
        plan(on, &SpaidCudaInterface::free_plan) {}

  const std::shared_ptr<CudaDevice> device;
  const IndexRange columns;
  CudaObject<SpaidCudaMatrix> matrix;
  CudaObject<SpaidCudaPlan> plan;  // goes before the matrix
  SpaidCudaPlanInfo info{};
};

// Adds the longest of the times that parts took at the same time.
void Add(const std::vector<StaticSpaiCudaTimings>& parts, StaticSpaiCudaTimings& to) {
  const auto longest = [&](double StaticSpaiCudaTimings::*phase) {
    double most = 0;
    for (const StaticSpaiCudaTimings& part : parts) most = std::max(most, part.*phase);
    to.*phase += most;
  };
  longest(&StaticSpaiCudaTimings::host_to_device_ms);
  longest(&StaticSpaiCudaTimings::device_plan_ms);
  longest(&StaticSpaiCudaTimings::device_pattern_ms);
  longest(&StaticSpaiCudaTimings::device_build_ms);
  longest(&StaticSpaiCudaTimings::device_to_host_ms);
  to.tables_in_waves = false;
  to.rescued_groups = 0;
  to.qr_ms = to.predicted_qr_ms = 0;
  for (const StaticSpaiCudaTimings& part : parts) {
    to.tables_in_waves = to.tables_in_waves || part.tables_in_waves;
    to.device_bytes = std::max(to.device_bytes, part.device_bytes);
    to.rescued_groups += part.rescued_groups;
    to.qr_ms = std::max(to.qr_ms, part.qr_ms);
    to.predicted_qr_ms = std::max(to.predicted_qr_ms, part.predicted_qr_ms);
  }
  to.thread_strategy = parts.front().thread_strategy;
}

}  // namespace

void SpaiOnDevice::FreeLocked() {
  const SpaidCudaInterface& api = device->api();
  if (pattern.object != nullptr) api.free_pattern(std::exchange(pattern.object, nullptr));
  if (matrix.object != nullptr) api.free_matrix(std::exchange(matrix.object, nullptr));
}

class StaticSpaiCudaPlan : public std::enable_shared_from_this<StaticSpaiCudaPlan> {
 public:
  // One a device, ascending.
  std::vector<std::unique_ptr<DevicePart>> parts;
  bool of_a = false;  // M has the pattern of A, and there is no other copy of it
  Pattern pattern;    // M's; sizes alone where it is A's
  int64_t nnz_m = 0;
  uint64_t pattern_hash = 0;  // A's
  int64_t nnz_a = 0;
  bool by_qr = false;
};

// M on the device of a plan of one part.
class StaticSpaiCudaM {
 public:
  explicit StaticSpaiCudaM(const StaticSpaiCudaPlan& of)
      : plan(of.shared_from_this()),
        device(of.parts.front()->device),
        m(device, &SpaidCudaInterface::free_m) {}

  const std::shared_ptr<const StaticSpaiCudaPlan> plan;
  const std::shared_ptr<CudaDevice> device;
  CudaObject<SpaidCudaM> m;
  bool compacted = false;  // has a pattern of its own; else the plan's
  int64_t nnz = 0;
};

const std::shared_ptr<CudaDevice>& DeviceOf(const StaticSpaiCudaM& m) { return m.device; }

const SpaidCudaM* Object(const StaticSpaiCudaM& m) { return m.m.object; }

int64_t DeviceBytes(const StaticSpaiCudaM& m) {
  return DeviceBytes(*m.plan) + 8 * m.nnz +
         (m.compacted ? 4 * m.nnz + 8 * (m.plan->pattern.n_cols + 1) : 0);
}

int64_t DeviceBytes(const StaticSpaiCudaPlan& plan) {
  int64_t most = 0;
  for (const auto& part : plan.parts) {
    // With QR also two orders of the groups, from the first build on.
    most = std::max(most, part->info.device_bytes + (plan.by_qr ? 8 * part->info.groups : 0));
  }
  return most + 12 * plan.nnz_a + 8 * (plan.pattern.n_cols + 1);  // and the matrix
}

int64_t HostBytes(const StaticSpaiCudaPlan& plan) {
  return static_cast<int64_t>(sizeof(plan)) +
         static_cast<int64_t>(4 * plan.pattern.row_idx.size() + 8 * plan.pattern.col_ptr.size());
}

namespace {

// The request to each device.
struct PlanRequest {
  const CscView& a;
  const PatternView* user_pattern;
  const StaticSpaiOptions& options;
  const Context& context;
  PatternLimit limit;
  const int32_t* match;
  SpaiOnDevice* there;  // null, or on the only device
};

// Runs what the host has to do beside the devices, on half of the threads: others copy to and from
// the devices, and launches wait where their thread has to share a core. Before them where there is
// so little that a thread would take longer.
Status BesideDevices(size_t parts, int64_t nnz, int threads,
                     const std::function<Status(int threads)>& host,
                     const std::function<Status(size_t i)>& part) {
  constexpr int64_t kWorthThread = 1 << 18;
  if (nnz >= kWorthThread) {
    const int half = std::max(1, ResolveThreads(threads) / 2);
    return AtOnce(parts + 1, [&](size_t i) { return i == 0 ? host(half) : part(i - 1); });
  }
  if (Status status = host(threads); !status.ok()) return status;
  return AtOnce(parts, part);
}

// Plans a device's part, and fetches its columns of the pattern, for which the first one allocates.
Status PlanPart(const PlanRequest& request, DevicePart& part, StaticSpaiCudaPlan& plan,
                std::once_flag& room, StaticSpaiCudaTimings& timings) {
  const CscView& a = request.a;
  const StaticSpaiOptions& options = request.options;
  CudaDevice& device = *part.device;
  const SpaidCudaInterface& api = device.api();
  char message[kCudaMessageBytes] = "";
  const auto lock = device.Lock();
  auto start = Clock::now();
  // Values come with the builds; only a threshold reads them before.
  const bool reads_values =
      options.pattern.keep_tau.has_value() && request.user_pattern == nullptr && !a.values.empty();
  const SpaidCudaCsc csc = CudaCsc(a, reads_values ? a.values.data() : nullptr);
  const bool there = request.there != nullptr;
  int32_t result = kSpaidCudaOk;
  if (there) {
    std::swap(part.matrix.object, request.there->matrix.object);
  } else {
    result =
        api.upload_matrix(device.context(), &csc, &part.matrix.object, message, sizeof(message));
  }
  timings.host_to_device_ms += MsSince(start);
  if (result == kSpaidCudaOk) {
    const SpaidCudaCsc base =
        request.user_pattern != nullptr ? CudaCsc(*request.user_pattern) : csc;
    Context caller = request.context;
    const SpaidCudaPatternOptions pattern{options.pattern.keep_tau.value_or(-1),
                                          options.pattern.power,
                                          options.pattern.ensure_row ? 1 : 0,
                                          request.match,
                                          request.limit.nnz,
                                          &StopRequested,
                                          &caller};
    const SpaidCudaRange columns{part.columns.begin, part.columns.end};
    result = api.plan_static_spai(
        part.matrix.object, request.user_pattern != nullptr ? &base : nullptr,
        there ? request.there->pattern.object : nullptr, &pattern,
        static_cast<int32_t>(options.local_solver), plan.parts.size() > 1 ? &columns : nullptr,
        &part.plan.object, &part.info, message, sizeof(message));
    if (there) request.there->FreeLocked();
  }
  if (result == kSpaidCudaOk && part.info.of_a == 0) {
    start = Clock::now();
    std::call_once(room, [&] {
      plan.pattern.col_ptr.resize(static_cast<size_t>(a.n_cols) + 1);
      plan.pattern.row_idx.resize(static_cast<size_t>(part.info.nnz_m));
    });
    result = api.download_pattern(
        part.plan.object, plan.pattern.col_ptr.data() + part.columns.begin,
        plan.pattern.row_idx.data() + part.info.first_entry, message, sizeof(message));
    timings.device_to_host_ms += MsSince(start);
  }
  if (result != kSpaidCudaOk) {
    // The matrix after what was made of it; both here and now.
    if (part.plan.object != nullptr) api.free_plan(std::exchange(part.plan.object, nullptr));
    if (part.matrix.object != nullptr) {
      api.free_matrix(std::exchange(part.matrix.object, nullptr));
    }
    if (result == kSpaidCudaStopped) {
      return StopStatus(request.context.stop.Poll(), "the pattern of the preconditioner");
    }
    if (result == kSpaidCudaPatternTooLarge) {
      return PatternTooLarge(part.info.nnz_m, request.limit);
    }
    return device.Failed(result, message);
  }
  timings.device_plan_ms += part.info.ms;
  timings.tables_in_waves = part.info.in_waves != 0;
  timings.device_pattern_ms += part.info.pattern_ms;
  timings.device_bytes = std::max(timings.device_bytes, part.info.peak_bytes);
  return {};
}

Result<std::shared_ptr<const StaticSpaiCudaPlan>> MakePlan(
    std::span<const std::shared_ptr<CudaDevice>> devices, const CscView& a,
    const PatternView* user_pattern, const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings& timings, SpaiOnDevice* there) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status = CheckColumns(a, context.threads); !status.ok()) return status;
  if (Status status = CheckPattern(a, user_pattern, options.pattern); !status.ok()) return status;
  auto plan = std::make_shared<StaticSpaiCudaPlan>();
  plan->pattern.n_rows = plan->pattern.n_cols = a.n_cols;
  plan->nnz_a = a.nnz();
  plan->by_qr = options.local_solver == LocalSolver::kQr;
  Array<int32_t> match;
  if (options.pattern.row_match) {
    auto permutation = RowPermutation(a, context);
    if (!permutation.ok()) return permutation.status();
    match = *std::move(permutation);
  }
  const PatternView base = user_pattern != nullptr ? *user_pattern : a;
  const PlanRequest request{a,
                            user_pattern,
                            options,
                            context,
                            LimitPattern(base, options.pattern),
                            options.pattern.row_match ? match.data() : nullptr,
                            there};
  if (const StopReason reason = context.stop.Poll(); reason != StopReason::kNone) {
    return StopStatus(reason, "plan of static SPAI");
  }
  const double mean =
      static_cast<double>(a.nnz()) / static_cast<double>(std::max<int64_t>(1, a.n_cols));
  const std::vector<IndexRange> ranges = CutByColumns(devices.size(), base.col_ptr.data(), a.n_cols,
                                                      options.pattern.power, mean, context.threads);
  for (size_t i = 0; i < ranges.size(); ++i) {
    plan->parts.push_back(std::make_unique<DevicePart>(devices[i], ranges[i]));
  }
  std::once_flag room;
  std::vector<StaticSpaiCudaTimings> own(ranges.size());
  const Status status = BesideDevices(
      ranges.size(), a.nnz(), context.threads,
      [&](int threads) {
        plan->pattern_hash = HashPattern(a, threads);
        return Status();
      },
      [&](size_t i) { return PlanPart(request, *plan->parts[i], *plan, room, own[i]); });
  if (!status.ok()) return status;
  Add(own, timings);
  plan->of_a = plan->parts.front()->info.of_a != 0;
  plan->nnz_m = plan->parts.front()->info.nnz_m;
  return std::shared_ptr<const StaticSpaiCudaPlan>(std::move(plan));
}

// Progress of a device's waves, and whether to stop.
struct Progress {
  const Context& context;
  SharedProgress& shared;
  const size_t part;
  const int64_t columns;

  static int32_t Report(void* caller, int64_t done, int64_t total) {
    const auto& own = *static_cast<const Progress*>(caller);
    if (total > 0) {
      const double share = static_cast<double>(done) / static_cast<double>(total);
      own.shared.Report(own.part, static_cast<int64_t>(share * static_cast<double>(own.columns)));
    }
    return own.context.stop.stop_requested() ? 1 : 0;
  }
};

// The inputs and outputs of all parts of a build; each fills the values, norms, pivots and flags of
// its columns.
struct BuildRequest {
  const StaticSpaiCudaPlan& plan;
  const CscView& a;
  const StaticSpaiOptions& options;
  const Context& context;
  SharedProgress& progress;
  StaticSpaiResult& result;
  Array<uint8_t>& flags;
  std::latch& pattern_there;  // result.m has its pattern; nobody else touches it before
};

// Shows the part's columns that are finished: all but those that were left to the host.
void ShowPart(const IndexRange& columns, const Array<uint8_t>& flags, ShownResult& shown) {
  if (!shown.showing()) return;
  const auto begin = flags.begin() + columns.begin, end = flags.begin() + columns.end;
  for (auto at = begin; at != end;) {
    const auto left = std::find(at, end, 0);
    shown.Finished(at - flags.begin(), left - flags.begin());
    at = std::find_if(left, end, [](uint8_t flag) { return flag != 0; });
  }
}

// `m`: receives M; `compacted`, `nnz`: as in SpaidCudaBuildInfo. Where it is compacted, which a
// plan of several parts never is, the pattern of the result is filled, too.
Status BuildPart(const BuildRequest& request, size_t i, CudaObject<SpaidCudaM>& m, bool& compacted,
                 int64_t& nnz, StaticSpaiCudaTimings& timings) {
  const DevicePart& part = *request.plan.parts[i];
  const CscView& a = request.a;
  const StaticSpaiOptions& options = request.options;
  StaticSpaiResult& result = request.result;
  CudaDevice& device = *part.device;
  const SpaidCudaInterface& api = device.api();
  char message[kCudaMessageBytes] = "";
  Progress progress{request.context, request.progress, i, part.columns.size()};
  const SpaidCudaBuildOptions build_options{options.gram_pivot_limit,
                                            options.post_filter,
                                            static_cast<int32_t>(options.local_solver),
                                            static_cast<int32_t>(options.thread_strategy),
                                            &Progress::Report,
                                            &progress};
  SpaidCudaBuildInfo info{};
  const auto lock = device.Lock();
  auto start = Clock::now();
  int32_t done = api.upload_values(part.matrix.object, a.values.data(), message, sizeof(message));
  timings.host_to_device_ms += MsSince(start);
  if (done == kSpaidCudaOk) {
    done = api.build_static_spai(part.plan.object, part.matrix.object, &build_options, &m.object,
                                 &info, message, sizeof(message));
  }
  if (done == kSpaidCudaStopped) {
    return StopStatus(request.context.stop.Poll(), "build of static SPAI");
  }
  request.pattern_there.wait();
  if (done == kSpaidCudaOk) {
    timings.device_build_ms += info.ms;
    timings.tables_in_waves = part.info.in_waves != 0;
    timings.rescued_groups = info.rescued_groups;
    timings.thread_strategy = static_cast<ThreadStrategy>(info.thread_strategy);
    timings.qr_ms = info.qr_ms;
    timings.predicted_qr_ms = info.predicted_qr_ms;
    timings.device_bytes = std::max(timings.device_bytes, info.peak_bytes);
    start = Clock::now();
    compacted = info.compacted != 0;
    nnz = info.nnz_m;
    if (compacted) {
      result.m.row_idx.resize(static_cast<size_t>(info.nnz_m));
      result.m.values.resize(static_cast<size_t>(info.nnz_m));
      done = api.download_m_pattern(m.object, result.m.col_ptr.data(), result.m.row_idx.data(),
                                    message, sizeof(message));
    }
  }
  if (done == kSpaidCudaOk) {
    const int64_t first = part.columns.begin;
    done = api.download_m(m.object, result.m.values.data() + part.info.first_entry,
                          result.residual_norms.data() + first,
                          result.min_scaled_pivots.data() + first, request.flags.data() + first,
                          message, sizeof(message));
    timings.device_to_host_ms += MsSince(start);
  }
  if (done == kSpaidCudaOk) {
    api.trim_m(m.object);
    ShowPart(part.columns, request.flags, result.shown);
    return {};
  }
  if (m.object != nullptr) api.free_m(std::exchange(m.object, nullptr));
  return device.Failed(done, message);
}

Result<StaticSpaiResult> BuildM(const StaticSpaiCudaPlan& plan, const CscView& a,
                                const StaticSpaiOptions& options, const Context& context,
                                StaticSpaiCudaTimings& timings,
                                std::shared_ptr<const StaticSpaiCudaM>* kept) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  // All that the devices rely on; they begin before the whole pattern has been looked at.
  if (a.n_cols != plan.pattern.n_cols || a.nnz() != plan.nnz_a) {
    return CheckPlanPattern(a, plan.pattern.n_cols, plan.nnz_a, plan.pattern_hash, 1);
  }
  const auto n = static_cast<size_t>(a.n_cols);
  StaticSpaiResult result;
  result.m.n_rows = result.m.n_cols = a.n_cols;
  result.m.col_ptr.resize(n + 1);
  result.m.row_idx.resize(static_cast<size_t>(plan.nnz_m));
  result.m.values.resize(static_cast<size_t>(plan.nnz_m));
  result.residual_norms.resize(n);
  result.min_scaled_pivots.resize(n);
  Array<uint8_t> flags;
  flags.assign(n, 0);
  std::latch pattern_there(1);
  const auto lay_out = [&](int threads) -> Status {
    // Whatever comes of it: the devices wait for it.
    const struct Opens {
      std::latch& latch;
      ~Opens() { latch.count_down(); }
    } opens{pattern_there};
    if (Status status =
            CheckPlanPattern(a, plan.pattern.n_cols, plan.nnz_a, plan.pattern_hash, threads);
        !status.ok()) {
      return status;
    }
    const PatternView pattern = plan.of_a ? PatternView(a) : PatternView(plan.pattern);
    ParallelCopy(pattern.col_ptr, result.m.col_ptr, threads);
    ParallelCopy(pattern.row_idx, result.m.row_idx, threads);
    // A filtered M has its sizes only in the end.
    if (options.post_filter == 0) ShowM(context, result);
    return {};
  };
  const size_t parts = plan.parts.size();
  SharedProgress progress(context.progress, Stage::kBuild, a.n_cols, parts);
  const BuildRequest request{plan, a, options, context, progress, result, flags, pattern_there};
  std::vector<StaticSpaiCudaTimings> own(parts);
  bool compacted = false;
  // With several devices no copy of M is kept on any.
  const auto m = parts == 1 ? std::make_shared<StaticSpaiCudaM>(plan) : nullptr;
  const Status status = BesideDevices(parts, plan.nnz_a, context.threads, lay_out, [&](size_t i) {
    if (m != nullptr) return BuildPart(request, i, m->m, m->compacted, m->nnz, own[i]);
    CudaObject<SpaidCudaM> part(plan.parts[i]->device, &SpaidCudaInterface::free_m);
    bool unused = false;
    int64_t nnz = 0;
    return BuildPart(request, i, part, unused, nnz, own[i]);
  });
  if (!status.ok()) return status;
  if (m != nullptr) {
    compacted = m->compacted;
    const bool whole = std::find(flags.begin(), flags.end(), 0) == flags.end();
    if (kept != nullptr && whole && (options.post_filter == 0 || compacted)) *kept = m;
  }
  Add(own, timings);
  const auto start = Clock::now();
  timings.host_columns = std::count(flags.begin(), flags.end(), 0);
  if (timings.host_columns > 0) {
    if (const StopReason stopped = SolveLeftColumns(a, options, context, result, flags);
        stopped != StopReason::kNone) {
      return StopStatus(stopped, "build of static SPAI");
    }
  }
  timings.host_solve_ms += MsSince(start);
  if (options.post_filter > 0 && !compacted) {
    auto filtered =
        PostFilter(result.m, options.post_filter,
                   Context{.stop = {}, .progress = nullptr, .threads = context.threads});
    if (!filtered.ok()) return filtered.status();
    result.m = std::move(filtered).value();
  }
  if (!result.shown.showing()) ShowM(context, result);
  result.shown.FinishedAll();
  Summarise(flags, a.nnz(), context.threads, result);
  result.quality.thread_strategy = timings.thread_strategy;
  return result;
}

}  // namespace

Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    std::span<const std::shared_ptr<CudaDevice>> devices, const CscView& a,
    const PatternView* user_pattern, const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings* timings, std::unique_ptr<SpaiOnDevice> there) {
  StaticSpaiCudaTimings own;
  return GuardMemory("plan of static SPAI", [&] {
    return MakePlan(devices, a, user_pattern, options, context, timings != nullptr ? *timings : own,
                    there.get());
  });
}

Result<std::shared_ptr<const StaticSpaiCudaPlan>> PlanStaticSpaiCuda(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, const PatternView* user_pattern,
    const StaticSpaiOptions& options, const Context& context, StaticSpaiCudaTimings* timings) {
  return PlanStaticSpaiCuda(std::span(&device, 1), a, user_pattern, options, context, timings);
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
    const SpaidCudaPlan* const plan = m.plan->parts.front()->plan.object;
    const bool own_pattern = m.compacted || m.plan->of_a;
    if (own_pattern) {
      out.col_ptr.resize(static_cast<size_t>(pattern.n_cols) + 1);
      out.row_idx.resize(static_cast<size_t>(m.nnz));
    } else {
      out.col_ptr = pattern.col_ptr;
      out.row_idx = pattern.row_idx;
    }
    CudaDevice& device = *m.device;
    char message[kCudaMessageBytes] = "";
    const auto lock = device.Lock();
    int32_t done = device.api().download_m(m.m.object, out.values.data(), nullptr, nullptr, nullptr,
                                           message, sizeof(message));
    if (done == kSpaidCudaOk && own_pattern) {
      const SpaidCudaInterface& api = device.api();
      done = m.compacted ? api.download_m_pattern(m.m.object, out.col_ptr.data(),
                                                  out.row_idx.data(), message, sizeof(message))
                         : api.download_pattern(plan, out.col_ptr.data(), out.row_idx.data(),
                                                message, sizeof(message));
    }
    if (done != kSpaidCudaOk) return device.Failed(done, message);
    return out;
  });
}

}  // namespace spaid::kernels
