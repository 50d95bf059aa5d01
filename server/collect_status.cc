#include "server/collect_status.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "server/base/clock.h"
#include "server/base/process.h"
#include "server/engine/devices.h"
#include "server/sched/job.h"

namespace spaid::server {
namespace {

constexpr size_t kRecentJobs = 25, kQueuedJobs = 10;
constexpr size_t kCurvePoints = 120;

WallTime FromProto(const google::protobuf::Timestamp& time) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(time.seconds()) + std::chrono::nanoseconds(time.nanos())));
}

ServerStatus::Job OfJob(const Job& job) {
  const v1::Job seen = job.Snapshot(/*brief=*/true);
  const JobDescription& description = job.description();
  ServerStatus::Job out{.name = seen.name(),
                        .tenant = description.tenant,
                        .kind = std::string(JobKindName(seen.kind())),
                        .what = job.what(),
                        .priority = std::string(PriorityName(job.priority())),
                        .state = std::string(JobStateName(seen.state())),
                        .matrix = description.matrix,
                        .label = description.label,
                        .n = description.n,
                        .nnz = description.nnz,
                        .created = FromProto(seen.create_time()),
                        .ended = FromProto(seen.end_time()),
                        .queue_ms = ToMs(job.QueueTime()),
                        .run_ms = ToMs(job.RunTime())};
  out.devices.assign(seen.devices().begin(), seen.devices().end());
  if (out.devices.empty() && !seen.device().empty()) out.devices.push_back(seen.device());
  if (seen.stage() != v1::STAGE_UNSPECIFIED) out.stage = std::string(StageName(seen.stage()));
  out.done = seen.done();
  out.total = seen.total();
  if (seen.outcomes_size() > 0) {
    const v1::RhsOutcome& outcome = seen.outcomes(0);
    const std::string& name = v1::Outcome_Name(outcome.outcome());
    out.outcome = absl::AsciiStrToLower(absl::StripPrefix(name, "OUTCOME_"));
    out.iterations = outcome.iterations();
    out.true_relative_residual = outcome.true_relative_residual();
    out.rhs_count = seen.outcome_count();
  }
  if (seen.has_error()) {
    out.reason = seen.error().reason();
    out.message = seen.error().message();
  }
  const v1::Timings timings = job.timings();
  out.plan_ms = timings.plan_ms();
  out.build_ms = timings.build_ms() + timings.assemble_ms();
  out.solve_ms = timings.solve_ms();
  out.reused = timings.reused();
  out.rebuild = timings.rebuild();
  for (const JobLog::CurvePoint& point : job.Curve(/*rhs=*/0, kCurvePoints)) {
    out.residuals.push_back({point.iteration, point.relative_residual});
  }
  return out;
}

void AddDevices(const Backend& backend, ServerStatus* status) {
  const EngineAdapter& adapter = backend.adapter();
  const auto add = [&](const kernels::DeviceInfo& device) {
    status->devices.push_back({.name = DeviceName(device),
                               .model = device.name,
                               .threads = device.threads,
                               .memory_bytes = device.memory_bytes});
    return &status->devices.back();
  };
  for (size_t d = 0; d < adapter.devices().size(); ++d) {
    ServerStatus::Device* const device = add(adapter.devices()[d]);
    if (device->threads > 0 && backend.options().threads > 0) {
      device->threads = backend.options().threads;
    }
    device->lost = std::string(backend.scheduler().DeviceStatus(d).message());
    const kernels::DeviceState state = adapter.DeviceState(d);
    device->used_bytes = state.used_bytes;
    device->limit_bytes = state.limit_bytes;
  }
  for (const kernels::DeviceInfo& device : backend.options().idle_devices) {
    add(device)->in_use = false;
  }
}

void AddQueue(const Backend& backend, ServerStatus* status) {
  const Scheduler::Load load = backend.scheduler().load();
  status->queued = load.queued;
  status->running = load.running;
  status->eta_ms = load.eta_ms;
  status->max_queued = backend.options().max_queued_jobs;
  status->max_queued_per_tenant = MostQueuedOfTenant(backend.options());
  for (size_t p = 0; p < kPriorities; ++p) {
    status->classes.push_back({.name = std::string(PriorityName(static_cast<Priority>(p))),
                               .queued = load.classes[p].queued,
                               .predicted_ms = load.classes[p].predicted_ms,
                               .share = kPriorityShares[p]});
  }
  for (const Dispatcher::Ratio& ratio : load.ratios) {
    status->ratios.push_back({ratio.device, ratio.what, ratio.value, ratio.jobs});
  }
}

