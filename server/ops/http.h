// The operator's port: GET / (the status page; /?refresh=off stands still), /status.json (the same
// for programs), /metrics (Prometheus text), /healthz (200 while the process lives), /readyz (200
// while it takes work, else 503). Nothing is changed over it, and nobody is asked who they are.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/ops/server_status.h"

namespace spaid::server {

class Metrics;

struct OpsSources {
  const Metrics* metrics = nullptr;  // outlives the server
  // Called from the server's threads.
  std::function<bool()> ready;
  std::function<ServerStatus()> status;
};

// Serves on its own threads until it dies. Thread-safe.
class OpsServer {
 public:
  // `address`: HOST:PORT, port 0 picks one. INVALID_ARGUMENT/BAD_FLAG for a malformed address,
  // UNAVAILABLE/CANNOT_LISTEN.
  static absl::StatusOr<std::unique_ptr<OpsServer>> Start(const std::string& address,
                                                          OpsSources sources);
  ~OpsServer();

  // HOST:PORT with the port that was picked.
  const std::string& address() const;

 private:
  struct Impl;
  explicit OpsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spaid::server
