// spaid: flags -> devices -> serve.
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

absl::Status Run(Flags flags, ShutdownSignals& signals) {
  ASSIGN_OR_RETURN(OpenedEngine opened, OpenEngine(flags.devices, flags.device_memory,
                                                   flags.gpu_slots, kernels::ListCudaDevices()));
  flags.backend.cuda_status = opened.cuda_status;
  flags.backend.idle_devices = std::move(opened.idle);
  return Serve(std::move(flags), *opened.engine, signals);
}

}  // namespace
}  // namespace spaid::server

int main(int argc, char** argv) {
  using namespace spaid::server;  // NOLINT(google-build-using-namespace): this file is the daemon
  const ParsedFlags parsed = ParseFlags(argc, argv, spaid::kernels::UsableMemoryBytes());
  if (parsed.exit_code) return *parsed.exit_code;
  SetLogLevel(parsed.flags.log_level);
  SetLogLimits(parsed.flags.log_limits);
  FlushLogAtCrash();
  RouteGrpcLog(LogLevel::kDebug);
  ShutdownSignals signals;
  return ReportEnd(Run(parsed.flags, signals));
}
