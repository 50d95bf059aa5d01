#include "server/base/cidr.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"

namespace spaid::server {
namespace {

using Bytes = std::array<uint8_t, 16>;

constexpr int kMappedBits = 96;  // ::ffff:0:0/96 holds IPv4

Bytes Mapped(const in_addr& v4) {
  Bytes bytes{};
  bytes[10] = bytes[11] = 0xff;
  std::memcpy(&bytes[12], &v4, 4);
  return bytes;
}

// Whether the first `bits` of both are the same.
bool Same(const Bytes& a, const Bytes& b, int bits) {
  const int whole = bits / 8;
  if (!std::equal(a.begin(), a.begin() + whole, b.begin())) return false;
  const int rest = bits % 8;
  return rest == 0 || (a[static_cast<size_t>(whole)] >> (8 - rest)) ==
                          (b[static_cast<size_t>(whole)] >> (8 - rest));
}

}  // namespace

std::optional<Bytes> AddressBytes(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    return Mapped(v4.sin_addr);
  }
  if (address->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6;
  std::memcpy(&v6, address, sizeof v6);
  Bytes bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return bytes;
}

std::optional<Cidr> Cidr::Parse(std::string_view text) {
  const size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  Cidr cidr;
  int most = 128;
  in_addr v4;
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    cidr.address_ = Mapped(v4);
    most = 32;
  } else if (inet_pton(AF_INET6, address.c_str(), cidr.address_.data()) != 1) {
    return std::nullopt;
  }
  int bits = most;
  if (slash != std::string_view::npos) {
    const std::string digits(text.substr(slash + 1));
    if (digits.empty() || digits.size() > 3 ||
        digits.find_first_not_of("0123456789") != std::string::npos ||
        !absl::SimpleAtoi(digits, &bits) || bits > most) {
      return std::nullopt;
    }
  }
  cidr.bits_ = most == 32 ? kMappedBits + bits : bits;
  for (int bit = cidr.bits_; bit < 128; ++bit) {
    if ((cidr.address_[static_cast<size_t>(bit / 8)] >> (7 - bit % 8)) & 1) return std::nullopt;
  }
  return cidr;
}

bool Cidr::Contains(const Bytes& address) const {
  // A range of IPv6 that the mapped addresses lie in, as ::/0, is still none of IPv4.
  const Bytes any_v4 = Mapped({});
  return Same(address_, address, bits_) &&
         (bits_ >= kMappedBits || !Same(address, any_v4, kMappedBits));
}

}  // namespace spaid::server
