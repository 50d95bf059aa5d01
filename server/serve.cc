#include "server/serve.h"

#include <grpcpp/health_check_service_interface.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/collect_status.h"
#include "server/engine/adapter.h"
#include "server/ops/drain.h"
#include "server/ops/health.h"
#include "server/ops/http.h"
#include "server/ops/otlp_exporter.h"
#include "server/ops/port_file.h"
#include "server/ops/watchdog.h"
#include "server/rpc/acceptor.h"
#include "server/rpc/backend.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/local_socket.h"
#include "server/rpc/server.h"
#include "server/store/spill_folder.h"

namespace spaid::server {
namespace {

// For open streams to take the news of their end, and for the last stuck ones.
constexpr std::chrono::seconds kShutdownGrace{2};
constexpr std::chrono::seconds kShutdownLimit{30};
constexpr std::chrono::seconds kLogGrace{1};
// At the end, to write what is not in the spill folder yet.
constexpr std::chrono::seconds kSpillGrace{20};
// How late freed memory may go back, the loss of a device may end the daemon, and its port be told
// after the devices have been measured.
constexpr std::chrono::seconds kLookEvery{1};
constexpr std::chrono::milliseconds kMeasuredEvery{5};

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
  const size_t tenants = read->tenants.size(), administrators = read->administrators.size();
  authenticator->SetTokens(std::move(read->tenants), std::move(read->administrators));
  Log(LogLevel::kInfo, "tokens_reloaded", {{"tokens", tenants}, {"admin_tokens", administrators}});
}

// A file that cannot be read now leaves what was told before: the daemon, too, keeps what it has.
void TellExpiry(const TlsFiles& tls, Metrics* metrics) {
  const auto tell = [metrics](const char* flag, const std::string& file) {
    if (file.empty()) return;
    if (const auto expiry = CertificateExpiry(flag, file); expiry.ok()) {
      metrics->SetCertificateExpiry(flag, *expiry);
    }
  };
  tell("tls-cert", tls.certificate);
  tell("tls-client-ca", tls.client_ca);
}

// Small blocks that were freed stay with malloc, for ever where a few live ones lie behind them.
// Gives back to the system what a burst left, when it has stayed resident for two looks: a steady
// load uses it again.
class FreedHeap {
 public:
  void Look() {
    const int64_t idle = IdleBytes();
    if (idle > fixed_ + kMuch && before_ > fixed_ + kMuch) {
      malloc_trim(0);
      fixed_ = IdleBytes();
      before_ = 0;
      return;
    }
    fixed_ = std::min(fixed_, idle);
    before_ = idle;
  }

 private:
  // Resident memory without a file behind it that is no block in use. malloc's own count of what is
  // free does not tell what it has given back.
  static int64_t IdleBytes() {
    int64_t size = 0, resident = 0, of_files = 0;  // pages
    std::ifstream("/proc/self/statm") >> size >> resident >> of_files;
    const struct mallinfo2 heap = mallinfo2();
    return (resident - of_files) * sysconf(_SC_PAGESIZE) -
           static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  }

  static constexpr int64_t kMuch = 16 << 20;
  // Bytes: what was left by the last trim, or less (stacks, a driver's memory), and the last
  // look's.
  int64_t fixed_ = 0, before_ = 0;
};

// The error of a daemon that has lost what it cannot go on without.
absl::Status TooFewDevices(const Backend& backend) {
  const char* const what = backend.scheduler().healthy() == 0 ? "no device of --devices is left: "
                           : backend.options().exit_on_device_loss
                               ? "a device is lost (--on-device-loss=exit): "
                               : "the CPU is lost, which no other device stands in for: ";
  return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost,
                   absl::StrCat(what, backend.LostDevices()));
}

}  // namespace

