#include "server/base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <initializer_list>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spaid::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

// One set for every duration, 1 ms to 17 min by steps of four: queries can compare any two.
const Histogram::BucketBoundaries& Seconds() {
  static const auto* bounds =
      new Histogram::BucketBoundaries{0.001, 0.004, 0.016, 0.064, 0.25, 1, 4, 16, 64, 256, 1024};
  return *bounds;
}
const Histogram::BucketBoundaries& Iterations() {
  static const auto* bounds =
      new Histogram::BucketBoundaries{1, 3, 10, 30, 100, 300, 1000, 3000, 10000};
  return *bounds;
}

// Counters that are kept elsewhere: brings `counter` up to `total`.
void CatchUp(Counter& counter, double total) {
  const double missing = total - counter.Value();
  if (missing > 0) counter.Increment(missing);
}
void CatchUp(Counter& counter, int64_t total) { CatchUp(counter, static_cast<double>(total)); }

std::string S(std::string_view v) { return std::string(v); }

// A family's metrics by the values of its labels. Found by them here, without the label map that
// prometheus-cpp makes and hashes for each look: several of these are counted for every job.
// Thread-safe.
template <class Metric>
class ByLabels {
 public:
  ByLabels(Family<Metric>& family, std::vector<std::string> names,
           const Histogram::BucketBoundaries* buckets = nullptr)
      : family_(family), names_(std::move(names)), buckets_(buckets) {}

  // `values`: as many as there are names; without zero bytes.
  Metric& Of(std::initializer_list<std::string_view> values) {
    std::string key;
    for (const std::string_view value : values) key.append(value).push_back('\0');
    {
      const std::shared_lock lock(mutex_);
      if (const auto it = metrics_.find(key); it != metrics_.end()) return *it->second;
    }
    prometheus::Labels labels;
    auto name = names_.begin();
    for (const std::string_view value : values) labels.emplace(*name++, S(value));
    const std::lock_guard lock(mutex_);
    Metric*& metric = metrics_[std::move(key)];
    if (metric == nullptr) metric = &Add(labels);
    return *metric;
  }
  const Family<Metric>& family() const { return family_; }

 private:
  Metric& Add(const prometheus::Labels& labels) {
    if constexpr (std::is_same_v<Metric, Histogram>) {
      return family_.Add(labels, *buckets_);
    } else {
      return family_.Add(labels);
    }
  }

  Family<Metric>& family_;
  const std::vector<std::string> names_;
  const Histogram::BucketBoundaries* const buckets_;
  std::shared_mutex mutex_;
  std::unordered_map<std::string, Metric*> metrics_;  // which are never removed
};

int64_t Count(const Counter& counter) { return static_cast<int64_t>(counter.Value()); }

// Sums by the value of one label; where it is empty, nothing was to be said.
std::map<std::string, int64_t> SumsBy(std::string_view label, const Family<Counter>& family) {
  std::map<std::string, int64_t> sums;
  for (const auto& collected : family.Collect()) {
    for (const auto& metric : collected.metric) {
      for (const auto& [name, value] : metric.label) {
        if (name == label && !value.empty()) {
          sums[value] += static_cast<int64_t>(metric.counter.value);
        }
      }
    }
  }
  return sums;
}

}  // namespace

struct Metrics::Families {
  prometheus::Registry registry, of_tenants;

