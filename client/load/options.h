// Holds the command line of spaid-load as plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cpp/spaid/client.h"
#include "client/load/cancellation.h"
#include "client/load/mix.h"

namespace spaid::load {

struct LoadOptions {
  cli::GlobalArgs global;

  // The number of jobs at a time in a closed loop; the limit of them in an open loop.
  int64_t concurrency = 0;  // 0: 8 in a closed loop, 256 in an open one
  double rate = 0;          // jobs per second in an open loop; 0: closed loop
  double duration_s = 0;    // 0: none; for how long jobs begin after the warm-up
  int64_t jobs = 0;         // 0: none; jobs that are measured
  double warmup_s = 0;      // jobs that begin within it are not measured

  Shares mix = {{"poisson:16", 1}};  // gallery matrices
  std::vector<EngineShare> engines = {{Engine::kJacobi, 1}};
  double build_share = 0;  // the part of the jobs that build a preconditioner and solve nothing
  int rhs = 1;             // right-hand sides per solve
  int64_t variants = 16;   // different values per matrix; 0: no two jobs have the same
  int64_t time_steps = 0;  // 0: every job by itself; else steps of each simulation
  ReuseMode reuse = ReuseMode::kAuto;  // of M, from step to step
  Method method = Method::kAuto;
  double rtol = SolveOptions().rtol;
  int64_t max_iterations = SolveOptions().max_iterations;

  std::string tenants;      // a number, or names separated by commas
  std::string tokens_file;  // lines TOKEN NAME, as the daemon's --tokens
  int connections = 1;      // per tenant

  std::optional<double> deadline_s, max_queue_s;  // per job
  Priority priority = Priority::kNormal;          // of each job
  int64_t retries = 0;                            // per job refused with a time to come back
  std::vector<CancelIn> cancel;                   // the states to cancel in, in turn
  double cancel_after_s = 0;                      // at most, after the state began
  std::vector<std::string> expect;                // reasons and outcomes that are no failure

  uint64_t seed = 1;
  std::string json_file;   // "-": stdout
  int64_t daemon_pid = 0;  // the process whose memory is watched; 0: none

  bool open_loop() const { return rate > 0; }
};

}  // namespace spaid::load
