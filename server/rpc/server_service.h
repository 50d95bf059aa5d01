// spaid.v1.ServerService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/methods.h"
#include "spaid/v1/server.grpc.pb.h"

namespace spaid::server {

// A message never needs more; gRPC refuses what is larger.
inline constexpr int kMaxMessageBytes = 4 << 20;

class ServerService {
 public:
  explicit ServerService(Backend* backend) : backend_(backend) {}
  void AddTo(Methods* methods);

  RawBidiReactor* GetServerInfo(grpc::CallbackServerContext* context);

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