  Family<Counter>& AddCounter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Family<Gauge>& AddGauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  Family<Histogram>& AddHistogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  }

  ByLabels<Counter> jobs_submitted{
      AddCounter("spaid_jobs_submitted_total", "Jobs asked for, refused ones included."), {"kind"}};
  ByLabels<Counter> jobs_refused{
      AddCounter("spaid_jobs_refused_total", "Jobs refused before they were queued, by reason."),
      {"kind", "reason"}};
  ByLabels<Counter> jobs_ended{
      AddCounter("spaid_jobs_ended_total", "Jobs ended, by state and (of errors) reason."),
      {"kind", "state", "reason"}};
  Counter& jobs_shared =
      AddCounter("spaid_jobs_shared_total", "Builds that joined an identical one in flight.")
          .Add({});
  ByLabels<Histogram> job_queue_seconds{
      AddHistogram("spaid_job_queue_seconds", "Time of a job from queued to started or ended."),
      {"kind"},
      &Seconds()};
  ByLabels<Histogram> job_run_seconds{
      AddHistogram("spaid_job_run_seconds", "Time of a job from started to ended."),
      {"kind"},
      &Seconds()};
  ByLabels<Histogram> job_stop_seconds{
      AddHistogram("spaid_job_stop_seconds",
                   "Time from when a job was told to stop to its end, by the stage it was in."),
      {"stage", "cause"},
      &Seconds()};
  Family<Gauge>& queue_jobs =
      AddGauge("spaid_queue_jobs", "Jobs that wait for a worker, by priority.");
  Family<Gauge>& queue_device_seconds = AddGauge(
      "spaid_queue_device_seconds", "Predicted time of devices that they take, by priority.");
  Family<Gauge>& estimate_ratio =
      AddGauge("spaid_estimate_ratio",
               "What jobs took over what was predicted, by device and kind of work.");
  Gauge& queued = AddGauge("spaid_jobs_queued", "Jobs that wait for a worker.").Add({});
  Gauge& running = AddGauge("spaid_jobs_running", "Jobs that run.").Add({});
  Gauge& paused =
      AddGauge("spaid_jobs_paused", "Of these, those that wait for their next turn.").Add({});
  Family<Counter>& tenant_seconds =
      prometheus::BuildCounter()
          .Name("spaid_tenant_device_seconds_total")
          .Help("Device time that a tenant's jobs took; without a name, of all not told apart.")
          .Register(of_tenants);
  Gauge& eta = AddGauge("spaid_queue_eta_seconds", "Estimated wait of a job sent now.").Add({});

  ByLabels<Counter> columns{
      AddCounter("spaid_build_columns_total",
                 "Columns of M by what became of them: solved iteratively, of "
                 "these not_converged, rescued by QR, rank_deficient, "
                 "zero, non_finite; of builds on a GPU left_to_host; of dynamic SPAI dependent. Of "
                 "FSAI rows of G: not_converged, not_spd."),
      {"what"}};
  ByLabels<Histogram> build_phase{
      AddHistogram("spaid_build_phase_seconds", "Time of the phases of a build."),
      {"phase"},
      &Seconds()};
  Counter& rebuilds =
      AddCounter("spaid_rebuilds_total", "Builds whose plan came from the cache.").Add({});
  Counter& reused =
      AddCounter("spaid_preconditioners_reused_total", "Requests served by a finished one.")
          .Add({});
  ByLabels<Counter> solves{AddCounter("spaid_solves_total", "Right-hand sides by outcome."),
                           {"method", "outcome"}};
  ByLabels<Histogram> solve_iterations{
      AddHistogram("spaid_solve_iterations", "Iterations of a right-hand side."),
      {"method"},
      &Iterations()};
  ByLabels<Histogram> solve_seconds{
      AddHistogram("spaid_solve_seconds", "Time of a solve."), {"method"}, &Seconds()};

  Family<Gauge>& store_entries = AddGauge("spaid_store_entries", "Entries of a store or cache.");
  Family<Gauge>& store_bytes = AddGauge("spaid_store_bytes", "Bytes that a store or cache holds.");
  Family<Gauge>& store_limit = AddGauge("spaid_store_limit_bytes", "Bytes that it may hold.");
  Family<Gauge>& store_reserved =
      AddGauge("spaid_store_reserved_bytes", "Bytes announced by uploads in flight.");
  Family<Counter>& store_hits =
      AddCounter("spaid_store_hits_total", "Look-ups that found something.");
  Family<Counter>& store_misses = AddCounter("spaid_store_misses_total", "Look-ups that did not.");
  Family<Gauge>& store_tenants = AddGauge(
      "spaid_store_tenants", "Tenants that have something there, as far as they are told apart.");
  Family<Counter>& store_evictions =
      AddCounter("spaid_store_evictions_total", "Entries dropped for room.");

  Gauge& spill_records =
      AddGauge("spaid_spill_records", "Things that --spill-dir has, promised jobs among them.")
          .Add({});
  Gauge& spill_files = AddGauge("spaid_spill_files", "Files of --spill-dir.").Add({});
  Gauge& spill_bytes = AddGauge("spaid_spill_bytes", "Bytes of --spill-dir.").Add({});
  Gauge& spill_limit = AddGauge("spaid_spill_limit_bytes", "Bytes that it may have.").Add({});
  Counter& spill_written =
      AddCounter("spaid_spill_written_bytes_total", "Bytes of files written there.").Add({});
  Counter& spill_read =
      AddCounter("spaid_spill_read_bytes_total", "Bytes of arrays read back.").Add({});
  Counter& spill_loaded =
      AddCounter("spaid_spill_loaded_total", "Arrays that were read back.").Add({});
  Counter& spill_refused =
      AddCounter("spaid_spill_refused_total", "Things that could not be written.").Add({});
  Counter& spill_dropped =
      AddCounter("spaid_spill_dropped_total", "Things that went from there for room.").Add({});
  Counter& spill_damaged =
      AddCounter("spaid_spill_damaged_total", "Files and indices that did not verify.").Add({});

  ByLabels<Counter> rpcs_started{AddCounter("spaid_rpcs_started_total", "RPCs begun."), {"method"}};
  ByLabels<Counter> rpcs_ended{
      AddCounter("spaid_rpcs_ended_total", "RPCs ended, by code and reason."),
      {"method", "code", "reason"}};
  ByLabels<Gauge> rpcs_live{AddGauge("spaid_rpcs_live", "RPCs in flight."), {"method"}};
  ByLabels<Histogram> rpc_seconds{
      AddHistogram("spaid_rpc_seconds", "Time of an RPC."), {"method"}, &Seconds()};
  Counter& bytes_received =
      AddCounter("spaid_array_bytes_received_total", "Bytes of arrays received.").Add({});
  ByLabels<Counter> ahead_bytes{
      AddCounter("spaid_ahead_bytes_total",
                 "Bytes of values sent to a GPU while the matrix came; of these taken by a "
                 "computation, and wasted."),
      {"what"}};
  ByLabels<Counter> bytes_saved{
      AddCounter("spaid_array_bytes_saved_total",
                 "Bytes of arrays that need not come, as the content or its pattern was here."),
      {"by"}};
  Counter& bytes_sent = AddCounter("spaid_array_bytes_sent_total", "Bytes of arrays sent.").Add({});
  Counter& stalled =
      AddCounter("spaid_stalled_readers_total", "Streams cut as nobody read them.").Add({});
  Gauge& outgoing = AddGauge("spaid_outgoing_bytes", "Bytes held for readers of streams.").Add({});
  Gauge& streams_open = AddGauge("spaid_streams_open", "Streams open.").Add({});
  Gauge& streams_limit = AddGauge("spaid_streams_limit", "Streams that may be open.").Add({});
  Gauge& calls = AddGauge("spaid_calls_open", "Calls open, those without a request too.").Add({});
  Gauge& calls_limit = AddGauge("spaid_calls_limit", "Calls that may be open.").Add({});
  ByLabels<Counter> calls_unasked{AddCounter("spaid_calls_without_request_total",
                                             "Calls that ended before their request came."),
                                  {"reason"}};
  Gauge& connections = AddGauge("spaid_connections_open", "Connections of clients.").Add({});
  Gauge& connections_limit =
      AddGauge("spaid_connections_limit", "Connections that may be open.").Add({});
  ByLabels<Counter> connections_refused{
      AddCounter("spaid_connections_refused_total", "Connections hung up on, by the limit."),
      {"limit"}};
  ByLabels<Counter> connections_cut{
      AddCounter("spaid_connections_cut_total", "Connections cut, by what they were over."),
      {"why"}};
  Counter& self_probe_failures =
      AddCounter("spaid_self_probe_failures_total", "Times that the own port did not answer.")
          .Add({});
  Gauge& preparing =
      AddGauge("spaid_preparing_queued", "Requests that wait to be validated or estimated.")
          .Add({});
  Gauge& preparing_limit = AddGauge("spaid_preparing_limit", "Requests that may wait so.").Add({});
  Gauge& local_connections =
      AddGauge("spaid_local_connections", "Connections of --local-socket.").Add({});
  Gauge& local_connections_limit =
      AddGauge("spaid_local_connections_limit", "Connections that it may have.").Add({});
  Gauge& segments =
      AddGauge("spaid_local_segments", "Segments of memory that local clients share.").Add({});
  Gauge& segments_limit =
      AddGauge("spaid_local_segments_limit", "Segments that they may share.").Add({});
  ByLabels<Counter> segment_bytes{
      AddCounter("spaid_local_array_bytes_total",
                 "Bytes of arrays copied from segments (read) and to them (written)."),
      {"direction"}};
  ByLabels<Counter> local_refused{
      AddCounter("spaid_local_refused_total", "Requests of --local-socket refused, by reason."),
      {"reason"}};
  Family<Gauge>& buffer_bytes = AddGauge("spaid_buffer_bytes", "Bytes of a budget in use.");
  Family<Gauge>& buffer_limit = AddGauge("spaid_buffer_limit_bytes", "Bytes of a budget.");

  Family<Gauge>& device_healthy =
      AddGauge("spaid_device_healthy", "1 while the device takes work; 0: it was lost.");
  Family<Gauge>& device_bytes = AddGauge(
      "spaid_device_memory_bytes", "Bytes of a GPU that the daemon took, when it last was idle.");
  Family<Gauge>& device_limit =
      AddGauge("spaid_device_memory_limit_bytes", "Bytes of a GPU that the daemon may take.");

  Family<Gauge>& build_info =
      AddGauge("spaid_build_info", "1; the labels say which build this is.");
  Gauge& ready = AddGauge("spaid_ready", "1 while work is accepted.").Add({});
  Gauge& draining = AddGauge("spaid_draining", "1 from SIGTERM on.").Add({});
  // By the names that all exporters have for them.
  Counter& process_cpu =
      AddCounter("process_cpu_seconds_total", "CPU time of the daemon, all threads.").Add({});
  Gauge& process_resident =
      AddGauge("process_resident_memory_bytes", "Resident set size of the daemon.").Add({});
  Gauge& process_descriptors =
      AddGauge("process_open_fds", "Descriptors that the daemon has open.").Add({});
  Gauge& process_max_descriptors =
      AddGauge("process_max_fds", "Descriptors that it may have open.").Add({});
  Gauge& process_start =
      AddGauge("process_start_time_seconds", "When it was started, in seconds since 1970.").Add({});
  Gauge& memory_limit =
      AddGauge("spaid_memory_limit_bytes",
               "Memory that the daemon may use: its cgroup's limit, or the machine's.")
          .Add({});
  Family<Gauge>& certificate_expiry =
      AddGauge("spaid_tls_certificate_expiry_seconds",
               "When the first certificate of a file expires, in seconds since 1970.");
  Gauge& freed = AddGauge("spaid_freed_array_bytes",
                          "Memory of freed arrays that is kept a few seconds for the next ones.")
                     .Add({});
  Counter& log_dropped =
      AddCounter("spaid_log_lines_dropped_total", "Lines that nobody read in time.").Add({});
  Counter& log_suppressed =
      AddCounter("spaid_log_lines_suppressed_total", "Repeated lines that were summed up.").Add({});
  Counter& spans_exported =
      AddCounter("spaid_spans_exported_total", "Spans that a collector has taken.").Add({});
  Family<Counter>& spans_dropped = AddCounter(
      "spaid_spans_dropped_total", "Spans that nobody has: too many waited, or no collector did.");
  Gauge& ops_open =
      AddGauge("spaid_ops_connections", "Connections of the operator's port.").Add({});
  Gauge& ops_limit =
      AddGauge("spaid_ops_connections_limit", "Connections that it may have.").Add({});
  Family<Counter>& ops_cut = AddCounter(
      "spaid_ops_connections_cut_total",
      "Connections of the operator's port that were cut: crowded_out, timed_out, too_large.");

  std::mutex mutex;  // guards the hooks, and lets one Serialize run at a time
  std::vector<std::function<void()>> hooks;
};

