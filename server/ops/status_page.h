// The status page: one HTML document that is whole by itself. No scripts, nothing from elsewhere.
#pragma once

#include <string>

#include "server/ops/server_status.h"

namespace spaid::server {

// Of these many jobs in each list a page tells, whatever it is given.
inline constexpr size_t kMostJobsShown = 50;

struct StatusPageOptions {
  int refresh_seconds = 5;  // 0: it stays as it is
};

std::string StatusPage(const ServerStatus& status, const StatusPageOptions& options = {});

// The same for programs, JSON. Times in milliseconds, bytes in bytes, moments in seconds since
// 1970.
std::string StatusJson(const ServerStatus& status);

}  // namespace spaid::server
