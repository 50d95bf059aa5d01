// HOST:PORT.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace spaid::server {

struct HostPort {
  std::string host;  // as written, an IPv6 address in brackets
  int port = 0;      // 0 to 65535
};

// nullopt where `address` is not HOST:PORT with a host. Thread-safe.
std::optional<HostPort> ParseHostPort(absl::string_view address);

}  // namespace spaid::server