Metrics::Metrics() : families_(std::make_unique<Families>()) {}
Metrics::~Metrics() = default;

void Metrics::JobSubmitted(std::string_view kind) {
  families_->jobs_submitted.Of({kind}).Increment();
}

void Metrics::JobRefused(std::string_view kind, std::string_view reason) {
  families_->jobs_refused.Of({kind, reason}).Increment();
}

void Metrics::JobEnded(std::string_view kind, std::string_view state, std::string_view reason,
                       double queue_seconds, double run_seconds) {
  families_->jobs_ended.Of({kind, state, reason}).Increment();
  families_->job_queue_seconds.Of({kind}).Observe(queue_seconds);
  families_->job_run_seconds.Of({kind}).Observe(run_seconds);
}

void Metrics::JobShared() { families_->jobs_shared.Increment(); }

void Metrics::JobStopped(std::string_view stage, std::string_view cause, double seconds) {
  families_->job_stop_seconds.Of({stage, cause}).Observe(seconds);
}

void Metrics::SetQueueClass(std::string_view priority, int64_t queued, double device_seconds) {
  families_->queue_jobs.Add({{"priority", S(priority)}}).Set(static_cast<double>(queued));
  families_->queue_device_seconds.Add({{"priority", S(priority)}}).Set(device_seconds);
}

