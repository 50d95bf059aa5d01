// Everything the services share, and the limits they hold clients to.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
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
#include "server/engine/entities.h"
#include "server/engine/workbench.h"
#include "server/rpc/authentication.h"
#include "server/rpc/connections.h"
#include "server/rpc/executor.h"
#include "server/rpc/live_streams.h"
#include "server/rpc/upload_table.h"
#include "server/sched/job_table.h"
#include "server/sched/scheduler.h"
#include "server/store/byte_budget.h"

namespace spaid::server {

struct BackendOptions {
  int64_t max_matrix_bytes = int64_t{1} << 30;  // of one matrix, as stored
  int64_t matrix_store_bytes = int64_t{2} << 30;
  int64_t preconditioner_store_bytes = int64_t{2} << 30;
  int64_t plan_cache_bytes = int64_t{1} << 30;
  int64_t rhs_bytes = int64_t{1} << 30;  // right-hand sides and solutions in flight
  int64_t max_build_bytes = 0;           // estimated bytes of one build; 0: no limit
  int64_t max_queued_jobs = 1024;
  std::optional<int64_t> max_queued_jobs_per_tenant = {};  // none: half of all; 0: all
  int64_t max_detached_jobs_per_tenant = 128;  // queued or running; 0: no limit of its own
  int max_paused_jobs = 128;                   // of each device; 0: no solve is ever paused
  int max_devices_per_job = 8;                 // GPUs that one build may be split over
  int lanes = 0;  // of the CPU: jobs side by side, all but one small; 0: by its cores
  std::chrono::milliseconds small_job{20};            // predicted
  std::map<std::string, double> tenant_weights = {};  // over 0; 1 where there is none
  int64_t max_tenants = ShareRules().max_tenants;     // that shares tell apart
  int64_t ended_job_bytes = 64 << 20;                 // logs and outcomes of ended jobs
  // For a job that names none; upper bound on any job's; 0: none.
  std::chrono::milliseconds max_queue = std::chrono::hours(24), max_run = std::chrono::hours(1);
  std::chrono::milliseconds heartbeat{5'000};
  StreamLimits streams;
  ConnectionLimits connections;
  int threads = 0;  // of one job; 0: all cores
  std::string version = "0.0.0";
  std::chrono::milliseconds probe_every{10'000};  // idle devices are looked at
  bool exit_on_device_loss = false;               // else the server goes on with what is left
  double hang_limit = 20;  // times its prediction that a job may be silent; 0: for ever
  std::chrono::milliseconds hang_floor{60'000};   // and no less
  std::string cuda_status;                        // for GetServerInfo
  std::vector<kernels::DeviceInfo> idle_devices;  // listed, not used
};

// Places in the queue that one tenant may take; 0: all of them.
int64_t MostQueuedOfTenant(const BackendOptions& options);

// Built once; thread-safe; outlives the gRPC server.
class Backend {
 public:
  // `engine` and `metrics` are borrowed and outlive the backend.
  Backend(BackendOptions options, const kernels::Engine& engine, Authenticator authenticator,
          Metrics* metrics);
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
  Workbench& workbench() { return workbench_; }
  UploadTable& uploads() { return uploads_; }
  Connections& connections() { return connections_; }
  LiveStreams& streams() { return streams_; }
  Metrics& metrics() { return *metrics_; }
  WallTime start_time() const { return start_time_; }

  // What runs off the reactors' threads, in lanes, so that estimates, which may take long, do not
  // hold up the uploads of others, nor the end of an upload the looks at arriving arrays, nor any
  // of them what goes out beside a computation.
  enum class Lane { kStore, kCount, kLook, kSend };
  // Runs `task` so, when it is its tenant's turn; `failed` where it throws.
  // RESOURCE_EXHAUSTED/QUEUE_FULL, with a retry delay, where too many wait.
  absl::Status Run(Lane lane, const std::string& tenant, std::function<void()> task,
                   std::function<void(const absl::Status&)> failed);

  // Whether arriving arrays are looked at beside the thread that receives them: there are cores for
  // it, or else it would cost more than it saves.
  bool look_aside() const { return look_aside_; }

  // From now on calls that bring new work are refused; streams that have not said what they want
  // end so at once.
  void Refuse();
  // While draining: UNAVAILABLE/DRAINING with a retry delay.
  absl::Status CheckServing() const;
  // Whether the devices that are left are enough for the server to be of use: all of them where it
  // is to end on the loss of one; else any, and the CPU where it is among them, since the host's
  // work has no other place.
  bool usable() const;
  // The devices that are lost, each with its reason; empty: none.
  std::string LostDevices() const;
  void SetDraining() { draining_ = true; }
  bool draining() const { return draining_; }
  // Also: all devices have been measured.
  bool ready() const { return !draining_ && scheduler_.prepared() && usable(); }
  // Calls it at once, and whenever a device is lost or all have been measured: ready() may have
  // changed. One call at a time; none after the call with an empty one has returned.
  void OnReadiness(std::function<void()> changed);

  // What a header's limits, priority and detach (v1::BuildHeader, v1::SolveHeader), the server's
  // limits and the call's deadline make together. Errors: BAD_LIMIT, UNKNOWN_ENUM.
  template <class Header>
  absl::StatusOr<Workbench::Terms> Terms(const Header& header,
                                         const grpc::CallbackServerContext& context) const {
    return Terms(header.limits(), header.priority(), header.detach(), context);
  }

  // Brings the gauges of the metrics up to date: for every scrape.
  void SetGauges();

 private:
  void TellReadiness();
  absl::StatusOr<Workbench::Terms> Terms(const v1::JobLimits& limits, v1::Priority priority,
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
  const bool look_aside_;
  MatrixStore matrices_;
  PreconditionerStore preconditioners_;
  ByteBudget rhs_budget_;
  JobTable jobs_;
  UploadTable uploads_;
  Connections connections_;
  LiveStreams streams_;
  Scheduler scheduler_;  // stops its workers before what they use goes
  Workbench workbench_;
  Executor storing_, counting_, looking_, sending_;  // finish their tasks first of all
};

// Resident set size of this process.
int64_t ResidentBytes();

// The error of a call that comes while the server drains.
absl::Status DrainingError();

}  // namespace spaid::server
