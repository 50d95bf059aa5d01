// Checks that the daemon's own port still answers: a client inside the daemon connects every few
// seconds and asks for the health, as any other client could.
//
//   SelfProbe probe(acceptor->listens_on(), tls, {}, &connections, &metrics);
//   ... if (probe.deaf()) the process is of no use any more
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "server/base/metrics.h"
#include "server/rpc/connections.h"

namespace spaid::server {

struct SelfProbeOptions {
  std::chrono::milliseconds every{10'000};    // 0: never
  std::chrono::milliseconds timeout{10'000};  // per connection
  int failures = 3;                           // in a row, before the daemon counts as deaf
  // Those count in which connections were cut as floods for so many probes, too: who is flooded is
  // late, and starting anew would not help.
  int excused = 12;
};

// Thread-safe.
class SelfProbe {
 public:
  // `address`: the one listened on. `connections` and `metrics` outlive it.
  SelfProbe(const sockaddr_storage& address, bool tls, SelfProbeOptions options,
            Connections* connections, Metrics* metrics);
  ~SelfProbe();
  SelfProbe(const SelfProbe&) = delete;
  SelfProbe& operator=(const SelfProbe&) = delete;

  // Returns true once the port has failed too often; it stays true.
  bool deaf() const { return deaf_; }

 private:
  void Run();
  // Asks once. Returns why the port does not answer; "": it does, or no local port was free to ask.
  std::string Ask();

  sockaddr_storage address_;
  const bool tls_;
  const SelfProbeOptions options_;
  Connections* const connections_;
  Metrics* const metrics_;
  std::atomic<bool> deaf_{false};
  std::mutex mu_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace spaid::server
