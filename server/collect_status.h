// Gathers the contents of the status page from the parts of the daemon.
#pragma once

#include <string>

#include "server/ops/server_status.h"
#include "server/rpc/backend.h"

namespace spaid::server {

// Returns the daemon's state. `address`: where gRPC is served. Thread-safe. Takes time proportional
// to the jobs shown and their residuals.
ServerStatus CollectStatus(Backend& backend, const std::string& address);

}  // namespace spaid::server
