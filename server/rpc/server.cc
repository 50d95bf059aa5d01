#include "server/rpc/server.h"

#include <grpc/grpc.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/backend.h"
#include "server/rpc/health_service.h"
#include "server/rpc/job_service.h"
#include "server/rpc/matrix_service.h"
#include "server/rpc/methods.h"
#include "server/rpc/preconditioner_service.h"
#include "server/rpc/reflection_service.h"
#include "server/rpc/server_service.h"
#include "server/rpc/solver_service.h"

namespace spaid::server {
namespace {

constexpr int kFrameBytes = 1 << 20, kReadBytes = 64 << 10;

// gRPC's own memory (what it received, what its calls take) beyond which it drops what it can. The
// bounds of Connections come first: this one is blind to who took it.
constexpr int64_t kQuotaOverBytes = 2;

// Threads that read connections beside gRPC's own, of which there are two on a small machine: what
// takes it long to parse then holds up few others until it is cut.
constexpr int kMorePollers = 1;

// Tells Connections of calls as gRPC makes them, on the thread that reads the connection: long
// before they begin, under a flood.
class Contexts final : public grpc::ContextAllocator {
 public:
  explicit Contexts(Connections* connections) : connections_(connections) {}
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override {
    connections_->Made();
    return new grpc::GenericCallbackServerContext;
  }
  // gRPC releases contexts of generic calls as this, too.
  void Release(grpc::CallbackServerContext* context) override { delete context; }

 private:
  Connections* const connections_;
};

int Ms(std::chrono::milliseconds time) {
  return static_cast<int>(std::min<int64_t>(time.count(), INT_MAX));
}

}  // namespace

struct RpcServer::Impl {
  explicit Impl(Backend* b)
      : backend(b),
        matrices(b),
        preconditioners(b),
        solver(b),
        jobs(b),
        info(b),
        health(b),
        reflection(b),
        methods(b) {}

  Backend* const backend;
  MatrixService matrices;
  PreconditionerService preconditioners;
  SolverService solver;
  JobService jobs;
  ServerService info;
  HealthService health;
  ReflectionService reflection;
  Methods methods;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  std::vector<std::thread> pollers;
  std::unique_ptr<grpc::Server> server;
  std::optional<SelfProbe> probe;
};

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            Backend* backend) {
  // gRPC stays up until the process ends: to tear it down with its last server or channel takes it
  // ten seconds now and then, in which it waits for threads of its own.
  [[maybe_unused]] static const bool kept = (grpc_init(), true);
  auto impl = std::make_unique<Impl>(backend);
  ASSIGN_OR_RETURN(impl->acceptor, Acceptor::Listen(options.address, &backend->connections()));
  impl->matrices.AddTo(&impl->methods);
  impl->preconditioners.AddTo(&impl->methods);
  impl->solver.AddTo(&impl->methods);
  impl->jobs.AddTo(&impl->methods);
  impl->info.AddTo(&impl->methods);
  impl->health.AddTo(&impl->methods);
  if (options.reflection) impl->reflection.AddTo(&impl->methods);

  const ConnectionLimits& limits = backend->connections().limits();
  grpc::ServerBuilder builder;
  using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  impl->connections =
      builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, options.credentials);
  builder.RegisterCallbackGenericService(&impl->methods);
  // A few hundred KiB may inflate to a GiB, and do so before anybody can look at the size.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.SetContextAllocator(std::make_unique<Contexts>(&backend->connections()));
  grpc::ResourceQuota quota("spaid");
  quota.Resize(static_cast<size_t>(kQuotaOverBytes * limits.max_bytes));
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(limits.max_streams));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Ms(options.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Ms(limits.idle));
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Arrays come in messages of about 1 MiB: one frame each, and while one is taken the next few may
  // be on their way. Fixed: probing for the bandwidth would begin anew with every connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  // A frame that gRPC takes for an offence costs it much more than the frame's bytes, and it cuts
  // the connection only when it has looked at all that it has read. Pings are none: Connections
  // counts their bytes.
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             static_cast<int>(options.keepalive_time.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(options.keepalive_timeout.count()));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  for (int i = 0; i < kMorePollers; ++i) impl->queues.push_back(builder.AddCompletionQueue());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) {
    return MakeError(absl::StatusCode::kUnavailable, reason::kCannotListen,
                     "gRPC cannot start a server; the log says why");
  }
  for (const auto& queue : impl->queues) {
    impl->pollers.emplace_back([q = queue.get()] {
      void* tag = nullptr;
      bool ok = false;
      while (q->Next(&tag, &ok)) {
      }
    });
  }
  impl->acceptor->Start([acceptor = impl->connections.get()](int listener, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  impl->probe.emplace(impl->acceptor->listens_on(), options.tls, options.self_probe,
                      &backend->connections(), &backend->metrics());
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() { Shutdown(std::chrono::milliseconds(0)); }

const std::string& RpcServer::address() const { return impl_->acceptor->address(); }

bool RpcServer::deaf() const { return impl_->probe && impl_->probe->deaf(); }

std::vector<std::string> RpcServer::Paths() const { return impl_->methods.paths(); }

grpc::HealthCheckServiceInterface* RpcServer::health() { return &impl_->health; }

std::vector<std::string> RpcServer::ServiceNames() {
  return {v1::MatrixService::service_full_name(), v1::PreconditionerService::service_full_name(),
          v1::SolverService::service_full_name(), v1::JobService::service_full_name(),
          v1::ServerService::service_full_name()};
}

void RpcServer::Shutdown(std::chrono::milliseconds grace) {
  if (impl_->server == nullptr) return;
  impl_->probe.reset();
  impl_->acceptor->Stop();
  impl_->backend->streams().CutAll(DrainingError());
  // gRPC cancels calls that open or are stuck after this at the deadline, which ends their
  // reactors.
  impl_->server->Shutdown(std::chrono::system_clock::now() + grace);
  impl_->server->Wait();
  for (const auto& queue : impl_->queues) queue->Shutdown();
  for (std::thread& poller : impl_->pollers) poller.join();
  impl_->server.reset();
}

}  // namespace spaid::server
