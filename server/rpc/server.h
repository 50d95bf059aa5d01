// The gRPC server: one port, all services, health and, where asked for, reflection.
//
//   Backend backend(...);
//   ASSIGN_OR_RETURN(auto server, RpcServer::Start({.address = "127.0.0.1:0"}, &backend));
//   Announce(server->address());
//   ...
//   server->Shutdown();
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/rpc/self_probe.h"

namespace grpc {
class HealthCheckServiceInterface;
class ServerCredentials;
}  // namespace grpc

namespace spaid::server {

class Backend;

struct RpcServerOptions {
  std::string address = "127.0.0.1:7433";  // HOST:PORT; port 0 picks one
  std::shared_ptr<grpc::ServerCredentials> credentials;
  // An idle connection is asked for a sign of life after so long, and dropped where none comes in
  // time: a vanished peer never acknowledges a write, and its stream would live for ever. Clients
  // are told these (proto/spaid/v1/README.md).
  std::chrono::milliseconds keepalive_time{30'000};
  std::chrono::milliseconds keepalive_timeout{20'000};
  // TLS and the first frames of HTTP/2 are through by then.
  std::chrono::milliseconds handshake_timeout{5'000};
  bool reflection = false;
  bool tls = false;  // what `credentials` speak
  SelfProbeOptions self_probe = {};
};

// Thread-safe.
class RpcServer {
 public:
  // Serves on return. `backend` outlives the server. UNAVAILABLE/CANNOT_LISTEN where the address is
  // taken, not ours or malformed.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          Backend* backend);
  // Shutdown, if that has not been called.
  ~RpcServer();

  // HOST:PORT with the port that was picked.
  const std::string& address() const;
  // Of grpc.health.v1.
  grpc::HealthCheckServiceInterface* health();
  // The own port has not answered for too long: a restart is the cure.
  bool deaf() const;
  // Full names of the services of spaid.v1.
  static std::vector<std::string> ServiceNames();
  // Every method that is served.
  std::vector<std::string> Paths() const;

  // Cuts every stream that is still open with UNAVAILABLE/DRAINING, gives their peers `grace` to
  // take the news, then closes all connections. Blocks until no reactor lives.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  struct Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spaid::server
