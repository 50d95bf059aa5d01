// Cancels a job on purpose, once it is in a given state.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string_view>

#include "client/cpp/spaid/client.h"

namespace spaid::load {

// The state in which a job is cancelled. While it uploads or downloads its call is cancelled, as by
// a client that goes away; else CancelJob is sent.
enum class CancelIn { kUpload, kQueue, kPlan, kBuild, kAssemble, kSolve, kDownload };
std::string_view Name(CancelIn state);  // "upload"

// Cancels one job. Thread-compatible; the calls that it watches run one after the other.
class Cancellation {
 public:
  using Clock = std::chrono::steady_clock;

  // Sends the cancellation `after` the job was first seen in `state`. `run` is the stop of the
  // whole run, which ends what is watched, too. The client outlives this.
  Cancellation(CancelIn state, Clock::duration after, std::stop_token run, Client& client);

  // Sets the stop token and the progress callback of the options of the job's next call. `call`
  // must not outlive this.
  void Watch(CallOptions& call);
  CancelIn state() const { return state_; }
  // Returns the time since the cancellation was sent; nothing: it was not, the job did not get
  // there.
  std::optional<double> SinceMs() const;

 private:
  bool Enters(const Progress& progress) const;
  void See(const Progress& progress);

  const CancelIn state_;
  const Clock::duration after_;
  const std::stop_token run_;
  Client& client_;
  std::stop_source stop_;
  std::stop_callback<std::function<void()>> run_stops_;
  std::optional<Clock::time_point> sent_;
};

}  // namespace spaid::load
