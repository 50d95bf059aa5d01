// Records one call in the metrics and the log, from its start to its status.
#pragma once

#include <chrono>
#include <string_view>

#include "absl/status/status.h"
#include "server/base/metrics.h"

namespace spaid::server {

// Thread-compatible.
class RpcScope {
 public:
  // `method`: "SolverService/Solve"; static storage. `metrics` outlives the scope.
  RpcScope(std::string_view method, Metrics* metrics);
  ~RpcScope();  // a call that was never ended counts as INTERNAL: a bug that shows in the metrics
  RpcScope(const RpcScope&) = delete;
  RpcScope& operator=(const RpcScope&) = delete;

  // Records the call's end. Call at most once.
  void Ended(const absl::Status& status);

 private:
  const std::string_view method_;
  Metrics* const metrics_;
  const std::chrono::steady_clock::time_point start_;
  bool ended_ = false;
};

}  // namespace spaid::server
