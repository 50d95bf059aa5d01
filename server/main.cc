// spaid: flags -> devices -> serve.
#include <string>
#include <utility>

#include "server/base/log.h"
#include "server/base/status.h"
#include "server/engine/devices.h"
#include "server/flags.h"
#include "server/ops/signals.h"
#include "server/rpc/grpc_log.h"
#include "server/serve.h"

namespace spaid::server {
namespace {

// `program`: version and options.
absl::StatusOr<int> Run(Flags flags, const std::string& program, ShutdownSignals& signals) {
  ASSIGN_OR_RETURN(JoinedRanks ranks,
                   JoinRanks(flags.devices, program, flags.backend.threads, flags.keep_freed));
  if (ranks.exit_code) return *ranks.exit_code;
  ASSIGN_OR_RETURN(OpenedEngine opened,
                   OpenEngine(flags.devices, flags.device_memory, flags.gpu_slots,
                              kernels::ListCudaDevices(), std::move(ranks.device)));
  flags.backend.cuda_status = opened.cuda_status;
  flags.backend.idle_devices = std::move(opened.idle);
  RETURN_IF_ERROR(Serve(std::move(flags), *opened.engine, signals));
  return 0;
}

}  // namespace
}  // namespace spaid::server

int main(int argc, char** argv) {
  using namespace spaid::server;  // NOLINT(google-build-using-namespace): this file is the daemon
  const ParsedFlags parsed = ParseFlags(argc, argv, spaid::kernels::UsableMemoryBytes());
  if (parsed.exit_code) return *parsed.exit_code;
  SetLogLevel(parsed.flags.log_level);
  SetLogLimits(parsed.flags.log_limits);
  SetLogFormat(parsed.flags.log_format);
  FlushLogAtCrash();
  RouteGrpcLog(LogLevel::kDebug);
  ShutdownSignals signals;
  const std::string program = "spaid " + parsed.flags.backend.version + ": " + parsed.given;
  const absl::StatusOr<int> exit_code = Run(parsed.flags, program, signals);
  return exit_code.ok() ? *exit_code : ReportEnd(exit_code.status());
}
