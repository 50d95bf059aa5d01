// SIGTERM and SIGINT as something to wait for, on a thread of one's choice.
//
//   ShutdownSignals signals;          // before any other thread starts: they inherit the mask
//   signals.Wait(1s, [] { return true; });     // -> "SIGTERM"
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <string>

namespace spaid::server {

class ShutdownSignals {
 public:
  // Blocks both in this thread and those it starts from now on, and ignores SIGPIPE.
  ShutdownSignals();

  // Until one comes; its name. Runs `meanwhile` each `every` till then, which ends the wait by
  // false: "".
  std::string Wait(std::chrono::milliseconds every, const std::function<bool()>& meanwhile);
  // At most `timeout`; false: none came.
  bool WaitFor(std::chrono::milliseconds timeout);

 private:
  // The signal's number; 0: none came.
  int Take(std::chrono::milliseconds timeout);

  sigset_t set_;
};

}  // namespace spaid::server
