// Writes texts and numbers into XML: the SVG of --plot, and the report.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spaid::cli {

// Returns the text for use between tags and in double quotes. Bytes that XML may not hold become
// U+FFFD each.
std::string Escaped(std::string_view text);
// Returns the same, cut to `most` characters: an ellipsis and the end of the text, which is where a
// path has its file; or its beginning and an ellipsis.
std::string EscapedEnd(std::string_view text, size_t most);
std::string EscapedBeginning(std::string_view text, size_t most);

// Returns a coordinate, with two digits.
std::string Coordinate(double value);

}  // namespace spaid::cli
