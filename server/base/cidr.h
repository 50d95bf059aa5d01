// Ranges of IP addresses: 10.0.0.0/8, 192.168.1.7, fd00::/8.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spaid::server {

// An address as IPv6 has it, IPv4 mapped into it; nullopt for another family. Thread-safe.
std::optional<std::array<uint8_t, 16>> AddressBytes(const sockaddr* address);

// Immutable, thread-safe.
class Cidr {
 public:
  // ADDRESS/BITS, or ADDRESS alone; nullopt where `text` is neither, or has bits behind the prefix.
  static std::optional<Cidr> Parse(std::string_view text);
  bool Contains(const std::array<uint8_t, 16>& address) const;

 private:
  std::array<uint8_t, 16> address_{};
  int bits_ = 128;  // prefix length in the mapped form
};

}  // namespace spaid::server
