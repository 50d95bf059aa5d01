// Serves grpc.health.v1.Health by reactors of our own, since gRPC's would answer calls that nobody
// counts. Open to callers without credentials.
#pragma once

#include <grpcpp/health_check_service_interface.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/rpc/methods.h"

namespace spaid::server {

// Thread-safe.
class HealthService final : public grpc::HealthCheckServiceInterface {
 public:
  explicit HealthService(Backend* backend) : backend_(backend) {}

  void AddTo(Methods* methods);

  void SetServingStatus(const std::string& service, bool serving) override;
  // Sets the status of every service.
  void SetServingStatus(bool serving) override;
  // Sets every service to not serving, for good.
  void Shutdown() override;

  // Returns the status of a service; nullopt: there is no such service.
  std::optional<bool> Serving(const std::string& service) const;

  RawBidiReactor* Check(grpc::CallbackServerContext* context);
  RawBidiReactor* Watch(grpc::CallbackServerContext* context);

 private:
  class WatchStream;

  bool Follow(const std::shared_ptr<WatchStream>& watch);
  void Leave(const WatchStream* watch);
  void Tell();

  Backend* const backend_;
  mutable std::mutex mu_;
  std::map<std::string, bool> serving_;
  std::map<const WatchStream*, std::weak_ptr<WatchStream>> watches_;
  bool shut_down_ = false;
};

}  // namespace spaid::server
