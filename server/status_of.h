// What the status page tells, gathered from the parts of the daemon.
#pragma once

#include <string>

#include "server/ops/server_status.h"
#include "server/rpc/backend.h"

namespace spaid::server {

// `address`: where gRPC is served. Thread-safe. Takes as long as a glance at each of the jobs that
// are told of, and at their residuals.
ServerStatus StatusOf(Backend& backend, const std::string& address);

}  // namespace spaid::server
