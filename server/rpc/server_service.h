// spaid.v1.ServerService.
#pragma once

#include "server/rpc/backend.h"
#include "spaid/v1/server.grpc.pb.h"

namespace spaid::server {

// A message never needs more; gRPC refuses what is larger.
inline constexpr int kMaxMessageBytes = 4 << 20;

class ServerService final : public v1::ServerService::CallbackService {
 public:
  explicit ServerService(Backend* backend) : backend_(backend) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::GetServerInfoResponse* response) override;

 private:
  Backend* const backend_;
};

}  // namespace spaid::server
