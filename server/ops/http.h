// The operator's port: GET /metrics (Prometheus text), GET /healthz (200 while the process lives),
// GET /readyz (200 while it takes work, else 503).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace spaid::server {

class Metrics;

// Serves on its own threads until it dies. Thread-safe.
class OpsServer {
 public:
  // `address`: HOST:PORT, port 0 picks one. `metrics` outlives the server; `ready` is called from
  // its threads. INVALID_ARGUMENT/BAD_FLAG for a malformed address, UNAVAILABLE/CANNOT_LISTEN.
  static absl::StatusOr<std::unique_ptr<OpsServer>> Start(const std::string& address,
                                                          const Metrics* metrics,
                                                          std::function<bool()> ready);
  ~OpsServer();

  // HOST:PORT with the port that was picked.
  const std::string& address() const;

 private:
  struct Impl;
  explicit OpsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spaid::server
