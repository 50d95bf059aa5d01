#include "server/rpc/backend.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/engine/spill_codecs.h"
#include "server/rpc/job_spans.h"
#include "server/rpc/kept_jobs.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMaxExecutorQueue = 4096;
constexpr milliseconds kBusyRetry{250};
constexpr milliseconds kDrainRetry{2'000};

ShareRules Rules(const BackendOptions& options) {
  return {.weights = options.tenant_weights, .max_tenants = options.max_tenants};
}

StreamLimits Limits(const BackendOptions& options) {
  StreamLimits limits = options.streams;
  limits.shares = Rules(options);
  return limits;
}

int64_t LadderBytes(const BackendOptions& options) {
  return options.max_build_bytes > 0 ? options.max_build_bytes / 2
                                     : std::numeric_limits<int64_t>::max();
}

HandleStoreOptions MatrixStoreOptions(const BackendOptions& options, SpillCodec codec) {
  return {.prefix = "matrices/",
          .what = "matrix",
          .limit_flag = "--matrix-store-bytes",
          .max_bytes = options.matrix_store_bytes,
          .max_item_bytes = std::min(options.max_matrix_bytes, options.matrix_store_bytes),
          .too_large_reason = reason::kMatrixTooLarge,
          .shares = Rules(options),
          .spill = options.spill,
          .codec = std::move(codec)};
}

HandleStoreOptions PreconditionerStoreOptions(const BackendOptions& options) {
  return {.prefix = "preconditioners/",
          .what = "preconditioner",
          .limit_flag = "--preconditioner-store-bytes",
          .max_bytes = options.preconditioner_store_bytes,
          .too_large_reason = reason::kBuildTooLarge,
          .shares = Rules(options),
          .spill = options.spill,
          .codec = PreconditionerCodec()};
}

Metrics::StoreFigures Figures(const HandleStoreStats& s) {
  return {.entries = s.entries,
          .bytes = s.bytes + s.zombie_bytes + s.arrived_bytes,
          .limit_bytes = s.max_bytes,
          .reserved_bytes = s.reserved_bytes,
          .hits = s.hits,
          .misses = s.misses,
          .evictions = s.evictions,
          .tenants = s.tenants};
}

// Returns the threads of each executor; several, since an estimate may take longer than its job.
int ExecutorThreads() { return std::clamp(kernels::CpuDevice().threads / 4, 2, 8); }

// Returns the threads of one job.
int Threads(const BackendOptions& options, const EngineAdapter& adapter) {
  int threads = options.threads;
  if (threads > 0) return threads;
  for (const kernels::DeviceInfo& device : adapter.devices()) {
    threads = std::max(threads, device.threads);
  }
  // GPUs alone: the host's work is done on its cores even so.
  return threads > 0 ? threads : kernels::CpuDevice().threads;
}

DispatcherOptions DispatchOptions(const BackendOptions& options, const EngineAdapter& adapter) {
  DispatcherOptions dispatch{.devices = {},
                             .max_queued = options.max_queued_jobs,
                             .max_queued_per_tenant = MostQueuedOfTenant(options),
                             .host_bytes = options.max_build_bytes,
                             .small_ms = ToMs(options.small_job),
                             .max_paused = options.max_paused_jobs,
                             .tenant_weights = options.tenant_weights,
                             .max_tenants = options.max_tenants};
  const int slots = options.slots > 0 ? options.slots : ExecutorThreads();
  for (size_t d = 0; d < adapter.devices().size(); ++d) {
    const bool cpu = adapter.devices()[d].backend == kernels::Backend::kCpu;
    const EngineAdapter::Slots of_gpu = adapter.slots(d);
    dispatch.devices.push_back({.name = adapter.device_names()[d],
                                .slots = cpu ? slots : of_gpu.count,
                                .memory_bytes = adapter.DeviceState(d).limit_bytes,
                                .slot_bytes = of_gpu.slot_bytes});
  }
  return dispatch;
}

}  // namespace

