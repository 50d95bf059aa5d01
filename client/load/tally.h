// Holds the counts and times of a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "client/cpp/spaid/types.h"
#include "client/load/histogram.h"

namespace spaid::load {

// The result of one job.
struct Record {
  std::string work, tenant;  // "poisson:16 jacobi"
  std::string step;          // in a simulation: "first step" or "later steps"; else empty
  bool build = false;
  std::optional<Error> error;
  Outcome outcome = Outcome::kConverged;  // a solve's first that is not converged
  double job_ms = 0;                      // in an open loop from its scheduled arrival
  double lag_ms = 0;                      // the delay of its beginning
  std::optional<double> upload_ms, build_ms, solve_ms;
  std::optional<double> stop_ms;  // from when it was cancelled, on purpose, to its end
  Timings timings;                // the server's, for the build or solve
  int64_t bytes_up = 0, bytes_down = 0;
  int64_t refused = 0, retried = 0, evicted = 0;
};

// The figures of one group of jobs; times of successful ones only, for a refusal is quick.
struct Group {
  int64_t errors = 0;
  Histogram job;
};

// Thread-compatible.
struct Tally {
  int64_t jobs = 0;  // measured and ended: succeeded + failed
  int64_t succeeded = 0, failed = 0;
  int64_t interrupted = 0, warmup = 0;  // beside them
  int64_t solves = 0, builds = 0;       // successful ones
  int64_t refused = 0, retried = 0, evicted = 0;
  int64_t rebuilt = 0, reused = 0;
  int64_t bytes_up = 0, bytes_down = 0;
  std::map<std::string, int64_t> errors, outcomes;
  // Milliseconds of the calls of jobs that succeeded; the last four by the server's clock.
  Histogram job, lag, upload, build, solve, queue, setup, iterate, run;
  std::map<std::string, Group> by_work, by_tenant, by_step;
  std::map<std::string, Histogram> cancelled;  // to their end, by state; in no other figure

  void Add(const Record& record);
};

// Returns the name under which an error is counted: its reason, else its code.
std::string ReasonOf(const Error& error);

}  // namespace spaid::load
