// SIGTERM and SIGINT as something to wait for, on a thread of one's choice.
//
//   ShutdownSignals signals;          // before any other thread starts: they inherit the mask
//   signals.Wait();                   // -> "SIGTERM"
#pragma once

#include <chrono>
#include <csignal>
#include <string>

namespace spaid::server {

class ShutdownSignals {
 public:
  // Blocks both in this thread and those it starts from now on, and ignores SIGPIPE.
  ShutdownSignals();

  // Until one comes; its name.
  std::string Wait();
  // At most `timeout`; false: none came.
  bool WaitFor(std::chrono::milliseconds timeout);

 private:
  sigset_t set_;
};

}  // namespace spaid::server
