// Makes texts of others safe for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spaid::cli {

// Returns the number of bytes of the UTF-8 character at `at`; 0 if there is no valid one, or one
// that neither XML nor a terminal should get: control characters, surrogates.
size_t CharacterBytes(std::string_view text, size_t at);

// Returns the text with characters that a terminal would obey (escape sequences, line ends, changes
// of the writing direction) and bytes that are no text written as \x1b. Texts of a server go
// through here.
std::string Printable(std::string_view text);

}  // namespace spaid::cli
