// Reports the daemon's health over grpc.health.v1: each service by its full name, the whole (""),
// `readiness` (may work be sent here?) and `liveness` (would a restart help?).
#pragma once

#include <string>
#include <vector>

namespace grpc {
class HealthCheckServiceInterface;
}

namespace spaid::server {

// Thread-safe. `service` is borrowed and outlives the board.
class HealthBoard {
 public:
  // Starts with everything NOT_SERVING except `liveness`.
  HealthBoard(grpc::HealthCheckServiceInterface* service, std::vector<std::string> services);

  // Sets `readiness`, the whole and every service. `liveness` stays up: a draining server needs no
  // restart.
  void SetReady(bool ready);

 private:
  grpc::HealthCheckServiceInterface* const service_;
  const std::vector<std::string> services_;
};

}  // namespace spaid::server
