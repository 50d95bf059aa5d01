// What the command line of spaid-load said, as plain data.
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

  // Closed loop: so many jobs at a time. Open loop (`rate` jobs a second): at most so many.
  int64_t concurrency = 0;  // 0: 8 of a closed loop, 256 of an open one
  double rate = 0;          // 0: closed loop
  double duration_s = 0;    // 0: none; jobs begin as long as this, behind the warm-up
  int64_t jobs = 0;         // 0: none; jobs that are measured
  double warmup_s = 0;      // what begins in it is not measured

  Shares mix = {{"poisson:16", 1}};  // of gallery matrices
  std::vector<EngineShare> engines = {{Engine::kJacobi, 1}};
  double build_share = 0;  // of jobs that build a preconditioner and solve nothing
  int rhs = 1;             // right-hand sides of a solve
  int64_t variants = 16;   // of a matrix's values; 0: no two jobs have the same
  int64_t time_steps = 0;  // 0: every job by itself; else steps of each simulation
  Method method = Method::kAuto;
  double rtol = SolveOptions().rtol;
  int64_t max_iterations = SolveOptions().max_iterations;

  std::string tenants;      // a number, or names separated by commas
  std::string tokens_file;  // lines TOKEN NAME, as the daemon's --tokens
  int connections = 1;      // of each tenant

  std::optional<double> deadline_s, max_queue_s;  // of each job
  Priority priority = Priority::kNormal;          // the same
  int64_t retries = 0;                            // of what is refused with a time to come back
  std::vector<CancelIn> cancel;                   // jobs, in these states in turn
  double cancel_after_s = 0;                      // at most, behind the state's beginning
  std::vector<std::string> expect;                // reasons and outcomes that are no failure

  uint64_t seed = 1;
  std::string json_file;   // "-": stdout
  int64_t daemon_pid = 0;  // whose memory is watched

  bool open_loop() const { return rate > 0; }
};

}  // namespace spaid::load
