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
std::string Escaped(std::string_view text);

}  // namespace spaid::server
