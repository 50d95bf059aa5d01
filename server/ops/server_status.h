// Describes the state of the daemon for the status page: numbers and names only, no matrices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/base/clock.h"

namespace spaid::server {

// Unknown values are empty, 0, or left out. Times are in milliseconds.
struct ServerStatus {
  struct Device {
    std::string name = {}, model = {};
    bool in_use = true;
    std::string lost = {};  // why it takes no more work; empty: it does
    int threads = 0;        // CPU only
    int64_t memory_bytes = 0;
    int64_t used_bytes = 0, limit_bytes = 0;  // by the daemon; GPU only
  };

  struct Class {  // a class of priority
    std::string name = {};
    int64_t queued = 0;
    double predicted_ms = 0;  // device time
    double share = 0;         // weight in sharing device time
  };
  struct Ratio {  // measured over predicted time
    std::string device = {}, work = {};
    double value = 1;
    int64_t jobs = 0;
  };

  struct Residual {
    int32_t iteration = 0;
    double relative = 0;
  };
  struct Job {
    std::string name = {}, tenant = {}, kind = {}, what = {}, priority = {};
    std::string state = {};  // "queued", "running", "succeeded", "failed", "cancelled"
    std::string matrix = {}, label = {};
    int64_t n = 0, nnz = 0;
    std::vector<std::string> devices = {};
    WallTime created = {}, ended = {};
    double queue_ms = 0, run_ms = 0, predicted_ms = 0;
    double plan_ms = 0, build_ms = 0, solve_ms = 0;
    bool reused = false, rebuild = false;

    int64_t position = 0;  // while queued, with the time until it starts
    double eta_ms = 0;

    std::string stage = {};  // while it runs
    int64_t done = 0, total = 0;

    std::string outcome =
        {};  // for a solve: the first right-hand side that did not converge, or the first
    int64_t iterations = 0;
    double true_relative_residual = 0;
    int64_t rhs_count = 0;
    std::string reason = {}, message = {};  // if it failed
    std::vector<Residual> residuals = {};   // first right-hand side, thinned
  };

  struct Store {
    std::string name = {};
    int64_t entries = 0, bytes = 0, limit_bytes = 0;
    int64_t hits = 0, misses = 0, evictions = 0;
  };
  struct Counter {
    std::string what = {};
    int64_t value = 0;
  };
  struct Counters {
    std::string title = {};
    std::vector<Counter> counters = {};
  };

  std::string version = {}, address = {}, cuda = {};
  WallTime start = {}, now = {};
  bool ready = false, draining = false;
  std::vector<Device> devices = {};

  int64_t queued = 0, running = 0;
  int64_t max_queued = 0, max_queued_per_tenant = 0;  // the latter 0: no limit of its own
  double eta_ms = 0;                                  // estimated wait of a job sent now
  std::vector<Class> classes = {};
  std::vector<Ratio> ratios = {};

  std::vector<Job> running_jobs = {}, queued_jobs = {};  // the queue's first
  std::vector<Job> recent_jobs = {};                     // the last one to end first

  std::vector<Store> stores = {};
  int64_t resident_bytes = 0;
  int64_t jobs_ended = 0, jobs_refused = 0;
  int64_t bytes_received = 0, bytes_sent = 0;  // arrays only
  std::vector<Counters> counters = {};
};

}  // namespace spaid::server
