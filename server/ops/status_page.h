// Renders the status page: one self-contained HTML document without scripts or external resources.
#pragma once

#include <string>

#include "server/ops/server_status.h"

namespace spaid::server {

// The page shows at most this many jobs of each list.
inline constexpr size_t kMostJobsShown = 50;

struct StatusPageOptions {
  int refresh_seconds = 5;  // 0: it stays as it is
};

std::string StatusPage(const ServerStatus& status, const StatusPageOptions& options = {});

// Renders the status as JSON, for programs. Durations in milliseconds, points in time in seconds
// since 1970.
std::string StatusJson(const ServerStatus& status);

}  // namespace spaid::server
