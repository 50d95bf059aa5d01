// gRPC's own log lines through ours: one format, one place, one level.
#pragma once

#include "server/base/log.h"

namespace spaid::server {

// gRPC's errors are logged at `errors`, everything else at debug. While the server starts they
// belong at debug: what went wrong is said once, in our words. Call before or after any use of
// gRPC.
void RouteGrpcLog(LogLevel errors);

}  // namespace spaid::server
