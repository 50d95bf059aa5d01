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

namespace spaid::server {

// Thread-safe.
class Metrics {
 public:
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Jobs. `kind`: "build", "solve". `state`: "succeeded", "failed", "cancelled". `reason`: of an
  // error.
  void JobSubmitted(std::string_view kind);
  void JobRefused(std::string_view kind, std::string_view reason);
  void JobEnded(std::string_view kind, std::string_view state, std::string_view reason,
                double queue_seconds, double run_seconds);
  void JobShared();  // a build that attached to one in flight
  // A job that was told to stop, has: `stage` it was in ("queued", "plan", "solve"), `cause`
  // ("cancelled", "deadline"), the time that it took to.
  void JobStopped(std::string_view stage, std::string_view cause, double seconds);
  void SetQueue(int64_t queued, int64_t running, double eta_seconds);
  void SetPaused(int64_t jobs);  // of those that run
  // `priority`: "bulk". Of devices' time, as predicted.
  void SetQueueClass(std::string_view priority, int64_t queued, double device_seconds);
  // Measured over predicted time. `work`: "build static-spai", "solve".
  void SetEstimateRatio(std::string_view device, std::string_view work, double ratio);

  // Numerics. `what`: "iterative", "not_converged", "rescued", "rank_deficient", "zero",
  // "non_finite", "left_to_host"; of dynamic SPAI "dependent"; of rows of FSAI's G "not_converged",
  // "not_spd".
  void Columns(std::string_view what, int64_t count);
  // "plan", "build", "assemble"; on a GPU "host_to_device", "device_to_host" too.
  void BuildPhase(std::string_view phase, double seconds);
  void Rebuild();  // a build whose plan was cached
  void Reused();   // a preconditioner that was there already
  void SolveEnded(std::string_view method, std::string_view outcome, int64_t iterations,
                  double seconds);

  // Stores and caches; set at scrape time. `store`: "matrices", "preconditioners", "plans".
  struct StoreFigures {
    int64_t entries = 0, bytes = 0, limit_bytes = 0, reserved_bytes = 0;
    int64_t hits = 0, misses = 0, evictions = 0;  // since the start
    int64_t tenants = 0;                          // that share it, as far as they are told apart
  };
  void SetStore(std::string_view store, const StoreFigures& figures);

  // Wire. `method`: "SolverService/Solve". `code`: "OK", "INVALID_ARGUMENT".
  void RpcStarted(std::string_view method);
  void RpcEnded(std::string_view method, std::string_view code, std::string_view reason,
                double seconds);
  void BytesReceived(int64_t bytes);
  void BytesSent(int64_t bytes);
  void StalledReader();
  void SetOutgoingBytes(int64_t bytes);  // held for readers, all streams
  void SetStreams(int64_t open, int64_t limit);
  void SetCalls(int64_t open, int64_t limit);  // streams, plain calls, those without a request
  // Calls that ended before their request had come. `reason`: "STALLED_SENDER".
  void CallWithoutRequest(std::string_view reason);
  void SetConnections(int64_t open, int64_t limit);
  // `limit`: "total", "peer", "descriptors".
  void ConnectionRefused(std::string_view limit);
  // `why`: "resets", "bytes", "calls", "idle", "room".
  void ConnectionCut(std::string_view why);
  void SelfProbeFailed();
  void SetPreparing(int64_t queued, int64_t limit);  // requests that wait for the executor
  void SetBuffers(std::string_view buffer, int64_t bytes, int64_t limit_bytes);

  // Devices that work is placed on. `device`: "cpu", "gpu:0". Bytes of GPUs alone (limit 0: none).
  void SetDevice(std::string_view device, bool healthy, int64_t used_bytes, int64_t limit_bytes);

  // Process.
  void SetBuildInfo(std::string_view version);
  void SetReady(bool ready);
  void SetDraining(bool draining);
  void SetResidentBytes(int64_t bytes);
  void SetFreedArrayBytes(int64_t bytes);
  // Lines since the start: pushed out unwritten; repeats that were summed up.
  void SetLog(int64_t dropped, int64_t suppressed);

  // The operator's port; set at scrape time. Cut since the start: to make place for others, by the
  // timeout, with a head too large.
  struct OpsFigures {
    int64_t open = 0, limit = 0;
    int64_t crowded_out = 0, timed_out = 0, too_large = 0;
  };
  void SetOps(const OpsFigures& figures);

  // What was counted since the start, without the labels that are left out here: for people.
  struct Totals {
    std::map<std::string, int64_t> jobs_by_state, jobs_by_reason;  // ended; of errors
    std::map<std::string, int64_t> refused;                        // by reason
    std::map<std::string, int64_t> columns;                        // by what became of them
    std::map<std::string, int64_t> outcomes;                       // of right-hand sides
    int64_t shared = 0, rebuilds = 0, reused = 0;
    int64_t bytes_received = 0, bytes_sent = 0, stalled_readers = 0;
  };
  Totals totals() const;

  // Runs before every Serialize, on its thread: the place to set gauges.
  void OnScrape(std::function<void()> hook);
  // Prometheus text format. Runs the hooks first.
  std::string Serialize() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace spaid::server
