// The operator's port: GET / (the status page; /?refresh=off stands still), /status.json (the same
// for programs), /metrics (Prometheus text), /healthz (200 while the process lives), /readyz (200
// while it takes work, else 503). Nothing is changed over it, and nobody is asked who they are.
//
// The status, which names tenants and matrices, is given only under a name that is this server's:
// to a browser a page of a stranger's whose name was made to mean this address is that stranger's
// own, to be read by its scripts (DNS rebinding). Addresses are nobody's names, so that probes and
// port-forwards work, and what Prometheus and probes ask for names nobody: it has any name.
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
  // Names under which the status is given, beside addresses, localhost and the one listened on.
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
