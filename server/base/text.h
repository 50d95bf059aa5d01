// Texts of others (labels, names) that are kept and shown: what a terminal or a log could take for
// more than text is told, and escaped.
#pragma once

#include <string>
#include <string_view>

namespace spaid::server {

// Whether `text` is valid UTF-8 without control characters (C0, DEL, C1), line and paragraph
// separators, and marks that turn the direction of writing.
bool IsPlainText(std::string_view text);

// `text` with all that is not plain, and backslashes, as \xHH, a byte each.
std::string Printable(std::string_view text);

// Whether an error may repeat `name`, as a client sent it: at most 64 bytes of plain text.
bool MayRepeat(std::string_view name);
// How an error names it: "'name'"; where it may not repeat it, "of this name (20000 bytes)".
std::string Repeated(std::string_view name);

}  // namespace spaid::server