void Metrics::SetEstimateRatio(std::string_view device, std::string_view work, double ratio) {
  families_->estimate_ratio.Add({{"device", S(device)}, {"work", S(work)}}).Set(ratio);
}

void Metrics::SetQueue(int64_t queued, int64_t running, double eta_seconds) {
  families_->queued.Set(static_cast<double>(queued));
  families_->running.Set(static_cast<double>(running));
  families_->eta.Set(eta_seconds);
}

void Metrics::SetPaused(int64_t jobs) { families_->paused.Set(static_cast<double>(jobs)); }

void Metrics::SetTenantTime(std::string_view tenant, double device_seconds) {
  CatchUp(families_->tenant_seconds.Add({{"tenant", S(tenant)}}), device_seconds);
}

void Metrics::Columns(std::string_view what, int64_t count) {
  families_->columns.Of({what}).Increment(static_cast<double>(count));
}

void Metrics::BuildPhase(std::string_view phase, double seconds) {
  families_->build_phase.Of({phase}).Observe(seconds);
}

void Metrics::Rebuild() { families_->rebuilds.Increment(); }
void Metrics::Reused() { families_->reused.Increment(); }

void Metrics::SolveEnded(std::string_view method, std::string_view outcome, int64_t iterations,
                         double seconds) {
  families_->solves.Of({method, outcome}).Increment();
  families_->solve_iterations.Of({method}).Observe(static_cast<double>(iterations));
  families_->solve_seconds.Of({method}).Observe(seconds);
}