int64_t MostQueuedOfTenant(const BackendOptions& options) {
  return options.max_queued_jobs_per_tenant.value_or((options.max_queued_jobs + 1) / 2);
}

absl::Status DrainingError() {
  return MakeError(absl::StatusCode::kUnavailable, reason::kDraining,
                   "the server is shutting down and takes no new work; try again, at another "
                   "server or when this one is back")
      .Retry(kDrainRetry);
}

Backend::Backend(BackendOptions options, const kernels::Engine& engine, Authenticator authenticator,
                 Metrics* metrics)
    : options_(std::move(options)),
      authenticator_(std::move(authenticator)),
      metrics_(metrics),
      adapter_(engine, {.threads = options_.threads,
                        .plan_cache_bytes = options_.plan_cache_bytes,
                        .shares = Rules(options_),
                        .max_build_bytes = options_.max_build_bytes,
                        .max_devices = options_.max_devices_per_job,
                        .ranks_first = options_.ranks_first,
                        .max_result_bytes = options_.preconditioner_store_bytes,
                        .ladder_bytes = LadderBytes(options_),
                        .max_lu_n = options_.max_inverse_unknowns,
                        .least_ahead_bytes = options_.least_ahead_bytes,
                        .metrics = metrics}),
      cores_(Threads(options_, adapter_)),
      matrices_(MatrixStoreOptions(options_, MatrixCodec(&adapter_,
                                                         [this](const std::string& tenant) {
                                                           return GiveUpOverRanks(tenant);
                                                         }))),
      preconditioners_(PreconditionerStoreOptions(options_)),
      rhs_budget_(
          "right-hand sides and solutions (--rhs-bytes)", options_.rhs_bytes,
          [this](int64_t missing, const ByteBudget::OfTenant& of) {
            jobs_.DropResults(missing, of);
          },
          Rules(options_)),
      jobs_({.max_ended_bytes = options_.ended_job_bytes, .shares = Rules(options_)}),
      connections_(options_.connections, metrics),
      streams_(Limits(options_), &connections_, options_.tracer),
      segments_(options_.segments, Rules(options_)),
      scheduler_(
          {.dispatch = DispatchOptions(options_, adapter_),
           .max_detached_per_tenant = options_.max_detached_jobs_per_tenant,
           .metrics = metrics,
           .prepare = [this](size_t device) { return adapter_.MeasureCopy(device); },
           .on_prepared = [this] { TellReadiness(); },
           .on_ended =
               [this](const std::shared_ptr<Job>& job) {
                 TellJobSpans(*job, streams_.tracer());
                 jobs_.Ended(job);
               },
           .probe = [this](size_t device, size_t slot) { return adapter_.Probe(device, slot); },
           .probe_every = options_.probe_every,
           .hang = {.factor = options_.hang_limit, .floor = options_.hang_floor},
           .on_lost =
               [this](size_t device, const absl::Status&) {
                 TellReadiness();
                 adapter_.DropKept(device);
               }}),
      job_factory_({.adapter = &adapter_,
                    .matrices = &matrices_,
                    .preconditioners = &preconditioners_,
                    .scheduler = &scheduler_,
                    .jobs = &jobs_,
                    .metrics = metrics,
                    .shares = Rules(options_)}),
      storing_(ExecutorThreads(), kMaxExecutorQueue, Rules(options_)),
      counting_(ExecutorThreads(), kMaxExecutorQueue, Rules(options_)),
      looking_(ExecutorThreads(), kMaxExecutorQueue, Rules(options_)),
      sending_(ExecutorThreads(), kMaxExecutorQueue, Rules(options_)),
      asking_ranks_(ExecutorThreads(), kMaxExecutorQueue, Rules(options_)) {
  metrics_->SetBuildInfo(options_.version);
  if (options_.spill == nullptr) return;
  spill_writer_ = std::make_unique<SpillWriter>(
      options_.spill,
      std::vector<SpillWriter::WriteOne>{[this] { return preconditioners_.SpillOne(); },
                                         [this] { return matrices_.SpillOne(); }});
  kept_jobs_ = std::make_unique<KeptJobs>(this, options_.spill);
}

