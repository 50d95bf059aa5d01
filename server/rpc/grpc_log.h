// Routes the log lines of gRPC and Protobuf through ours: one format, one place, one level, and
// nobody waits for the reader of standard error.
#pragma once

#include "server/base/log.h"

namespace spaid::server {

// Logs gRPC's errors at `errors`, everything else at debug. While the server starts, errors belong
// at debug, too, since the server reports them itself. Call it first before there are threads.
void RouteGrpcLog(LogLevel errors);

}  // namespace spaid::server