void Metrics::SetStore(std::string_view store, const StoreFigures& figures) {
  const prometheus::Labels labels{{"store", S(store)}};
  families_->store_entries.Add(labels).Set(static_cast<double>(figures.entries));
  families_->store_bytes.Add(labels).Set(static_cast<double>(figures.bytes));
  families_->store_limit.Add(labels).Set(static_cast<double>(figures.limit_bytes));
  families_->store_reserved.Add(labels).Set(static_cast<double>(figures.reserved_bytes));
  CatchUp(families_->store_hits.Add(labels), figures.hits);
  CatchUp(families_->store_misses.Add(labels), figures.misses);
  families_->store_tenants.Add(labels).Set(static_cast<double>(figures.tenants));
  CatchUp(families_->store_evictions.Add(labels), figures.evictions);
}

void Metrics::SetSpill(const SpillFigures& figures) {
  families_->spill_records.Set(static_cast<double>(figures.records));
  families_->spill_files.Set(static_cast<double>(figures.files));
  families_->spill_bytes.Set(static_cast<double>(figures.bytes));
  families_->spill_limit.Set(static_cast<double>(figures.limit_bytes));
  CatchUp(families_->spill_written, figures.written_bytes);
  CatchUp(families_->spill_read, figures.read_bytes);
  CatchUp(families_->spill_loaded, figures.loaded);
  CatchUp(families_->spill_refused, figures.refused);
  CatchUp(families_->spill_dropped, figures.dropped);
  CatchUp(families_->spill_damaged, figures.damaged);
}

