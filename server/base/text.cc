#include "server/base/text.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace spaid::server {
namespace {

// The character that `text`, not empty, begins with, and its length; 0: that is no UTF-8.
size_t Decode(std::string_view text, uint32_t* character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    *character = first;
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  uint32_t c = first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
    c = c << 6 | (byte(i) & 0x3fU);
  }
  constexpr uint32_t kShortest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kShortest[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
  *character = c;
  return length;
}

bool IsPlain(uint32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
  if (c == 0x61c || c == 0x200e || c == 0x200f || c == 0xfeff) return false;
  return !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069);
}

}  // namespace

bool IsPlainText(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint32_t c = 0;
    const size_t length = Decode(text.substr(at), &c);
    if (length == 0 || !IsPlain(c)) return false;
    at += length;
  }
  return true;
}

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    uint32_t c = 0;
    size_t length = Decode(text.substr(at), &c);
    const bool plain = length > 0 && IsPlain(c) && c != '\\';
    if (length == 0) length = 1;
    if (plain) {
      out.append(text.substr(at, length));
    } else {
      for (const char byte : text.substr(at, length)) {
        char escaped[8];
        std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(byte));
        out.append(escaped);
      }
    }
    at += length;
  }
  return out;
}

bool MayRepeat(std::string_view name) {
  constexpr size_t kMaxBytes = 64;
  return name.size() <= kMaxBytes && IsPlainText(name);
}

std::string Repeated(std::string_view name) {
  if (MayRepeat(name)) return "'" + std::string(name) + "'";
  return "of this name (" + std::to_string(name.size()) + " bytes)";
}

}  // namespace spaid::server
