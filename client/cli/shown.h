// Text of others on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spaid::cli {

// The bytes of the one character of UTF-8 at `at`; 0 where there is no valid one, or one that
// neither XML nor a terminal is to get: control characters, surrogates.
size_t CharacterBytes(std::string_view text, size_t at);

// As it is, but for what a terminal would obey (escape sequences, line ends, changes of the writing
// direction) and what is no text, which come as \x1b. What a server says goes through here.
std::string Shown(std::string_view text);

}  // namespace spaid::cli