void Metrics::RpcStarted(std::string_view method) {
  families_->rpcs_started.Of({method}).Increment();
  families_->rpcs_live.Of({method}).Increment();
}

void Metrics::RpcEnded(std::string_view method, std::string_view code, std::string_view reason,
                       double seconds) {
  families_->rpcs_live.Of({method}).Decrement();
  families_->rpcs_ended.Of({method, code, reason}).Increment();
  families_->rpc_seconds.Of({method}).Observe(seconds);
}

void Metrics::AheadBytes(std::string_view what, int64_t bytes) {
  families_->ahead_bytes.Of({what}).Increment(static_cast<double>(bytes));
}

void Metrics::BytesReceived(int64_t bytes) {
  families_->bytes_received.Increment(static_cast<double>(bytes));
}
void Metrics::BytesSaved(std::string_view by, int64_t bytes) {
  families_->bytes_saved.Of({by}).Increment(static_cast<double>(bytes));
}
void Metrics::BytesSent(int64_t bytes) {
  families_->bytes_sent.Increment(static_cast<double>(bytes));
}
void Metrics::StalledReader() { families_->stalled.Increment(); }
void Metrics::SetOutgoingBytes(int64_t bytes) {
  families_->outgoing.Set(static_cast<double>(bytes));
}

void Metrics::SetStreams(int64_t open, int64_t limit) {
  families_->streams_open.Set(static_cast<double>(open));
  families_->streams_limit.Set(static_cast<double>(limit));
}
void Metrics::SetCalls(int64_t open, int64_t limit) {
  families_->calls.Set(static_cast<double>(open));
  families_->calls_limit.Set(static_cast<double>(limit));
}
void Metrics::CallWithoutRequest(std::string_view reason) {
  families_->calls_unasked.Of({reason}).Increment();
}
void Metrics::SetConnections(int64_t open, int64_t limit) {
  families_->connections.Set(static_cast<double>(open));
  families_->connections_limit.Set(static_cast<double>(limit));
}
void Metrics::ConnectionRefused(std::string_view limit) {
  families_->connections_refused.Of({limit}).Increment();
}
void Metrics::ConnectionCut(std::string_view why) {
  families_->connections_cut.Of({why}).Increment();
}
void Metrics::SelfProbeFailed() { families_->self_probe_failures.Increment(); }
void Metrics::SetPreparing(int64_t queued, int64_t limit) {
  families_->preparing.Set(static_cast<double>(queued));
  families_->preparing_limit.Set(static_cast<double>(limit));
}

void Metrics::SetLocalConnections(int64_t open, int64_t limit) {
  families_->local_connections.Set(static_cast<double>(open));
  families_->local_connections_limit.Set(static_cast<double>(limit));
}
void Metrics::SetSegments(int64_t segments, int64_t limit) {
  families_->segments.Set(static_cast<double>(segments));
  families_->segments_limit.Set(static_cast<double>(limit));
}
void Metrics::SegmentBytes(std::string_view direction, int64_t bytes) {
  families_->segment_bytes.Of({direction}).Increment(static_cast<double>(bytes));
}
void Metrics::LocalRefused(std::string_view reason) {
  families_->local_refused.Of({reason}).Increment();
}

void Metrics::SetBuffers(std::string_view buffer, int64_t bytes, int64_t limit_bytes) {
  families_->buffer_bytes.Add({{"buffer", S(buffer)}}).Set(static_cast<double>(bytes));
  families_->buffer_limit.Add({{"buffer", S(buffer)}}).Set(static_cast<double>(limit_bytes));
}

