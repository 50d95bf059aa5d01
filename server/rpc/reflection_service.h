// Serves grpc.reflection.v1alpha.ServerReflection, for tools like grpcurl: files of the contract by
// name and by symbol, and the list of services. There are no extensions.
#pragma once

#include "server/rpc/methods.h"

namespace spaid::server {

class ReflectionService {
 public:
  explicit ReflectionService(Backend* backend) : backend_(backend) {}
  void AddTo(Methods* methods);
  RawBidiReactor* Info(grpc::CallbackServerContext* context);

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
