#include "client/cli/xml.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "client/cli/printable.h"

namespace spaid::cli {
namespace {

// Characters that XML may hold, each by itself; U+FFFD for what is none.
std::vector<std::string> Characters(std::string_view text) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t size = CharacterBytes(text, at);
    characters.emplace_back(size == 0 ? "\xEF\xBF\xBD" : text.substr(at, size));
    at += std::max<size_t>(size, 1);
  }
  return characters;
}

std::string Escaped(const std::vector<std::string>& characters) {
  std::string out;
  for (const std::string& c : characters) {
    if (c == "&") {
      out += "&amp;";
    } else if (c == "<") {
      out += "&lt;";
    } else if (c == ">") {
      out += "&gt;";
    } else if (c == "\"") {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string Escaped(std::string_view text) { return Escaped(Characters(text)); }

std::string EscapedEnd(std::string_view text, size_t most) {
  std::vector<std::string> characters = Characters(text);
  if (characters.size() > most) {
    characters.erase(characters.begin(), characters.end() - static_cast<int64_t>(most) + 1);
    characters.insert(characters.begin(), "…");
  }
  return Escaped(characters);
}

std::string EscapedBeginning(std::string_view text, size_t most) {
  std::vector<std::string> characters = Characters(text);
  if (characters.size() > most) {
    characters.resize(most - 1);
    characters.emplace_back("…");
  }
  return Escaped(characters);
}

std::string Coordinate(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

}  // namespace spaid::cli
