// spaid.v1.ServerService.
#pragma once

#include "server/rpc/backend.h"
#include "server/rpc/methods.h"
#include "spaid/v1/server.grpc.pb.h"

namespace spaid::server {

// The largest message; no message of the contract needs more, and gRPC refuses larger ones.
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
