#include "server/serve.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/adapter.h"
#include "server/ops/drain.h"
#include "server/ops/health.h"
#include "server/ops/http.h"
#include "server/ops/port_file.h"
#include "server/ops/watchdog.h"
#include "server/rpc/backend.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/server.h"
#include "server/status_of.h"

namespace spaid::server {
namespace {

// For open streams to take the news of their end, and for the last stuck ones.
constexpr std::chrono::seconds kShutdownGrace{2};
constexpr std::chrono::seconds kShutdownLimit{30};
// How late freed memory may go back, and the loss of the last device may be seen.
constexpr std::chrono::seconds kLookEvery{1};

struct TokenFiles {
  Tokens tenants, administrators;
};

absl::StatusOr<TokenFiles> ReadTokens(const Flags& flags) {
  TokenFiles read;
  if (!flags.tokens_file.empty()) {
    ASSIGN_OR_RETURN(read.tenants, Tokens::ReadFile("--tokens", flags.tokens_file));
  }
  if (!flags.admin_tokens_file.empty()) {
    ASSIGN_OR_RETURN(read.administrators,
                     Tokens::ReadFile("--admin-tokens", flags.admin_tokens_file));
  }
  return read;
}

// A file that cannot be used leaves all as it was.
void ReloadTokens(const Flags& flags, Authenticator* authenticator) {
  auto read = ReadTokens(flags);
  if (!read.ok()) {
    Log(LogLevel::kError, "tokens_not_reloaded",
        {{"text", std::string(read.status().message())}, {"kept", "the ones before"}});
    return;
  }
  Log(LogLevel::kInfo, "tokens_reloaded",
      {{"tokens", read->tenants.size()}, {"admin_tokens", read->administrators.size()}});
  authenticator->SetTokens(std::move(read->tenants), std::move(read->administrators));
}

// The error of a daemon that has nothing left to compute on.
absl::Status NoDeviceLeft(const Backend& backend) {
  std::string lost;
  for (size_t d = 0; d < backend.adapter().device_names().size(); ++d) {
    absl::StrAppend(&lost, d == 0 ? "" : "; ", backend.adapter().device_names()[d], ": ",
                    backend.scheduler().DeviceStatus(d).message());
  }
  return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost,
                   absl::StrCat("no device of --devices is left: ", lost));
}

}  // namespace

absl::Status Serve(Flags flags, const kernels::Engine& engine, ShutdownSignals& signals) {
  if (flags.keep_freed.count() > 0) kernels::KeepFreedMemory();

  ASSIGN_OR_RETURN(TokenFiles tokens, ReadTokens(flags));
  const bool credentials_wanted =
      !flags.allow_anonymous && (!flags.tokens_file.empty() || !flags.tls.client_ca.empty());
  flags.tls.client_may_have_none = flags.allow_anonymous;
  ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(flags.tls));

  std::optional<Watchdog> watchdog;  // set at the end; outlives what is taken down below it
  Metrics metrics;
  Backend backend(flags.backend, engine,
                  Authenticator({.credentials_wanted = credentials_wanted,
                                 .trust_tenant_header = flags.trust_tenant_header,
                                 .admin_subjects = flags.admin_subjects},
                                std::move(tokens.tenants), std::move(tokens.administrators)),
                  &metrics);
  metrics.OnScrape([&backend] { backend.SetGauges(); });
  ASSIGN_OR_RETURN(
      auto server,
      RpcServer::Start({.address = flags.address, .credentials = credentials}, &backend));
  HealthBoard health(server->health(), RpcServer::ServiceNames());
  std::unique_ptr<OpsServer> ops;  // dies before what its scrapes read
  if (!flags.ops_address.empty()) {
    const auto status = [&backend, address = server->address()] {
      return StatusOf(backend, address);
    };
    ASSIGN_OR_RETURN(
        ops, OpsServer::Start(flags.ops_address, {.metrics = &metrics,
                                                  .ready = [&backend] { return backend.ready(); },
                                                  .status = status,
                                                  .host_names = flags.ops_hosts}));
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
       {"devices", absl::StrJoin(backend.adapter().device_names(), ",")},
       {"cuda", flags.backend.cuda_status},
       {"matrix_store_bytes", flags.backend.matrix_store_bytes},
       {"preconditioner_store_bytes", flags.backend.preconditioner_store_bytes}});
  if (!flags.tls.any()) {
    Log(LogLevel::kWarning, "plaintext",
        {{"address", server->address()},
         {"text", "no TLS: everything, tokens too, can be read and changed on the way"}});
  }
  std::optional<PortFile> port_file;
  if (!flags.port_file.empty()) {
    ASSIGN_OR_RETURN(PortFile written, PortFile::Write(flags.port_file, server->address()));
    port_file.emplace(std::move(written));
  }

  const std::string signal = signals.Wait(
      kLookEvery,
      [&] {
        kernels::ReleaseFreedLarge(flags.keep_freed);
        return backend.any_device();
      },
      [&] { ReloadTokens(flags, &backend.authenticator()); });
  if (!signal.empty()) Log(LogLevel::kInfo, "signal", {{"signal", signal}});
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
  if (port_file) port_file->Remove();
  ops.reset();
  watchdog.emplace(kShutdownLimit, "a job does not stop");
  if (!backend.any_device()) return NoDeviceLeft(backend);
  return absl::OkStatus();
}

}  // namespace spaid::server
