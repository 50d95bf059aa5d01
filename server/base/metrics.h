// Every metric of the daemon, declared once. prometheus-cpp families behind plain functions, so
// that only metrics.cc pays for its headers. Histograms have fixed buckets; there are no summaries.
//
//   Metrics metrics;
//   metrics.JobEnded("build", "succeeded", queue_seconds, run_seconds);
//   metrics.OnScrape([&] { metrics.SetStore("matrices", store.Stats()...); });
//   response.set_content(metrics.Serialize(), Metrics::kContentType);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "server/base/process.h"

namespace spaid::server {

// Thread-safe.
class Metrics {
 public:
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Count jobs. `kind`: "build", "solve". `state`: "succeeded", "failed", "cancelled". `reason`:
  // that of the error, else empty.
  void JobSubmitted(std::string_view kind);
  void JobRefused(std::string_view kind, std::string_view reason);
  void JobEnded(std::string_view kind, std::string_view state, std::string_view reason,
                double queue_seconds, double run_seconds);
  void JobShared();  // a build that attached to one in flight
  // Counts a job that has stopped after it was told to: the `stage` it was in ("queued", "plan",
  // "solve"), the `cause` ("cancelled", "deadline") and how long it took to stop.
  void JobStopped(std::string_view stage, std::string_view cause, double seconds);
  void SetQueue(int64_t queued, int64_t running, double eta_seconds);
  void SetPaused(int64_t jobs);  // running jobs that are paused
  // Sets the device time that a tenant's jobs have taken since the start, for chargeback; "": all
  // tenants that are not told apart.
  void SetTenantTime(std::string_view tenant, double device_seconds);
  // Sets the queue of one class (`priority`: "bulk") and its predicted device time.
  void SetQueueClass(std::string_view priority, int64_t queued, double device_seconds);
  // Sets the ratio of measured to predicted time. `work`: "build static-spai", "solve".
  void SetEstimateRatio(std::string_view device, std::string_view work, double ratio);

  // Counts columns of M by what became of them. `what`: "iterative", "not_converged", "rescued",
  // "rank_deficient", "zero", "non_finite", "left_to_host"; for dynamic SPAI also "dependent"; for
  // rows of FSAI's G "not_converged", "not_spd".
  void Columns(std::string_view what, int64_t count);
  // Observes the time of one phase: "plan", "build", "assemble", on a GPU also "host_to_device",
  // "device_to_host".
  void BuildPhase(std::string_view phase, double seconds);
  void Rebuild();  // a build whose plan was cached
  void Reused();   // a preconditioner that was there already
  void SolveEnded(std::string_view method, std::string_view outcome, int64_t iterations,
                  double seconds);

  // Stores and caches; set at scrape time. `store`: "matrices", "preconditioners", "plans".
  struct StoreFigures {
    int64_t entries = 0, bytes = 0, limit_bytes = 0, reserved_bytes = 0;
    int64_t hits = 0, misses = 0, evictions = 0;  // since the start
    int64_t tenants = 0;                          // sharing it, as far as they are told apart
  };
  void SetStore(std::string_view store, const StoreFigures& figures);

  // --spill-dir; set at scrape time. Counts are since the start.
  struct SpillFigures {
    int64_t records = 0, files = 0, bytes = 0, limit_bytes = 0;
    int64_t written_bytes = 0, read_bytes = 0;
    int64_t loaded = 0, refused = 0, dropped = 0, damaged = 0;
  };
  void SetSpill(const SpillFigures& figures);

