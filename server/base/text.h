// Checks and escapes texts of clients (labels, names) before they are kept or shown, so that a
// terminal or a log takes them for text only.
#pragma once

#include <string>
#include <string_view>

namespace spaid::server {

// Returns true if `text` is valid UTF-8 without control characters (C0, DEL, C1), line and
// paragraph separators, and marks that turn the direction of writing.
bool IsPlainText(std::string_view text);

// Returns `text` with each byte that is not plain, and each backslash, written as \xHH.
std::string Printable(std::string_view text);

// Returns true if an error may repeat `name` as a client sent it: at most 64 bytes of plain text.
bool MayRepeat(std::string_view name);
// Returns how an error names it: "'name'", or "of this name (20000 bytes)" if it may not repeat it.
std::string Repeated(std::string_view name);

}  // namespace spaid::server
