// SIGTERM, SIGINT and SIGHUP as something to wait for, on a thread of one's choice.
//
//   ShutdownSignals signals;          // before any other thread starts: they inherit the mask
//   signals.Wait(1s, [] { return true; }, [] { ReadFilesAgain(); });     // -> "SIGTERM"
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>

namespace spaid::server {

class ShutdownSignals {
 public:
  // Blocks them in this thread and those it starts from now on, and ignores SIGPIPE.
  ShutdownSignals();

  // Until SIGTERM or SIGINT comes; its name. Runs `meanwhile` each `every` till then, which ends
  // the wait by false: "". Runs `hung_up` for each SIGHUP.
  std::string Wait(std::chrono::milliseconds every, const std::function<bool()>& meanwhile,
                   const std::function<void()>& hung_up);
  // At most `timeout`, for SIGTERM or SIGINT; false: none came. SIGHUP is passed over.
  bool WaitFor(std::chrono::milliseconds timeout);

 private:
  // The signal's number; 0: none came.
  int Take(std::chrono::steady_clock::time_point until);

  sigset_t set_;
};

}  // namespace spaid::server