Backend::~Backend() = default;

void Backend::FlushSpill(milliseconds limit) {
  if (spill_writer_ == nullptr || spill_writer_->Flush(limit)) return;
  options_.spill->CutOff();  // a matrix of many ranks would take minutes more
  Log(LogLevel::kWarning, "spill_cut_off",
      {{"text", "not everything was written; raise --drain-deadline, or use a faster disk"}});
}

bool Backend::GiveUpOverRanks(const std::string& tenant) {
  return matrices_.EvictSpilled(tenant,
                                [](const Matrix& matrix) { return matrix.over != nullptr; });
}

absl::Status Backend::Run(Pool pool, const std::string& tenant, std::function<void()> task,
                          std::function<void(const absl::Status&)> failed) {
  Executor& executor = pool == Pool::kStore   ? storing_
                       : pool == Pool::kCount ? counting_
                       : pool == Pool::kLook  ? looking_
                       : pool == Pool::kSend  ? sending_
                                              : asking_ranks_;
  if (executor.TryRun(tenant, std::move(task), std::move(failed))) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kQueueFull,
                   absl::StrCat("too many requests wait to be prepared: ", kMaxExecutorQueue,
                                " may, the last places of which are for tenants with less than "
                                "their share of them; try again"))
      .Retry(kBusyRetry);
}

bool Backend::usable() const {
  const DeviceMask healthy = scheduler_.healthy();
  const size_t count = adapter_.devices().size();
  if (options_.exit_on_device_loss) {
    return healthy == (count >= kMaxDevices ? kAnyDevice : DeviceBit(count) - 1);
  }
  const bool has_cpu = adapter_.devices()[0].backend == kernels::Backend::kCpu;
  return healthy != 0 && (!has_cpu || (healthy & DeviceBit(0)) != 0);
}

std::string Backend::LostDevices() const {
  std::string lost;
  for (size_t d = 0; d < adapter_.device_names().size(); ++d) {
    const absl::Status why = scheduler_.DeviceStatus(d);
    if (why.ok()) continue;
    absl::StrAppend(&lost, lost.empty() ? "" : "; ", adapter_.device_names()[d], ": ",
                    why.message());
  }
  return lost;
}

void Backend::OnReadiness(std::function<void()> changed) {
  const std::lock_guard lock(readiness_mutex_);
  on_readiness_ = std::move(changed);
  if (on_readiness_) on_readiness_();
}

void Backend::TellReadiness() {
  const std::lock_guard lock(readiness_mutex_);
  if (on_readiness_) on_readiness_();
}

void Backend::Refuse() {
  refusing_ = true;
  streams_.CutIdle(DrainingError());
}

absl::Status Backend::CheckServing() const {
  return refusing_ ? DrainingError() : absl::OkStatus();
}

absl::StatusOr<JobFactory::Terms> Backend::DetachedTerms(const v1::JobLimits& limits,
                                                         v1::Priority priority) const {
  ASSIGN_OR_RETURN(JobLimits parsed, ParseLimits(limits, "header.limits"));
  ASSIGN_OR_RETURN(const Priority own_class, ParsePriority(priority, "header.priority"));
  const bool own_limits = parsed.max_queue || parsed.max_run;
  if (!parsed.max_queue && options_.max_queue.count() > 0) parsed.max_queue = options_.max_queue;
  if (options_.max_run.count() > 0) {
    const std::chrono::nanoseconds cap = options_.max_run;
    parsed.max_run = parsed.max_run ? std::min(*parsed.max_run, cap) : cap;
  }
  return JobFactory::Terms{.limits = parsed,
                           .own_limits = own_limits,
                           .deadline = std::nullopt,
                           .detach = true,
                           .priority = own_class};
}

