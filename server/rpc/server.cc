#include "server/rpc/server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/rpc/backend.h"
#include "server/rpc/job_service.h"
#include "server/rpc/matrix_service.h"
#include "server/rpc/preconditioner_service.h"
#include "server/rpc/server_service.h"
#include "server/rpc/solver_service.h"

namespace spaid::server {
namespace {

// Matched by the client library, and in proto/spaid/v1/README.md for foreign clients: a client may
// ping every 20 s or more, also without a call open.
constexpr int kMinClientPingMs = 15'000;  // some slack under the 20 s that clients are told

constexpr int kFrameBytes = 1 << 20;
constexpr int kLookaheadBytes = 4 << 20;  // of a stream that nobody reads, at most

}  // namespace

struct RpcServer::Impl {
  explicit Impl(Backend* b)
      : backend(b), matrices(b), preconditioners(b), solver(b), jobs(b), info(b) {}

  Backend* const backend;
  MatrixService matrices;
  PreconditionerService preconditioners;
  SolverService solver;
  JobService jobs;
  ServerService info;
  std::string address;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            Backend* backend) {
  // gRPC stays up until the process ends: to tear it down with its last server or channel takes it
  // ten seconds now and then, in which it waits for threads of its own.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);
  auto impl = std::make_unique<Impl>(backend);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.address, options.credentials, &port);
  builder.RegisterService(&impl->matrices);
  builder.RegisterService(&impl->preconditioners);
  builder.RegisterService(&impl->solver);
  builder.RegisterService(&impl->jobs);
  builder.RegisterService(&impl->info);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Arrays come in messages of about 1 MiB: one frame each, and while one is taken the next few may
  // be on their way. Fixed: probing for the bandwidth would begin anew with every connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Two daemons on one port would share its clients silently.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             static_cast<int>(options.keepalive_time.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(options.keepalive_timeout.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinClientPingMs);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || port == 0) {
    if (impl->server != nullptr) impl->server->Shutdown();
    return MakeError(absl::StatusCode::kUnavailable, reason::kCannotListen,
                     absl::StrCat("cannot listen on ", options.address,
                                  ": the port is taken, or the address is not one of this "
                                  "machine; choose another --address (port 0 picks a free one)"));
  }
  const size_t colon = options.address.rfind(':');
  impl->address = absl::StartsWith(options.address, "unix") || colon == std::string::npos
                      ? options.address
                      : absl::StrCat(options.address.substr(0, colon), ":", port);
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() { Shutdown(std::chrono::milliseconds(0)); }

const std::string& RpcServer::address() const { return impl_->address; }

grpc::HealthCheckServiceInterface* RpcServer::health() {
  return impl_->server->GetHealthCheckService();
}

std::vector<std::string> RpcServer::ServiceNames() {
  return {v1::MatrixService::service_full_name(), v1::PreconditionerService::service_full_name(),
          v1::SolverService::service_full_name(), v1::JobService::service_full_name(),
          v1::ServerService::service_full_name()};
}

void RpcServer::Shutdown(std::chrono::milliseconds grace) {
  if (impl_->server == nullptr) return;
  impl_->backend->streams().CutAll(DrainingError());
  // What opens or is stuck after this is cancelled by gRPC at the deadline, which ends its reactor.
  impl_->server->Shutdown(std::chrono::system_clock::now() + grace);
  impl_->server->Wait();
  impl_->server.reset();
}

}  // namespace spaid::server
