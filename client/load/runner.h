// Runs the jobs of a load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "client/cpp/spaid/client.h"
#include "client/cpp/spaid/system.h"
#include "client/load/arrivals.h"
#include "client/load/cancellation.h"
#include "client/load/options.h"
#include "client/load/tally.h"
#include "client/load/workload.h"

namespace spaid::load {

struct Tenant {
  std::string name;  // as the server knows it
  std::vector<std::unique_ptr<Client>> connections;
};

// Connects every tenant. Errors: BAD_TENANTS, BAD_TOKENS_FILE, TENANT_NOT_BELIEVED (the server
// takes it for another one), and those of GetServerInfo.
Expected<std::vector<Tenant>> Connect(const LoadOptions& options, const std::stop_token& stop);

struct RunResult {
  Tally tally;
  double wall_s = 0;  // from the end of the warm-up to the end of the last job
  bool interrupted = false;
};

class Runner {
 public:
  // All outlive the runner.
  Runner(const LoadOptions& options, const Workload& workload, std::vector<Tenant>& tenants);

  // Runs to its end, or until the stop, which cancels what is in flight. `tick(tally, seconds)` is
  // called on the calling thread a few times a second.
  RunResult Run(const std::stop_token& stop, const std::function<void(const Tally&, double)>& tick);

 private:
  using Clock = std::chrono::steady_clock;
  struct Ticket {
    int64_t job;
    Clock::time_point scheduled;
    bool measured;
  };

  // Waits for the next job to arrive and returns it; nothing: the run is over.
  std::optional<Ticket> Next();
  void Work(size_t worker);
  void Independent(size_t worker);
  void Simulations(size_t worker);
  // The tenant and the connection of a job.
  struct Place {
    const Tenant& tenant;
    Client& client;
  };
  Place PlaceOf(int64_t job, size_t worker) const;
  SolveOptions OptionsOf(const Plan& plan) const;
  // Runs one job on the plan's matrix. `system`, if set, is that of a simulation, whose next step
  // this is; the matrix of the step before is deleted.
  void RunJob(const Ticket& ticket, const Plan& plan, size_t worker, std::vector<double>& values,
              System* system, const char* step);
  std::optional<Error> Send(const Plan& plan, const CscView& a, Client& client, System* system,
                            Clock::time_point begin, Cancellation* cancellation, Record& record);

  const LoadOptions& options_;
  const Workload& workload_;
  std::vector<Tenant>& tenants_;
  std::stop_token stop_;
  Clock::time_point start_, measured_from_, end_;
  std::atomic<int64_t> next_job_ = 0;

  std::mutex mutex_;  // guards what follows
  PoissonArrivals arrivals_;
  int64_t measured_ = 0;
  Tally tally_;
};

}  // namespace spaid::load
