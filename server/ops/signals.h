// SIGTERM, SIGINT and SIGHUP as something to wait for, on a thread of one's choice.
//
//   ShutdownSignals signals;
//   signals.Wait(1s, [] { return true; }, [] { ReadFilesAgain(); });     // -> "SIGTERM"
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace spaid::server {

class ShutdownSignals {
 public:
  // Handles them from now on, whatever threads are there (libraries start theirs before main) and
  // whatever was blocked or ignored when the process began; ignores SIGPIPE. What comes before the
  // first wait is kept. There is one handler: let one of these live at a time.
  ShutdownSignals();

  // Until SIGTERM or SIGINT comes; its name. Runs `meanwhile` each `every` till then, which ends
  // the wait by false: "". Runs `hung_up` for each SIGHUP.
  std::string Wait(std::chrono::milliseconds every, const std::function<bool()>& meanwhile,
                   const std::function<void()>& hung_up);
  // At most `timeout`, for SIGTERM or SIGINT; false: none came. Runs `hung_up` for each SIGHUP.
  bool WaitFor(std::chrono::milliseconds timeout, const std::function<void()>& hung_up);
};

}  // namespace spaid::server
