// Formats words and figures for the status page: escaped, bounded, readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/clock.h"
#include "server/ops/server_status.h"

namespace spaid::server {

// Cuts `text` to `max_bytes`, with an ellipsis, between characters of UTF-8.
std::string Shortened(std::string_view text, size_t max_bytes);
// Escapes text for use between tags and in quoted attributes. Control characters become U+FFFD.
std::string Escaped(std::string_view text);
// Escapes text that comes from clients: also shortens it, and keeps it from turning the writing
// direction of the text behind it.
std::string Foreign(std::string_view text, size_t max_bytes = 120);

std::string CountText(int64_t count);       // "4,752"
std::string BytesText(int64_t bytes);       // "1.5 GiB"
std::string DurationText(double ms);        // "12.7 ms", "3.42 s", "2 min 5 s", "3 h 12 min"
std::string AgeText(double ms);             // "12 s", "3 min", "2 h 5 min", "4 d 2 h"
std::string ResidualText(double residual);  // "9.9e-09"
std::string UtcText(WallTime when);         // "19:55:12 UTC"
std::string UtcDateText(WallTime when);     // "2026-11-22 19:55:12 UTC"

// Draws residuals over iterations, logarithmic, with a line at decades, as an SVG of its own size
// in the colour of the text around it. Points that cannot be drawn (zero, not finite) are left out;
// returns "" if fewer than two remain.
std::string Sparkline(const std::vector<ServerStatus::Residual>& curve);

}  // namespace spaid::server
