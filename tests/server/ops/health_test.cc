// grpc.health.v1 by hand on the wire: Debian ships no generated client for it.
#include "server/ops/health.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>

#include <string>

#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

// Check(service) -> status number (1: SERVING, 2: NOT_SERVING), or -1 with the error.
int Check(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  // HealthCheckRequest{1: service}; HealthCheckResponse{1: status}.
  std::string request;
  if (!service.empty()) request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer buffer(&slice, 1);
  grpc::GenericStub stub(channel);
  auto context = Context();
  grpc::CompletionQueue queue;
  auto call = stub.PrepareUnaryCall(context.get(), "/grpc.health.v1.Health/Check", buffer, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return -1;
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(response.Dump(&slices).ok());
  std::string bytes;
  for (const auto& s : slices) bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return bytes.size() == 2 ? bytes[1] : 0;
}

TEST(HealthBoard, ReadinessFollowsLivenessStays) {
  Harness h;
  HealthBoard board(h.server->health(), RpcServer::ServiceNames());
  EXPECT_EQ(Check(h.channel, "liveness"), 1);
  EXPECT_EQ(Check(h.channel, "readiness"), 2);
  board.SetReady(true);
  for (const char* name :
       {"", "readiness", "liveness", "spaid.v1.SolverService", "spaid.v1.MatrixService",
        "spaid.v1.PreconditionerService", "spaid.v1.JobService", "spaid.v1.ServerService"}) {
    EXPECT_EQ(Check(h.channel, name), 1) << name;
  }
  EXPECT_EQ(Check(h.channel, "nobody"), -1);
  board.SetReady(false);  // draining
  EXPECT_EQ(Check(h.channel, "spaid.v1.SolverService"), 2);
  EXPECT_EQ(Check(h.channel, ""), 2);
  EXPECT_EQ(Check(h.channel, "liveness"), 1);
  h.ExpectLives();  // still serving in the grace time
}

}  // namespace
}  // namespace spaid::server
