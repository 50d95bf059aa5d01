#include "client/cli/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace spaid::cli {
namespace {

// The code point of the character whose bytes these are.
uint32_t CodePoint(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  const size_t size = character.size();
  uint32_t code = size == 1 ? lead : lead & (0x7FU >> size);
  for (size_t k = 1; k < size; ++k) {
    code = code << 6 | (static_cast<unsigned char>(character[k]) & 0x3F);
  }
  return code;
}

// Ends a line, or makes what follows read from the other side, so that it says what it does not.
bool Misleads(uint32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || code == 0xFEFF ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

size_t CharacterBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned lead = byte(at);
  const size_t size = lead < 0x80                    ? 1
                      : lead >= 0xC2 && lead <= 0xDF ? 2
                      : lead >= 0xE0 && lead <= 0xEF ? 3
                      : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                     : 0;
  if (size == 0 || at + size > text.size()) return 0;
  for (size_t k = 1; k < size; ++k) {
    if ((byte(at + k) & 0xC0) != 0x80) return 0;
  }
  const uint32_t code = CodePoint(text.substr(at, size));
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  if ((control && code != '\t') || overlong || code > 0x10FFFF ||
      (code >= 0xD800 && code <= 0xDFFF) || code == 0xFFFE || code == 0xFFFF) {
    return 0;
  }
  return size;
}

std::string Printable(std::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const size_t size = CharacterBytes(text, at);
    const size_t step = std::max<size_t>(size, 1);
    if (size > 0 && text[at] != '\t' && !Misleads(CodePoint(text.substr(at, size)))) {
      shown += text.substr(at, size);
    } else {
      for (size_t k = at; k < at + step; ++k) {
        std::array<char, 8> escaped;
        std::snprintf(escaped.data(), escaped.size(), "\\x%02x",
                      static_cast<unsigned>(static_cast<unsigned char>(text[k])));
        shown += escaped.data();
      }
    }
    at += step;
  }
  return shown;
}

}  // namespace spaid::cli