  // Wire. `method`: "SolverService/Solve". `code`: "OK", "INVALID_ARGUMENT".
  void RpcStarted(std::string_view method);
  void RpcEnded(std::string_view method, std::string_view code, std::string_view reason,
                double seconds);
  void BytesReceived(int64_t bytes);
  // Counts bytes of a matrix's arrays, as stored, that a client need not send, since they were
  // here. `by`: "content", the whole matrix; "pattern", that of new values.
  void BytesSaved(std::string_view by, int64_t bytes);
  // Counts bytes of values that went to a GPU while the matrix still came. `what`: "sent"; once it
  // is known what became of these "taken" by a computation, or "wasted".
  void AheadBytes(std::string_view what, int64_t bytes);
  void BytesSent(int64_t bytes);
  void StalledReader();
  void SetOutgoingBytes(int64_t bytes);  // held for readers, all streams
  void SetStreams(int64_t open, int64_t limit);
  void SetCalls(int64_t open, int64_t limit);  // streams, plain calls, those without a request
  // Counts calls that ended before their request arrived. `reason`: "STALLED_SENDER".
  void CallWithoutRequest(std::string_view reason);
  void SetConnections(int64_t open, int64_t limit);
  // `limit`: "total", "peer", "descriptors".
  void ConnectionRefused(std::string_view limit);
  // `why`: "resets", "bytes", "calls", "idle", "room".
  void ConnectionCut(std::string_view why);
  void SelfProbeFailed();
  void SetPreparing(int64_t queued, int64_t limit);  // requests that wait for the executor
  // --local-socket: its connections, the segments that clients share, bytes of arrays copied from
  // and to these (`direction`: "read", "written"), requests refused.
  void SetLocalConnections(int64_t open, int64_t limit);
  void SetSegments(int64_t segments, int64_t limit);
  void SegmentBytes(std::string_view direction, int64_t bytes);
  void LocalRefused(std::string_view reason);
  void SetBuffers(std::string_view buffer, int64_t bytes, int64_t limit_bytes);

  // Sets the state of a device. `device`: "cpu", "gpu:0". Bytes are for GPUs only (limit 0: none).
  void SetDevice(std::string_view device, bool healthy, int64_t used_bytes, int64_t limit_bytes);

  // Process.
  void SetBuildInfo(std::string_view version);
  void SetReady(bool ready);
  void SetDraining(bool draining);
  void SetProcess(const ProcessFigures& figures);  // by the standard names process_...
  void SetMemoryLimit(int64_t bytes);              // that the process may use
  // Sets when the first certificate of a file expires, in seconds since 1970. `file`: "tls-cert".
  void SetCertificateExpiry(std::string_view file, int64_t seconds);
  void SetFreedArrayBytes(int64_t bytes);
  // Sets lines since the start: dropped unwritten; repeats that were summed up.
  void SetLog(int64_t dropped, int64_t suppressed);
  // Sets spans since the start: exported; dropped as too many waited, or as nobody took them.
  void SetSpans(int64_t exported, int64_t queue_full, int64_t failed);

  // The operator's port; set at scrape time. Connections cut since the start: to make room for
  // others, by the timeout, for a head that is too large.
  struct OpsFigures {
    int64_t open = 0, limit = 0;
    int64_t crowded_out = 0, timed_out = 0, too_large = 0;
  };
  void SetOps(const OpsFigures& figures);

  // Sums of the counters since the start, by fewer labels: for the status page.
  struct Totals {
    std::map<std::string, int64_t> jobs_by_state, jobs_by_reason;  // ended; reasons of errors
    std::map<std::string, int64_t> refused;                        // by reason
    std::map<std::string, int64_t> columns;                        // by what became of them
    std::map<std::string, int64_t> outcomes;                       // one per right-hand side
    int64_t shared = 0, rebuilds = 0, reused = 0;
    int64_t bytes_received = 0, bytes_sent = 0, stalled_readers = 0;
  };
  Totals totals() const;

  // Registers a hook that every Serialize runs first, on its thread: the place to set gauges.
  void OnScrape(std::function<void()> hook);
  // Runs the hooks and returns all metrics in Prometheus' text format. `with_tenants`: those that
  // name tenants, too.
  std::string Serialize(bool with_tenants = true) const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace spaid::server