absl::Status Serve(Flags flags, const kernels::Engine& engine, ShutdownSignals& signals) {
  if (flags.keep_freed.count() > 0) kernels::KeepFreedMemory();

  const int64_t descriptors = RaiseDescriptorLimit();
  ASSIGN_OR_RETURN(TokenFiles tokens, ReadTokens(flags));
  const bool credentials_wanted =
      !flags.allow_anonymous && (!flags.tokens_file.empty() || !flags.tls.client_ca.empty());
  ASSIGN_OR_RETURN(auto credentials, MakeServerCredentials(flags.tls));

  std::unique_ptr<SpillFolder> spill;
  if (!flags.spill.folder.empty()) {
    signal(SIGXFSZ, SIG_IGN);  // a file that may grow no more is an error of its write
    flags.spill.shares = {.weights = flags.backend.tenant_weights,
                          .max_tenants = flags.backend.max_tenants};
    ASSIGN_OR_RETURN(spill, SpillFolder::Open(flags.spill));
    flags.backend.spill = spill.get();
  }
  std::unique_ptr<OtlpExporter> spans;  // outlives those who make them
  std::optional<Tracer> tracer;
  if (!flags.otlp_endpoint.empty()) {
    ASSIGN_OR_RETURN(OtlpOptions otlp, OtlpFromEnvironment(std::getenv, flags.backend.version));
    otlp.endpoint = flags.otlp_endpoint;
    const Sampling sampling = otlp.sampling;
    ASSIGN_OR_RETURN(spans, OtlpExporter::Start(std::move(otlp)));
    flags.backend.tracer = &tracer.emplace(spans.get(), sampling);
  }
  std::optional<Watchdog> watchdog;  // set at the end; outlives what is taken down below it
  Metrics metrics;
  Backend backend(flags.backend, engine,
                  Authenticator({.credentials_wanted = credentials_wanted,
                                 .trust_tenant_header = flags.trust_tenant_header,
                                 .admin_subjects = flags.admin_subjects},
                                std::move(tokens.tenants), std::move(tokens.administrators)),
                  &metrics);
  // Strangers take descriptors at either port.
  flags.ops.max_connections =
      std::max<int64_t>(4, std::min(flags.ops.max_connections, descriptors / 8));
  const bool local = !flags.local.path.empty();
  const int64_t for_local =
      local ? flags.local.max_connections + flags.backend.segments.max_segments : 0;
  backend.connections().LimitTo(
      ConnectionsFor(descriptors - flags.ops.max_connections - for_local));
  metrics.SetMemoryLimit(kernels::UsableMemoryBytes());
  metrics.OnScrape([&backend, &metrics, tls = flags.tls, spans = spans.get()] {
    backend.SetGauges();
    TellExpiry(tls, &metrics);
    if (spans == nullptr) return;
    const SpanCounts now = spans->counts();
    metrics.SetSpans(now.exported, now.queue_full, now.failed);
  });
  ASSIGN_OR_RETURN(auto server, RpcServer::Start({.address = flags.address,
                                                  .credentials = credentials,
                                                  .reflection = flags.reflection,
                                                  .tls = flags.tls.any(),
                                                  .self_probe = {.every = flags.self_probe}},
                                                 &backend));
  std::unique_ptr<LocalSocket> local_socket;
  if (local) {
    ASSIGN_OR_RETURN(local_socket, LocalSocket::Listen(flags.local, &backend));
  }
  HealthBoard health(server->health(), RpcServer::ServiceNames());
  std::unique_ptr<OpsServer> ops;  // dies before what its scrapes read
  if (!flags.ops_address.empty()) {
    const auto status = [&backend, address = server->address()] {
      return CollectStatus(backend, address);
    };
    ASSIGN_OR_RETURN(
        ops, OpsServer::Start(flags.ops_address, {.metrics = &metrics,
                                                  .alive = [&server] { return !server->deaf(); },
                                                  .ready = [&backend] { return backend.ready(); },
                                                  .status = status,
                                                  .host_names = flags.ops_hosts,
                                                  .http = flags.ops}));
    metrics.OnScrape([&metrics, http = ops.get()] {
      const HttpFigures now = http->figures();
      metrics.SetOps({.open = now.open,
                      .limit = now.limit,
                      .crowded_out = now.crowded_out,
                      .timed_out = now.timed_out,
                      .too_large = now.too_large});
      const LogTotals log = LogCounts();
      metrics.SetLog(log.dropped, log.suppressed);
    });
  }
  RouteGrpcLog(LogLevel::kWarning);
  const auto tell_readiness = [&] {
    health.SetReady(backend.ready());
    metrics.SetReady(backend.ready());
  };
  backend.OnReadiness(tell_readiness);
  const absl::Cleanup no_news = [&] { backend.OnReadiness(nullptr); };
  Log(LogLevel::kInfo, "serving",
      {{"version", flags.backend.version},
       {"address", server->address()},
       {"ops_address", ops ? ops->address() : "off"},
       {"local_socket", local ? flags.local.path : "off"},
       {"spill_dir", spill ? spill->path() : "off"},
       {"otlp_endpoint", spans ? flags.otlp_endpoint : "off"},
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
  FreedHeap freed;
  const auto reload = [&] { ReloadTokens(flags, &backend.authenticator()); };
  std::string signal = signals.Wait(
      kMeasuredEvery, [&] { return !backend.scheduler().prepared(); }, reload);
  std::optional<PortFile> port_file;
  if (signal.empty() && backend.usable()) {
    tell_readiness();     // who finds the port file finds it ready,
    FlushLog(kLogGrace);  // and these lines
    if (!flags.port_file.empty()) {
      ASSIGN_OR_RETURN(PortFile written, PortFile::Write(flags.port_file, server->address()));
      port_file.emplace(std::move(written));
    }
    signal = signals.Wait(
        kLookEvery,
        [&] {
          kernels::ReleaseFreedLarge(flags.keep_freed);
          freed.Look();
          return backend.usable() && !server->deaf();
        },
        reload);
  }
  const bool deaf = server->deaf();
  if (deaf) {
    server->health()->SetServingStatus("liveness", false);
    Log(LogLevel::kError, "deaf", {{"address", server->address()}});
  }
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
  Drain(flags.drain,
        {.not_ready = not_ready,
         .wait = [&](std::chrono::milliseconds t) { return signals.WaitFor(t, reload); },
         .refuse_new = refuse_new,
         .finish_work = finish_work,
         .finish_streams = finish_streams,
         .shut_down = shut_down});
  if (port_file) port_file->Remove();
  local_socket.reset();
  ops.reset();
  backend.FlushSpill(kSpillGrace);
  watchdog.emplace(kShutdownLimit, "a job does not stop");
  absl::Status status = backend.usable() ? absl::OkStatus() : TooFewDevices(backend);
  if (deaf) {
    status = MakeError(absl::StatusCode::kUnavailable, reason::kDeaf,
                       absl::StrCat("the own port of --address=", flags.address,
                                    " has not answered the daemon itself for too long"));
  }
  if (backend.scheduler().hangs()) {
    // Its thread cannot be joined, and may come back to what it works on as long as the process is.
    Log(LogLevel::kError, "job_left_hanging");
    const int exit_code = ReportEnd(status);
    FlushLog(kLogGrace);
    std::_Exit(exit_code);
  }
  return status;
}

int ReportEnd(const absl::Status& status) {
  if (status.ok()) return 0;
  LogLastWords(absl::StrCat("spaid: [", ReasonOf(status), "] ", status.message()));
  return 1;
}

}  // namespace spaid::server
