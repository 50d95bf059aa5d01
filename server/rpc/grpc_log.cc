#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>

namespace spaid::server {
namespace {

std::atomic<LogLevel> g_errors{LogLevel::kDebug};

void Forward(gpr_log_func_args* line) {
  const bool error = line->severity == GPR_LOG_SEVERITY_ERROR;
  Log(error ? g_errors.load() : LogLevel::kDebug, "grpc",
      {{"text", line->message}, {"file", line->file}, {"line", line->line}});
}

}  // namespace

void RouteGrpcLog(LogLevel errors) {
  g_errors = errors;
  gpr_set_log_function(&Forward);
}

}  // namespace spaid::server
