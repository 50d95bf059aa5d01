// Runs the gRPC server: one port, all services, health and, if asked for, reflection.
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
  // An idle connection is pinged after `keepalive_time`, and dropped without an answer within
  // `keepalive_timeout`: a vanished peer never acknowledges a write, and its stream would live for
  // ever. Clients are told these (proto/spaid/v1/README.md).
  std::chrono::milliseconds keepalive_time{30'000};
  std::chrono::milliseconds keepalive_timeout{20'000};
  // Time for TLS and the first frames of HTTP/2.
  std::chrono::milliseconds handshake_timeout{5'000};
  bool reflection = false;
  bool tls = false;  // `credentials` are TLS
  SelfProbeOptions self_probe = {};
};

// Thread-safe.
class RpcServer {
 public:
  // Starts the server, which serves when this returns. `backend` outlives it.
  // UNAVAILABLE/CANNOT_LISTEN if the address is taken, not ours or malformed.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          Backend* backend);
  // Calls Shutdown if that has not been done.
  ~RpcServer();

  // Returns HOST:PORT with the port that was picked.
  const std::string& address() const;
  // Returns the service of grpc.health.v1.
  grpc::HealthCheckServiceInterface* health();
  // Returns true if the server's own port has not answered for too long: a restart is the cure.
  bool deaf() const;
  // Returns the full names of the services of spaid.v1.
  static std::vector<std::string> ServiceNames();
  // Returns the path of every method that is served.
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
