// Decides if a failed call is tried again, and after what wait.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>

#include "spaid/client.h"

namespace spaid::internal {

// Tells if a call may be done twice.
enum class Repeat {
  kSafe,           // nothing: reads, uploads, builds, attached solves
  kFollow,         // nor can it end the server: following a job, which outlives broken connections
  kOnlyIfRefused,  // harm (a second detached job, a delete that finds nothing): repeat only what
                   // the server says it refused before it began
};

struct RetryPolicy {
  int max_attempts = 4;  // the first included; 1: never again
  std::chrono::milliseconds first_delay{100};
  std::chrono::milliseconds max_delay{5000};  // for our own back-off
  std::chrono::milliseconds max_server_delay{
      30000};  // a server that asks for more is not waited for
};

// Returns true if the connection broke in the middle of the call, which may have ended the server.
bool LostInMidCall(const Error& error);

// Returns the wait before attempt `attempt` + 1 (attempts count from 1), or nothing: give up.
// Repeats UNAVAILABLE, and RESOURCE_EXHAUSTED if the server says when to come back. The wait
// doubles from first_delay; `jitter` in [0, 1) spreads it over 50 .. 100 % of that; never shorter
// than the server's retry delay. `lost`: attempts, including this one, that ended LostInMidCall;
// after the second one no server is to try the call any more.
std::optional<std::chrono::milliseconds> NextDelay(const RetryPolicy& policy, int attempt, int lost,
                                                   const Error& error, Repeat repeat,
                                                   double jitter);

// Returns a number in [0, 1), different in every process and thread.
double Jitter();

// Sleeps for `delay`; false if the stop came first.
bool SleepUnlessStopped(std::chrono::milliseconds delay, const std::stop_token& stop);

}  // namespace spaid::internal