absl::StatusOr<JobFactory::Terms> Backend::Terms(const v1::JobLimits& limits, v1::Priority priority,
                                                 bool detach,
                                                 const grpc::CallbackServerContext& context) const {
  ASSIGN_OR_RETURN(JobFactory::Terms terms, DetachedTerms(limits, priority));
  terms.detach = detach;
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    // Far deadlines of some clients overflow the arithmetic below; ten years are as good as none.
    const auto left = deadline - std::chrono::system_clock::now();
    if (left < std::chrono::hours(24 * 3650)) terms.deadline = RealClock().Now() + left;
  }
  return terms;
}

bool Backend::look_aside(bool sender_idle) const {
  constexpr int kCores = 4, kCoresBesideAnIdleSender = 2;
  return cores_ >= (sender_idle ? kCoresBesideAnIdleSender : kCores);
}

void Backend::SetGauges() {
  for (size_t d = 0; d < adapter_.device_names().size(); ++d) {
    const kernels::DeviceState state = adapter_.DeviceState(d);
    metrics_->SetDevice(adapter_.device_names()[d], scheduler_.DeviceStatus(d).ok(),
                        state.used_bytes, state.limit_bytes);
  }
  metrics_->SetStore("matrices", Figures(matrices_.stats()));
  metrics_->SetStore("preconditioners", Figures(preconditioners_.stats()));
  const auto plans = adapter_.plan_cache();
  metrics_->SetStore("plans", {.entries = plans.entries,
                               .bytes = plans.bytes,
                               .limit_bytes = plans.max_bytes,
                               .hits = plans.hits,
                               .misses = plans.misses,
                               .evictions = plans.evictions,
                               .tenants = plans.tenants});
  if (options_.spill != nullptr) {
    const SpillStats spill = options_.spill->stats();
    metrics_->SetSpill({.records = spill.records,
                        .files = spill.files,
                        .bytes = spill.bytes,
                        .limit_bytes = spill.max_bytes,
                        .written_bytes = spill.written_bytes,
                        .read_bytes = spill.read_bytes,
                        .loaded = spill.loaded,
                        .refused = spill.refused,
                        .dropped = spill.dropped,
                        .damaged = spill.damaged});
  }
  const Scheduler::Load load = scheduler_.load();
  metrics_->SetQueue(load.queued, load.running, load.eta_ms / 1e3);
  metrics_->SetPaused(load.paused);
  for (size_t p = 0; p < kPriorities; ++p) {
    metrics_->SetQueueClass(PriorityName(static_cast<Priority>(p)), load.classes[p].queued,
                            load.classes[p].predicted_ms / 1e3);
  }
  for (const Dispatcher::Ratio& ratio : load.ratios) {
    metrics_->SetEstimateRatio(ratio.device, ratio.what, ratio.value);
  }
  for (const auto& [tenant, taken_ms] : load.taken_ms) {
    metrics_->SetTenantTime(tenant, taken_ms / 1e3);
  }
  metrics_->SetBuffers("rhs", rhs_budget_.used(), rhs_budget_.limit());
  metrics_->SetBuffers("ended_jobs", jobs_.ended_bytes(), options_.ended_job_bytes);
  metrics_->SetStreams(streams_.size(), options_.streams.max_streams);
  metrics_->SetCalls(connections_.calls(), options_.connections.max_calls);
  metrics_->SetConnections(connections_.size(), connections_.most());
  metrics_->SetBuffers("transport", connections_.untaken_bytes(), options_.connections.max_bytes);
  const Segments::Stats segments = segments_.stats();
  metrics_->SetSegments(segments.segments, options_.segments.max_segments);
  metrics_->SetBuffers("segments", segments.bytes, options_.segments.max_bytes);
  metrics_->SetPreparing(storing_.queued() + counting_.queued() + looking_.queued(),
                         3 * kMaxExecutorQueue);
  metrics_->SetOutgoingBytes(streams_.outgoing_bytes());
  metrics_->SetDraining(draining_);
  metrics_->SetProcess(ReadProcess());
  metrics_->SetFreedArrayBytes(static_cast<int64_t>(kernels::FreedLargeBytes()));
}

}  // namespace spaid::server
