#include "tests/server/ops/health_check.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <vector>

namespace spaid::testing {

grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                 const std::string& request, std::string* answer) {
  const grpc::Slice slice(request);
  const grpc::ByteBuffer buffer(&slice, 1);
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  auto call = stub.PrepareUnaryCall(&context, path, buffer, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (!status.ok() || answer == nullptr || !response.Dump(&slices).ok()) return status;
  for (const auto& s : slices) {
    answer->append(reinterpret_cast<const char*>(s.begin()), s.size());
  }
  return status;
}

int Check(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  // HealthCheckRequest{1: service}; HealthCheckResponse{1: status}.
  std::string request, answer;
  if (!service.empty()) request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  if (!Ask(channel, "/grpc.health.v1.Health/Check", request, &answer).ok()) return -1;
  return answer.size() == 2 ? answer[1] : 0;
}

}  // namespace spaid::testing
