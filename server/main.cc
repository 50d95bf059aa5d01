// spaid: flags -> wiring -> wait for a signal -> drain.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/adapter.h"
#include "server/flags.h"
#include "server/ops/drain.h"
#include "server/ops/health.h"
#include "server/ops/http.h"
#include "server/ops/signals.h"
#include "server/ops/watchdog.h"
#include "server/rpc/backend.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/server.h"

namespace spaid::server {
namespace {

// For open streams to take the news of their end, and for the last stuck ones.
constexpr std::chrono::seconds kShutdownGrace{2};
constexpr std::chrono::seconds kShutdownLimit{30};
// How late freed memory may go back.
constexpr std::chrono::seconds kReleaseEvery{1};

// Written beside and renamed: a reader sees the whole address or no file.
absl::Status WritePortFile(const std::string& file, const std::string& address) {
  const std::string partial = absl::StrCat(file, ".", getpid());
  std::ofstream out(partial, std::ios::trunc);
  out << address << "\n";
  out.close();
  if (!out || std::rename(partial.c_str(), file.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(partial.c_str());
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadFlag,
                     absl::StrCat("--port-file=", file, " cannot be written: ", why));
  }
  return absl::OkStatus();
}

absl::Status Serve(Flags flags, ShutdownSignals& signals) {
  if (flags.keep_freed.count() > 0) kernels::KeepFreedMemory();
  const kernels::CudaDevices& cuda = kernels::ListCudaDevices();
  flags.backend.cuda_status = cuda.status;
  flags.backend.idle_devices = cuda.devices;

  Tokens tokens;
  if (!flags.tokens_file.empty()) {
    ASSIGN_OR_RETURN(tokens, Tokens::ReadFile(flags.tokens_file));
  }
  ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(flags.tls));

  std::optional<Watchdog> watchdog;  // set at the end; outlives what is taken down below it
  const std::unique_ptr<kernels::Engine> engine = kernels::MakeCpuEngine();
  Metrics metrics;
  Backend backend(flags.backend, *engine,
                  Authenticator(std::move(tokens), flags.trust_tenant_header), &metrics);
  metrics.OnScrape([&backend] { backend.SetGauges(); });
  ASSIGN_OR_RETURN(
      auto server,
      RpcServer::Start({.address = flags.address, .credentials = credentials}, &backend));
  HealthBoard health(server->health(), RpcServer::ServiceNames());
  std::unique_ptr<OpsServer> ops;  // dies before what its scrapes read
  if (!flags.ops_address.empty()) {
    ASSIGN_OR_RETURN(ops, OpsServer::Start(flags.ops_address, &metrics,
                                           [&backend] { return !backend.draining(); }));
  }
  RouteGrpcLog(LogLevel::kWarning);
  health.SetReady(true);
  metrics.SetReady(true);
  Log(LogLevel::kInfo, "serving",
      {{"version", flags.backend.version},
       {"address", server->address()},
       {"ops_address", ops ? ops->address() : "off"},
       {"tls", flags.tls.any()},
       {"mtls", !flags.tls.client_ca.empty()},
       {"device", "cpu"},
       {"cuda", cuda.status},
       {"matrix_store_bytes", flags.backend.matrix_store_bytes},
       {"preconditioner_store_bytes", flags.backend.preconditioner_store_bytes}});
  if (!flags.tls.any()) {
    Log(LogLevel::kWarning, "plaintext",
        {{"address", server->address()},
         {"text", "no TLS: everything, tokens too, can be read and changed on the way"}});
  }
  if (!flags.port_file.empty()) RETURN_IF_ERROR(WritePortFile(flags.port_file, server->address()));

  const std::string signal =
      signals.Wait(kReleaseEvery, [&flags] { kernels::ReleaseFreedLarge(flags.keep_freed); });
  Log(LogLevel::kInfo, "signal", {{"signal", signal}});
  const auto not_ready = [&] {
    backend.SetDraining();
    health.SetReady(false);
    metrics.SetReady(false);
  };
  const auto refuse_new = [&] { backend.Refuse(); };
  const auto finish_work = [&](TimePoint deadline) { return backend.scheduler().Drain(deadline); };
  const auto finish_streams = [&](TimePoint deadline) {
    return backend.streams().WaitEmpty(deadline);
  };
  const auto shut_down = [&] {
    const Watchdog shutdown_watchdog(kShutdownLimit, "the gRPC server does not shut down");
    server->Shutdown(kShutdownGrace);
  };
  Drain(flags.drain, {.not_ready = not_ready,
                      .wait = [&](std::chrono::milliseconds t) { return signals.WaitFor(t); },
                      .refuse_new = refuse_new,
                      .finish_work = finish_work,
                      .finish_streams = finish_streams,
                      .shut_down = shut_down});
  if (!flags.port_file.empty()) std::remove(flags.port_file.c_str());
  ops.reset();
  watchdog.emplace(kShutdownLimit, "a job does not stop");
  return absl::OkStatus();
}

}  // namespace
}  // namespace spaid::server

int main(int argc, char** argv) {
  using namespace spaid::server;  // NOLINT(google-build-using-namespace): this file is the daemon
  const ParsedFlags parsed = ParseFlags(argc, argv, spaid::kernels::UsableMemoryBytes());
  if (parsed.exit_code) return *parsed.exit_code;
  SetLogLevel(parsed.flags.log_level);
  RouteGrpcLog(LogLevel::kDebug);
  ShutdownSignals signals;  // before any thread starts
  if (const absl::Status status = Serve(parsed.flags, signals); !status.ok()) {
    std::fprintf(stderr, "spaid: [%s] %s\n", ReasonOf(status).c_str(),
                 std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
