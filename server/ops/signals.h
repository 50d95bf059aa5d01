// Lets a thread of one's choice wait for SIGTERM, SIGINT and SIGHUP.
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
  // Handles the signals from now on, whatever threads exist (libraries start theirs before main)
  // and whatever was blocked or ignored when the process began; ignores SIGPIPE. Signals before the
  // first wait are kept. There is one handler: only one object at a time.
  ShutdownSignals();

  // Waits for SIGTERM or SIGINT and returns its name. Runs `meanwhile` once per `every`; if that
  // returns false the wait ends with "". Runs `hung_up` for each SIGHUP.
  std::string Wait(std::chrono::milliseconds every, const std::function<bool()>& meanwhile,
                   const std::function<void()>& hung_up);
  // Waits at most `timeout` for SIGTERM or SIGINT; false: none came. Runs `hung_up` for each
  // SIGHUP.
  bool WaitFor(std::chrono::milliseconds timeout, const std::function<void()>& hung_up);
};

}  // namespace spaid::server
