// The log lines of gRPC and Protobuf through ours: one format, one place, one level, and nobody
// waits for who reads them.
#pragma once

#include "server/base/log.h"

namespace spaid::server {

// gRPC's errors are logged at `errors`, everything else at debug. While the server starts they
// belong at debug: what went wrong is said once, in our words. The first call comes before there
// are threads.
void RouteGrpcLog(LogLevel errors);

}  // namespace spaid::server
