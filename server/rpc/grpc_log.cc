#include "server/rpc/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <atomic>
#include <string>

namespace spaid::server {
namespace {

std::atomic<LogLevel> g_errors{LogLevel::kDebug};

void Forward(gpr_log_func_args* line) {
  const bool error = line->severity == GPR_LOG_SEVERITY_ERROR;
  Log(error ? g_errors.load() : LogLevel::kDebug, "grpc",
      {{"text", line->message}, {"file", line->file}, {"line", line->line}});
}

// A caller brings them about as it likes: a text that is no UTF-8 is enough.
void ForwardProtobuf(google::protobuf::LogLevel, const char* file, int line,
                     const std::string& message) {
  Log(LogLevel::kDebug, "protobuf", {{"text", message}, {"file", file}, {"line", line}});
}

}  // namespace

void RouteGrpcLog(LogLevel errors) {
  g_errors = errors;
  gpr_set_log_function(&Forward);
  [[maybe_unused]] static auto* const before = google::protobuf::SetLogHandler(&ForwardProtobuf);
}

}  // namespace spaid::server
