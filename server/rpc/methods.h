// Dispatches every method that the port serves by its path. gRPC's own dispatch shows plain calls
// only when their request is complete (stream.h says why that is too late).
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/rpc/backend.h"
#include "server/rpc/stream.h"

namespace spaid::server {

// Thread-safe, once it serves.
class Methods final : public grpc::CallbackGenericService {
 public:
  using Handler = std::function<RawBidiReactor*(grpc::CallbackServerContext*)>;

  // `backend` outlives it.
  explicit Methods(Backend* backend) : backend_(backend) {}

  // `method`: "JobService/GetJob", of the package spaid.v1.
  template <class Service>
  void Add(std::string_view method, Service* service,
           RawBidiReactor* (Service::*handler)(grpc::CallbackServerContext*)) {
    AddPath("/spaid.v1." + std::string(method),
            [service, handler](grpc::CallbackServerContext* c) { return (service->*handler)(c); });
  }
  // `path`: "/grpc.health.v1.Health/Check".
  void AddPath(std::string path, Handler handler) {
    handlers_.insert_or_assign(std::move(path), std::move(handler));
  }
  std::vector<std::string> paths() const;

  // Starts the call's handler; an unknown method is UNIMPLEMENTED.
  RawBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  Backend* const backend_;
  std::unordered_map<std::string, Handler> handlers_;
};

}  // namespace spaid::server
