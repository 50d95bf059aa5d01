#include <algorithm>
#include <functional>
#include <latch>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/device.h"
#include "kernels/base/parallel.h"
#include "kernels/base/split.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/cuda/build.h"
#include "kernels/static_spai/cuda/plan.h"
#include "kernels/static_spai/cuda/post_filter.h"
#include "kernels/static_spai/cuda/spai_on_device.h"
#include "kernels/static_spai/host_columns.h"
#include "kernels/static_spai/quality.h"
#include "kernels/static_spai/shown_part.h"
#include "kernels/static_spai/static_spai_cuda.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels {
namespace {

// A device's part in a plan.
struct DevicePart {
  struct OnDevice {
    cuda::Matrix matrix;
    cuda::StaticSpaiPlan plan;  // goes before the matrix
  };
  const std::shared_ptr<CudaDevice> device;
  const IndexRange columns;
  std::shared_ptr<OnDevice> on = {};
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

struct Plan : StaticSpaiCudaPlan, std::enable_shared_from_this<Plan> {
  // One a device, ascending.
  std::vector<std::unique_ptr<DevicePart>> parts;
  bool of_a = false;  // M has the pattern of A, and there is no other copy of it
  Pattern pattern;    // M's; sizes alone where it is A's
  int64_t nnz_m = 0;
  uint64_t pattern_hash = 0;  // A's
  int64_t nnz_a = 0;
};

// M on the device of a plan of one part.
struct KeptM : BuiltOnDevice {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const cuda::StaticSpaiResult> m;
  bool compacted = false;  // has a pattern of its own; else the plan's
};

// The request to each device.
struct PlanRequest {
  const CscView& a;
  const PatternView* user_pattern;
  const StaticSpaiOptions& options;
  const Context& context;
  PatternLimit limit;
  std::span<const int32_t> match;
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
Status PlanPart(const PlanRequest& request, DevicePart& part, Plan& plan, std::once_flag& room,
                StaticSpaiCudaTimings& timings) {
  const CscView& a = request.a;
  const StaticSpaiOptions& options = request.options;
  const auto lock = part.device->Lock();
  Status status = cuda::Guard(*part.device, [&](cuda::Context& context) {
    const auto start = Clock::now();
    // Values come with the builds; only a threshold reads them before.
    const bool reads_values = options.pattern.keep_tau.has_value() &&
                              request.user_pattern == nullptr && !a.values.empty();
    SpaiOnDevice* const there = request.there;
    cuda::Matrix matrix =
        there != nullptr ? std::move(*there->matrix)
                         : cuda::UploadMatrix(context, a, reads_values ? a.values.data() : nullptr,
                                              request.context.ahead);
    timings.host_to_device_ms += MsSince(start);
    context.arena->ResetPeak();
    cuda::Stopwatch watch(context);
    const auto make_pattern = [&] {
      const cuda::Caller caller(request.context.stop, "the pattern of the preconditioner");
      try {
        return cuda::MakePattern(context, matrix, request.user_pattern,
                                 there != nullptr ? there->pattern.get() : nullptr, options.pattern,
                                 request.match, request.limit.nnz, caller);
      } catch (const cuda::PatternTooLarge& too_large) {
        throw cuda::Refusal{PatternTooLarge(too_large.nnz, request.limit)};
      }
    };
    cuda::DevicePattern pattern = make_pattern();
    watch.Mark();
    cuda::StaticSpaiPlan made = cuda::MakePlan(context, matrix, std::move(pattern),
                                               options.local_solver == LocalSolver::kQr,
                                               {part.columns.begin, part.columns.end});
    timings.device_plan_ms += watch.Stop();
    timings.device_pattern_ms += watch.Marked();
    timings.tables_in_waves = made.in_waves;
    timings.device_bytes = std::max(timings.device_bytes, context.arena->peak());
    part.on = cuda::Keep(part.device, DevicePart::OnDevice{std::move(matrix), std::move(made)});
  });
  if (!status.ok() || part.on->plan.m.is_of_a()) return status;
  const cuda::StaticSpaiPlan& made = part.on->plan;
  const auto start = Clock::now();
  std::call_once(room, [&] {
    plan.pattern.col_ptr.resize(static_cast<size_t>(a.n_cols) + 1);
    plan.pattern.row_idx.resize(static_cast<size_t>(made.m.nnz));
  });
  status = cuda::Guard(*part.device, [&](cuda::Context& context) {
    const int64_t first = part.columns.begin;
    const int64_t pointers = part.columns.size() + (part.columns.end == a.n_cols ? 1 : 0);
    context.Download({made.m.col_ptr.To(plan.pattern.col_ptr.data() + first, pointers, first),
                      made.m.row_idx.To(plan.pattern.row_idx.data() + made.first_entry,
                                        made.entries, made.first_entry)});
  });
  timings.device_to_host_ms += MsSince(start);
  return status;
}

Result<std::shared_ptr<const StaticSpaiCudaPlan>> MakePlan(
    std::span<const std::shared_ptr<CudaDevice>> devices, const CscView& a,
    const PatternView* user_pattern, const StaticSpaiOptions& options, const Context& context,
    StaticSpaiCudaTimings& timings, SpaiOnDevice* there) {
  if (Status status = CheckOptions(a, options); !status.ok()) return status;
  if (Status status = CheckColumns(a, context.threads); !status.ok()) return status;
  if (Status status = CheckPattern(a, user_pattern, options.pattern); !status.ok()) return status;
  auto plan = std::make_shared<Plan>();
  plan->pattern.n_rows = plan->pattern.n_cols = a.n_cols;
  plan->nnz_a = a.nnz();
  Array<int32_t> match;
  if (options.pattern.row_match) {
    auto permutation = RowPermutation(a, context);
    if (!permutation.ok()) return permutation.status();
    match = *std::move(permutation);
  }
  const PatternView base = user_pattern != nullptr ? *user_pattern : a;
  const PlanRequest request{
      a, user_pattern, options, context, LimitPattern(base, options.pattern), match, there};
  if (const StopReason reason = context.stop.Poll(); reason != StopReason::kNone) {
    return StopStatus(reason, "plan of static SPAI");
  }
  const double mean =
      static_cast<double>(a.nnz()) / static_cast<double>(std::max<int64_t>(1, a.n_cols));
  const std::vector<IndexRange> ranges = CutByColumns(devices.size(), base.col_ptr.data(), a.n_cols,
                                                      options.pattern.power, mean, context.threads);
  for (size_t i = 0; i < ranges.size(); ++i) {
    plan->parts.push_back(std::make_unique<DevicePart>(DevicePart{devices[i], ranges[i]}));
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
  plan->of_a = plan->parts.front()->on->plan.m.is_of_a();
  plan->nnz_m = plan->parts.front()->on->plan.m.nnz;
  for (const auto& part : plan->parts) {
    const cuda::StaticSpaiPlan& of = part->on->plan;
    // With QR also two orders of the groups, from the first build on.
    const int64_t groups = of.grouped ? of.n_groups : of.dia.nodes;
    plan->device_bytes =
        std::max(plan->device_bytes, of.device_bytes() + (of.by_qr ? 8 * groups : 0));
  }
  plan->device_bytes += 12 * plan->nnz_a + 8 * (a.n_cols + 1);  // and the matrix
  plan->host_bytes = static_cast<int64_t>(sizeof(Plan) + 4 * plan->pattern.row_idx.size() +
                                          8 * plan->pattern.col_ptr.size());
  return std::shared_ptr<const StaticSpaiCudaPlan>(std::move(plan));
}

// The inputs and outputs of all parts of a build; each fills the values, norms, pivots and flags of
// its columns.
struct BuildRequest {
  const Plan& plan;
  const CscView& a;
  const StaticSpaiOptions& options;
  const Context& context;
  SharedProgress& progress;
  StaticSpaiResult& result;
  Array<uint8_t>& flags;
  std::latch& pattern_there;  // result.m has its pattern; nobody else touches it before
};

// `m`: null, or receives M. Where that is compacted, which one of several parts never is, the
// pattern of the result is filled, too.
Status BuildPart(const BuildRequest& request, size_t i, KeptM* m, StaticSpaiCudaTimings& timings) {
  const DevicePart& part = *request.plan.parts[i];
  const StaticSpaiOptions& options = request.options;
  StaticSpaiResult& result = request.result;
  const IndexRange columns = part.columns;
  const cuda::Caller caller(
      request.context.stop, "build of static SPAI", [&](int64_t done, int64_t total) {
        if (total == 0) return;
        const double share = static_cast<double>(done) / static_cast<double>(total);
        request.progress.Report(i,
                                static_cast<int64_t>(share * static_cast<double>(columns.size())));
      });
  const auto lock = part.device->Lock();
  return cuda::Guard(*part.device, [&](cuda::Context& context) {
    cuda::StaticSpaiPlan& plan = part.on->plan;
    auto start = Clock::now();
    cuda::UploadValues(context, request.a.values.data(), part.on->matrix, request.context.ahead);
    timings.host_to_device_ms += MsSince(start);
    context.arena->ResetPeak();
    cuda::Stopwatch watch(context);
    cuda::StaticSpaiResult made =
        cuda::Build(context, plan, part.on->matrix, options, caller, timings);
    const bool compacted = options.post_filter > 0 && plan.whole() &&
                           cuda::CountHostColumns(context, made) == 0 &&
                           cuda::CompactM(context, plan, options.post_filter, made);
    timings.device_build_ms += watch.Stop();
    timings.tables_in_waves = plan.in_waves;
    timings.device_bytes = std::max(timings.device_bytes, context.arena->peak());
    request.pattern_there.wait();
    start = Clock::now();
    const int64_t entries = compacted ? made.values.size() : plan.entries;
    if (compacted) {
      result.m.row_idx.resize(static_cast<size_t>(entries));
      result.m.values.resize(static_cast<size_t>(entries));
      context.Download({made.m_ptr.To(result.m.col_ptr.data(), made.m_ptr.size()),
                        made.m_idx.To(result.m.row_idx.data(), entries)});
    }
    const int64_t first = columns.begin;
    const cuda::HostCopy norms =
        made.residual_norms.To(result.residual_norms.data() + first, columns.size(), first);
    const cuda::HostCopy pivots =
        made.pivots.To(result.min_scaled_pivots.data() + first, columns.size(), first);
    const cuda::HostCopy flags = made.flags.To(request.flags.data() + first, columns.size(), first);
    const size_t before = norms.bytes + pivots.bytes + flags.bytes;
    ShownPart part_shown(columns, result.m.col_ptr, request.flags, result.shown);
    context.Download(
        {norms, pivots, flags,
         made.values.To(result.m.values.data() + plan.first_entry, entries, plan.first_entry)},
        [&](size_t bytes) {
          if (bytes <= before) return;
          part_shown.Arrived(plan.first_entry +
                             static_cast<int64_t>((bytes - before) / sizeof(double)));
        });
    part_shown.ArrivedAll();
    timings.device_to_host_ms += MsSince(start);
    if (m == nullptr) return;
    made.residual_norms = {};
    made.pivots = {};
    made.flags = {};
    const cuda::PatternRef pattern =
        compacted ? cuda::PatternRef{plan.n, made.m_ptr.get(), made.m_idx.get()} : plan.pattern();
    static_cast<BuiltOnDevice&>(*m) = {
        .device = part.device,
        .device_bytes = request.plan.device_bytes + 8 * entries +
                        (compacted ? 4 * entries + 8 * (plan.n + 1) : 0),
        .n = plan.n,
        .nnz = entries,
        .col_ptr = pattern.col_ptr,
        .row_idx = pattern.row_idx,
        .values = made.values.get()};
    m->plan = request.plan.shared_from_this();
    m->m = cuda::Keep(part.device, std::move(made));
    m->compacted = compacted;
  });
}

Result<StaticSpaiResult> BuildM(const Plan& plan, const CscView& a,
                                const StaticSpaiOptions& options, const Context& context,
                                StaticSpaiCudaTimings& timings,
                                std::shared_ptr<const BuiltOnDevice>* kept) {
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
  // With several devices no copy of M is kept on any.
  const auto m = parts == 1 ? std::make_shared<KeptM>() : nullptr;
  const Status status = BesideDevices(parts, plan.nnz_a, context.threads, lay_out, [&](size_t i) {
    return BuildPart(request, i, m.get(), own[i]);
  });
  if (!status.ok()) return status;
  const bool compacted = m != nullptr && m->compacted;
  if (m != nullptr && kept != nullptr) {
    const bool whole = std::find(flags.begin(), flags.end(), 0) == flags.end();
    if (whole && (options.post_filter == 0 || compacted)) *kept = m;
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
    StaticSpaiCudaTimings* timings, std::shared_ptr<SpaiOnDevice> there) {
  StaticSpaiCudaTimings own;
  return GuardMemory("plan of static SPAI", [&] {
    return MakePlan(devices, a, user_pattern, options, context, timings != nullptr ? *timings : own,
                    there.get());
  });
}

Result<StaticSpaiResult> BuildStaticSpaiCuda(const StaticSpaiCudaPlan& plan, const CscView& a,
                                             const StaticSpaiOptions& options,
                                             const Context& context, StaticSpaiCudaTimings* timings,
                                             std::shared_ptr<const BuiltOnDevice>* kept) {
  StaticSpaiCudaTimings own;
  return GuardMemory("build of static SPAI", [&] {
    return BuildM(static_cast<const Plan&>(plan), a, options, context,
                  timings != nullptr ? *timings : own, kept);
  });
}

}  // namespace spaid::kernels
