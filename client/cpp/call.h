// Holds the deadline, stop token and listener of one call of the user, shared by all attempts and
// streams that serve it.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

#include "spaid/client.h"
#include "spaid/v1/preconditioner.pb.h"

namespace spaid::internal {

// Returns BAD_OPTION unless `parent` is a traceparent, or empty, and `state` can go with it.
std::optional<Error> CheckTrace(const std::string& parent, const std::string& state);

class Call {
 public:
  // The deadline starts to run here.
  explicit Call(const CallOptions& options);

  const CallOptions& options() const { return *options_; }
  const std::stop_token& stop() const { return options_->stop; }
  std::optional<std::chrono::system_clock::time_point> deadline() const { return deadline_; }
  bool WouldPass(std::chrono::milliseconds wait) const;  // the deadline comes before now + `wait`
  Error Stopped() const;
  Error TimedOut() const;

  void Report(const Progress& progress) const;
  void ReportTransfer(Stage stage, int64_t done, int64_t total) const;

  // Returns BAD_OPTION unless CallOptions::affinity, traceparent and tracestate are such, or empty.
  std::optional<Error> CheckRoute() const;
  // Returns max_queue and max_run; INVALID_ARGUMENT/BAD_OPTION if one is not positive.
  Expected<v1::JobLimits> Limits() const;

 private:
  const CallOptions* options_;  // outlives the call: it is the user's argument
  std::optional<std::chrono::system_clock::time_point> deadline_;
};

}  // namespace spaid::internal
