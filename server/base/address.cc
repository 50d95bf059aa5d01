#include "server/base/address.h"

#include "absl/strings/numbers.h"

namespace spaid::server {

std::optional<HostPort> ParseHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return std::nullopt;
  const absl::string_view host = address.substr(0, colon), port = address.substr(colon + 1);
  // Without brackets nobody can tell the last group of an IPv6 address from a port.
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && host.find_first_of(":[]") != absl::string_view::npos) return std::nullopt;
  HostPort parsed{.host = std::string(host)};
  if (port.empty() || port.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(port, &parsed.port) || parsed.port > 65535) {
    return std::nullopt;
  }
  return parsed;
}

}  // namespace spaid::server
