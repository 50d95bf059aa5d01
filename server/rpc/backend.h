// Holds everything that the services share, and the limits for clients.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/base/metrics.h"
#include "server/base/tenant_shares.h"
#include "server/engine/adapter.h"
#include "server/engine/job_factory.h"
#include "server/engine/stored_types.h"
#include "server/rpc/authentication.h"
#include "server/rpc/connections.h"
#include "server/rpc/executor.h"
#include "server/rpc/live_streams.h"
#include "server/rpc/segments.h"
#include "server/rpc/upload_table.h"
#include "server/sched/job_table.h"
#include "server/sched/scheduler.h"
#include "server/store/byte_budget.h"
#include "server/store/spill_writer.h"

namespace spaid::server {

class KeptJobs;

struct BackendOptions {
  const Tracer* tracer = nullptr;               // outlives the backend; null: no spans are made
  int64_t max_matrix_bytes = int64_t{1} << 30;  // per matrix, as stored
  int64_t matrix_store_bytes = int64_t{2} << 30;
  int64_t preconditioner_store_bytes = int64_t{2} << 30;
  int64_t plan_cache_bytes = int64_t{1} << 30;
  int64_t rhs_bytes = int64_t{1} << 30;  // right-hand sides and solutions in flight
  int64_t max_build_bytes = 0;           // estimated bytes of one build; 0: no limit
  int64_t max_inverse_unknowns = 10000;  // up to which AUTO has a rung of dense LU; 0: never
  int64_t max_queued_jobs = 1024;
  std::optional<int64_t> max_queued_jobs_per_tenant = {};  // none: half of all; 0: all
  int64_t max_detached_jobs_per_tenant = 128;  // queued or running; 0: no limit of its own
  int max_paused_jobs = 128;                   // per device; 0: no solve is ever paused
  int max_devices_per_job = 8;                 // GPUs that one build may be split over
  bool ranks_first = false;                    // as EngineAdapterOptions has it
  int64_t least_ahead_bytes = EngineAdapterOptions().least_ahead_bytes;
  int slots = 0;  // slots of the CPU: jobs side by side, all but one small; 0: by its cores
  std::chrono::milliseconds small_job{20};            // predicted
  std::map<std::string, double> tenant_weights = {};  // over 0; a tenant without one has 1
  int64_t max_tenants = ShareRules().max_tenants;     // told apart by shares
  int64_t ended_job_bytes = 64 << 20;                 // logs and outcomes of ended jobs
  // Limit for a job that names none; upper bound for any job; 0: none.
  std::chrono::milliseconds max_queue = std::chrono::hours(24), max_run = std::chrono::hours(1);
  std::chrono::milliseconds heartbeat{5'000};
  StreamLimits streams;
  ConnectionLimits connections;
  SegmentLimits segments;
  int threads = 0;  // per job; 0: all cores
  std::string version = "0.0.0";
  std::chrono::milliseconds probe_every{10'000};  // how often idle devices are checked
  bool exit_on_device_loss = false;               // else the server goes on with the other devices
  double hang_limit = 20;  // times its prediction that a job may be silent; 0: for ever
  std::chrono::milliseconds hang_floor{60'000};   // and at least this
  std::string cuda_status;                        // for GetServerInfo
  std::vector<kernels::DeviceInfo> idle_devices;  // listed, not used
  SpillFolder* spill = nullptr;  // borrowed; outlives the backend. Null: nothing is kept
};

// Returns how many places in the queue one tenant may take; 0: all of them.
int64_t MostQueuedOfTenant(const BackendOptions& options);

// Built once; thread-safe; outlives the gRPC server.
class Backend {
 public:
  // `engine` and `metrics` are borrowed and outlive the backend.
  Backend(BackendOptions options, const kernels::Engine& engine, Authenticator authenticator,
          Metrics* metrics);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const BackendOptions& options() const { return options_; }
  Authenticator& authenticator() { return authenticator_; }
  const EngineAdapter& adapter() const { return adapter_; }
  MatrixStore& matrices() { return matrices_; }
  PreconditionerStore& preconditioners() { return preconditioners_; }
  ByteBudget& rhs_budget() { return rhs_budget_; }
  JobTable& jobs() { return jobs_; }
  Scheduler& scheduler() { return scheduler_; }
  const Scheduler& scheduler() const { return scheduler_; }
  JobFactory& job_factory() { return job_factory_; }
  UploadTable& uploads() { return uploads_; }
  Connections& connections() { return connections_; }
  LiveStreams& streams() { return streams_; }
  Segments& segments() { return segments_; }
  // Null: no job is kept beyond the process.
  KeptJobs* kept_jobs() { return kept_jobs_.get(); }
  Metrics& metrics() { return *metrics_; }
  WallTime start_time() const { return start_time_; }

  // Executors for work off the reactors' threads: separate ones, so that long estimates do not hold
  // up uploads, the end of an upload does not hold up looks at arriving arrays, none of them holds
  // up results that are sent beside a computation, and who waits for ranks of MPI holds up nobody
  // else.
  enum class Pool { kStore, kCount, kLook, kSend, kRanks };
  // Runs `task` on that executor when it is its tenant's turn, and `failed` if it throws.
  // RESOURCE_EXHAUSTED/QUEUE_FULL, with a retry delay, if too many wait.
  absl::Status Run(Pool pool, const std::string& tenant, std::function<void()> task,
                   std::function<void(const absl::Status&)> failed);

  // Returns true if arriving arrays are looked at by another thread than the receiving one, which
  // pays only if there are cores for it. `sender_idle`: the client sends nothing meanwhile.
  bool look_aside(bool sender_idle = false) const;

  // Refuses calls with new work from now on; streams that have not asked for anything yet end at
  // once.
  void Refuse();
  // Returns UNAVAILABLE/DRAINING, with a retry delay, while draining.
  absl::Status CheckServing() const;
  // Returns true if the remaining devices suffice: all of them if the server is to end on the loss
  // of one; else any of them, including the CPU if it is among them, since the host's work runs
  // nowhere else.
  bool usable() const;
  // Lists the lost devices, each with its reason; empty: none.
  std::string LostDevices() const;
  void SetDraining() { draining_ = true; }
  bool draining() const { return draining_; }
  // Returns true if the server takes work: not draining, all devices measured, and usable().
  bool ready() const { return !draining_ && scheduler_.prepared() && usable(); }
  // Sets a callback that runs at once and whenever ready() may have changed (a device was lost, all
  // have been measured). One call at a time; none after OnReadiness({}) has returned.
  void OnReadiness(std::function<void()> changed);

  // Combines a header's limits, priority and detach (v1::BuildHeader, v1::SolveHeader) with the
  // server's limits and the call's deadline. Errors: BAD_LIMIT, UNKNOWN_ENUM.
  template <class Header>
  absl::StatusOr<JobFactory::Terms> Terms(const Header& header,
                                          const grpc::CallbackServerContext& context) const {
    return Terms(header.limits(), header.priority(), header.detach(), context);
  }

  // Returns the terms of a job that is detached and has no caller.
  absl::StatusOr<JobFactory::Terms> DetachedTerms(const v1::JobLimits& limits,
                                                  v1::Priority priority) const;

  // Writes to the spill folder what the stores have and it has not, for `limit` at most.
  void FlushSpill(std::chrono::milliseconds limit);

  // Gives up the matrix over the ranks that was used longest ago, of those in the spill folder that
  // nobody uses, this tenant's before others'. False: there is none.
  bool GiveUpOverRanks(const std::string& tenant);

  // Updates the gauges of the metrics; called for every scrape.
  void SetGauges();

 private:
  void TellReadiness();
  absl::StatusOr<JobFactory::Terms> Terms(const v1::JobLimits& limits, v1::Priority priority,
                                          bool detach,
                                          const grpc::CallbackServerContext& context) const;

  const BackendOptions options_;
  Authenticator authenticator_;
  Metrics* const metrics_;
  const WallTime start_time_ = RealClock().WallNow();
  std::mutex readiness_mutex_;
  std::function<void()> on_readiness_;  // guarded by readiness_mutex_, while it runs, too
  std::atomic<bool> refusing_{false}, draining_{false};
  EngineAdapter adapter_;
  const int cores_;
  MatrixStore matrices_;
  PreconditionerStore preconditioners_;
  ByteBudget rhs_budget_;
  JobTable jobs_;
  UploadTable uploads_;
  Connections connections_;
  LiveStreams streams_;
  Segments segments_;
  Scheduler scheduler_;  // stops its workers before what they use goes
  JobFactory job_factory_;
  // Finish their tasks first of all.
  Executor storing_, counting_, looking_, sending_, asking_ranks_;
  std::unique_ptr<SpillWriter> spill_writer_;
  std::unique_ptr<KeptJobs> kept_jobs_;  // ends before all that its jobs use
};

// Returns the error for calls that come while the server drains.
absl::Status DrainingError();

}  // namespace spaid::server
