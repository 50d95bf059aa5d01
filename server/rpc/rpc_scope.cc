#include "server/rpc/rpc_scope.h"

#include <string>

#include "server/base/guard.h"
#include "server/base/log.h"
#include "server/base/status.h"

namespace spaid::server {

RpcScope::RpcScope(std::string_view method, Metrics* metrics)
    : method_(method), metrics_(metrics), start_(std::chrono::steady_clock::now()) {
  metrics_->RpcStarted(method_);
}

RpcScope::~RpcScope() {
  if (!ended_) Ended(absl::InternalError("the call was dropped without a status"));
}

void RpcScope::Ended(const absl::Status& status) {
  ended_ = true;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  // Without memory there is no line, and no count; the call ends all the same.
  (void)Guarded("the log of a call", [&] {
    const std::string code = absl::StatusCodeToString(status.code());
    const std::string why = ReasonOf(status);
    metrics_->RpcEnded(method_, code, why, seconds.count());
    Log(status.ok() ? LogLevel::kDebug : LogLevel::kInfo, "rpc",
        {{"method", method_},
         {"code", code},
         {"reason", why},
         {"field", FieldOf(status)},
         {"ms", seconds.count() * 1e3}});
    return absl::OkStatus();
  });
}

}  // namespace spaid::server
