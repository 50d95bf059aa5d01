// Serves the operator's port: GET / (the status page; /?refresh=off stands still), /status.json
// (the same for programs), /metrics (Prometheus text), /healthz (200 while the process lives),
// /readyz (200 while it takes work, else 503). It changes nothing, and asks nobody for credentials.
//
// The status names tenants and matrices, and is given only under a name of this server. Otherwise a
// stranger's page could have its own name resolve to this address and read the status by its
// scripts in an operator's browser (DNS rebinding). Requests by address are answered, so that
// probes and port-forwards work; /metrics and the probes name nobody and are answered under any
// name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/ops/http_server.h"
#include "server/ops/server_status.h"

namespace spaid::server {

class Metrics;

struct OpsSources {
  const Metrics* metrics = nullptr;  // outlives the server
  // Called from the server's threads; `alive` and `ready` must not block: probes are answered in
  // time.
  std::function<bool()> alive = [] { return true; };
  std::function<bool()> ready;
  std::function<ServerStatus()> status;
  // Names under which the status is given, beside addresses, localhost and the listening address.
  std::vector<std::string> host_names = {};
  HttpOptions http = {};
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
  HttpFigures figures() const;

 private:
  struct Impl;
  explicit OpsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spaid::server