void AddJobs(Backend& backend, ServerStatus* status) {
  const Scheduler::Jobs jobs = backend.scheduler().jobs(kQueuedJobs);
  for (const Scheduler::RunningJob& running : jobs.running) {
    status->running_jobs.push_back(OfJob(*running.job));
    status->running_jobs.back().predicted_ms = running.predicted_ms;
  }
  for (const Scheduler::QueuedJob& queued : jobs.queued) {
    ServerStatus::Job& job = status->queued_jobs.emplace_back(OfJob(*queued.job));
    job.predicted_ms = queued.predicted_ms;
    job.position = queued.place.position;
    job.eta_ms = queued.place.eta_ms;
  }
  for (const auto& ended : backend.jobs().LastEnded(kRecentJobs)) {
    status->recent_jobs.push_back(OfJob(*ended));
  }
}

template <class Stats>
ServerStatus::Store StoreOf(const char* name, const Stats& stats, int64_t more_bytes = 0) {
  return {.name = name,
          .entries = static_cast<int64_t>(stats.entries),
          .bytes = static_cast<int64_t>(stats.bytes) + more_bytes,
          .limit_bytes = static_cast<int64_t>(stats.max_bytes),
          .hits = static_cast<int64_t>(stats.hits),
          .misses = static_cast<int64_t>(stats.misses),
          .evictions = static_cast<int64_t>(stats.evictions)};
}

ServerStatus::Counters CountersOf(const char* title, const std::map<std::string, int64_t>& sums) {
  ServerStatus::Counters counters{.title = title, .counters = {}};
  for (const auto& [what, value] : sums) {
    if (value > 0) counters.counters.push_back({what, value});
  }
  return counters;
}

int64_t Total(const std::map<std::string, int64_t>& sums) {
  int64_t total = 0;
  for (const auto& [what, value] : sums) total += value;
  return total;
}

void AddFigures(Backend& backend, ServerStatus* status) {
  const HandleStoreStats matrices = backend.matrices().stats();
  const HandleStoreStats preconditioners = backend.preconditioners().stats();
  status->stores = {StoreOf("matrices", matrices, matrices.zombie_bytes),
                    StoreOf("preconditioners", preconditioners, preconditioners.zombie_bytes),
                    StoreOf("plans", backend.adapter().plan_cache())};
  SpillStats spill;
  if (const SpillFolder* const folder = backend.options().spill; folder != nullptr) {
    spill = folder->stats();
    status->stores.push_back({.name = "spill folder",
                              .entries = spill.records,
                              .bytes = spill.bytes,
                              .limit_bytes = spill.max_bytes,
                              .hits = spill.loaded,
                              .misses = spill.damaged,
                              .evictions = spill.dropped});
  }
  status->resident_bytes = ResidentBytes();
  const Metrics::Totals totals = backend.metrics().totals();
  status->jobs_ended = Total(totals.jobs_by_state);
  status->jobs_refused = Total(totals.refused);
  status->bytes_received = totals.bytes_received;
  status->bytes_sent = totals.bytes_sent;
  status->counters = {CountersOf("jobs ended", totals.jobs_by_state),
                      CountersOf("errors of jobs", totals.jobs_by_reason),
                      CountersOf("jobs refused", totals.refused),
                      CountersOf("right-hand sides", totals.outcomes),
                      CountersOf("columns and rows of builds", totals.columns),
                      CountersOf("work spared", {{"builds that shared a job", totals.shared},
                                                 {"preconditioners found", totals.reused},
                                                 {"plans found", totals.rebuilds}}),
                      CountersOf("spill folder", {{"bytes written", spill.written_bytes},
                                                  {"bytes read back", spill.read_bytes},
                                                  {"not written", spill.refused},
                                                  {"damaged", spill.damaged}}),
                      CountersOf("streams", {{"cut as nobody read", totals.stalled_readers}})};
}

}  // namespace

ServerStatus CollectStatus(Backend& backend, const std::string& address) {
  ServerStatus status{.version = backend.options().version,
                      .address = address,
                      .cuda = backend.options().cuda_status,
                      .start = backend.start_time(),
                      .now = RealClock().WallNow(),
                      .ready = backend.ready(),
                      .draining = backend.draining()};
  AddDevices(backend, &status);
  AddQueue(backend, &status);
  AddJobs(backend, &status);
  AddFigures(backend, &status);
  return status;
}

}  // namespace spaid::server
