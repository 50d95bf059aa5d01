// Starting a job that outlives the command.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "client/cli/session.h"

namespace spaid::cli {

// Makes `call` a detached one that is dropped as soon as the server has queued its job.
//
//   Detachment detachment;
//   CallOptions call = detachment.Apply(session.Call(limits, reporter));
//   auto result = client.Solve(..., call);
//   if (!detachment.job().empty()) ...   // whatever the result says
class Detachment {
 public:
  CallOptions Apply(CallOptions call);
  // "jobs/..." once queued.
  const std::string& job() const { return job_; }
  // The handle of the uploaded matrix, where the call told it.
  const std::string& matrix() const { return matrix_; }
  // Prints the job's name (or the error where the call ended before it had one).
  ExitCode Report(const Session& session, const Error* error) const;

 private:
  std::stop_source drop_;
  // Ctrl-C reaches the call, too.
  std::unique_ptr<std::stop_callback<std::function<void()>>> forward_;
  std::string job_, matrix_;
};

}  // namespace spaid::cli