void Metrics::SetDevice(std::string_view device, bool healthy, int64_t used_bytes,
                        int64_t limit_bytes) {
  const prometheus::Labels labels{{"device", S(device)}};
  families_->device_healthy.Add(labels).Set(healthy ? 1 : 0);
  if (limit_bytes <= 0) return;
  families_->device_bytes.Add(labels).Set(static_cast<double>(used_bytes));
  families_->device_limit.Add(labels).Set(static_cast<double>(limit_bytes));
}

void Metrics::SetBuildInfo(std::string_view version) {
  families_->build_info.Add({{"version", S(version)}}).Set(1);
}
void Metrics::SetReady(bool ready) { families_->ready.Set(ready ? 1 : 0); }
void Metrics::SetDraining(bool draining) { families_->draining.Set(draining ? 1 : 0); }
void Metrics::SetLog(int64_t dropped, int64_t suppressed) {
  CatchUp(families_->log_dropped, dropped);
  CatchUp(families_->log_suppressed, suppressed);
}

void Metrics::SetSpans(int64_t exported, int64_t queue_full, int64_t failed) {
  CatchUp(families_->spans_exported, exported);
  CatchUp(families_->spans_dropped.Add({{"reason", "queue_full"}}), queue_full);
  CatchUp(families_->spans_dropped.Add({{"reason", "not_exported"}}), failed);
}

void Metrics::SetOps(const OpsFigures& figures) {
  families_->ops_open.Set(static_cast<double>(figures.open));
  families_->ops_limit.Set(static_cast<double>(figures.limit));
  CatchUp(families_->ops_cut.Add({{"why", "crowded_out"}}), figures.crowded_out);
  CatchUp(families_->ops_cut.Add({{"why", "timed_out"}}), figures.timed_out);
  CatchUp(families_->ops_cut.Add({{"why", "too_large"}}), figures.too_large);
}

void Metrics::SetFreedArrayBytes(int64_t bytes) {
  families_->freed.Set(static_cast<double>(bytes));
}

void Metrics::SetProcess(const ProcessFigures& figures) {
  CatchUp(families_->process_cpu, figures.cpu_seconds);
  families_->process_resident.Set(static_cast<double>(figures.resident_bytes));
  families_->process_descriptors.Set(static_cast<double>(figures.open_descriptors));
  families_->process_max_descriptors.Set(static_cast<double>(figures.max_descriptors));
  families_->process_start.Set(figures.start_seconds);
}

void Metrics::SetMemoryLimit(int64_t bytes) {
  families_->memory_limit.Set(static_cast<double>(bytes));
}

void Metrics::SetCertificateExpiry(std::string_view file, int64_t seconds) {
  families_->certificate_expiry.Add({{"file", S(file)}}).Set(static_cast<double>(seconds));
}

Metrics::Totals Metrics::totals() const {
  const Families& f = *families_;
  return {.jobs_by_state = SumsBy("state", f.jobs_ended.family()),
          .jobs_by_reason = SumsBy("reason", f.jobs_ended.family()),
          .refused = SumsBy("reason", f.jobs_refused.family()),
          .columns = SumsBy("what", f.columns.family()),
          .outcomes = SumsBy("outcome", f.solves.family()),
          .shared = Count(f.jobs_shared),
          .rebuilds = Count(f.rebuilds),
          .reused = Count(f.reused),
          .bytes_received = Count(f.bytes_received),
          .bytes_sent = Count(f.bytes_sent),
          .stalled_readers = Count(f.stalled)};
}

void Metrics::OnScrape(std::function<void()> hook) {
  std::lock_guard lock(families_->mutex);
  families_->hooks.push_back(std::move(hook));
}

std::string Metrics::Serialize(bool with_tenants) const {
  std::lock_guard lock(families_->mutex);
  for (const auto& hook : families_->hooks) hook();
  auto collected = families_->registry.Collect();
  if (with_tenants) {
    for (auto& family : families_->of_tenants.Collect()) collected.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(collected);
}

}  // namespace spaid::server
