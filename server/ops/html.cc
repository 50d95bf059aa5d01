#include "server/ops/html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace spaid::server {
namespace {

constexpr double kWidth = 168, kHeight = 44, kMargin = 4;
constexpr int kMostLines = 4;  // at decades

struct Drawn {
  double x, y;
  bool gap;  // before it something could not be drawn
};

std::string Utc(WallTime when, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
        out += control ? "\xEF\xBF\xBD" : std::string(1, c);
      }
    }
  }
  return out;
}

std::string Shortened(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return std::string(text.substr(0, max_bytes)) + "…";
}

std::string Foreign(std::string_view text, size_t max_bytes) {
  return absl::StrCat("<bdi>", Escaped(Shortened(text, max_bytes)), "</bdi>");
}

std::string CountText(int64_t count) {
  std::string digits = absl::StrCat(count);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string BytesText(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", value < 9.95 ? 1 : 0, value, kUnits[unit]);
}

std::string DurationText(double ms) {
  if (!(ms >= 0)) return "–";
  if (ms < 9.995) return absl::StrFormat("%.2f ms", ms);
  if (ms < 99.95) return absl::StrFormat("%.1f ms", ms);
  if (ms < 999.5) return absl::StrFormat("%.0f ms", ms);
  if (ms < 59'995) return absl::StrFormat("%.*f s", ms < 9'995 ? 2 : 1, ms / 1e3);
  if (ms > 1e15) return "–";
  const auto s = static_cast<int64_t>(ms / 1e3 + 0.5);
  return s < 3600 ? absl::StrCat(s / 60, " min ", s % 60, " s") : AgeText(ms);
}

std::string AgeText(double ms) {
  if (!(ms >= 0 && ms <= 1e15)) return "–";
  const auto s = static_cast<int64_t>(ms / 1e3);
  if (s < 60) return absl::StrCat(s, " s");
  if (s < 3600) return absl::StrCat(s / 60, " min");
  if (s < 48 * 3600) return absl::StrCat(s / 3600, " h ", s % 3600 / 60, " min");
  return absl::StrCat(s / 86400, " d ", s % 86400 / 3600, " h");
}

std::string ResidualText(double residual) {
  return std::isfinite(residual) ? absl::StrFormat("%.1e", residual) : "not finite";
}

std::string UtcText(WallTime when) { return Utc(when, "%H:%M:%S UTC"); }
std::string UtcDateText(WallTime when) { return Utc(when, "%Y-%m-%d %H:%M:%S UTC"); }

std::string Sparkline(const std::vector<ServerStatus::Residual>& curve) {
  std::vector<Drawn> drawn;
  bool gap = true;
  for (const auto& [iteration, relative] : curve) {
    if (!std::isfinite(relative) || relative <= 0) {
      gap = true;
      continue;
    }
    drawn.push_back({static_cast<double>(iteration), std::log10(relative), gap});
    gap = false;
  }
  if (drawn.size() < 2) return "";
  const auto [low, high] = std::minmax_element(
      drawn.begin(), drawn.end(), [](const Drawn& a, const Drawn& b) { return a.y < b.y; });
  const auto [left, right] = std::minmax_element(
      drawn.begin(), drawn.end(), [](const Drawn& a, const Drawn& b) { return a.x < b.x; });
  // No less than a decade, so that standing still looks like it.
  const double top = high->y, bottom = std::min(low->y, top - 1);
  const double from = left->x, width = std::max(right->x - from, 1.0);
  const auto place_x = [&](double x) {
    return kMargin + (x - from) / width * (kWidth - 2 * kMargin);
  };
  const auto place_y = [&](double y) {
    return kMargin + (top - y) / (top - bottom) * (kHeight - 2 * kMargin);
  };

  std::string grid;
  const double step = std::max(1.0, std::ceil((top - bottom) / kMostLines));
  for (double y = std::floor(top / step) * step; y >= bottom; y -= step) {
    absl::StrAppendFormat(&grid, "M%.1f %.1fH%.1f", kMargin, place_y(y), kWidth - kMargin);
  }
  std::string line;
  for (const Drawn& point : drawn) {
    absl::StrAppendFormat(&line, "%c%.1f %.1f", point.gap ? 'M' : 'L', place_x(point.x),
                          place_y(point.y));
  }
  const Drawn& last = drawn.back();
  const std::string text =
      absl::StrCat("residual from ", ResidualText(std::pow(10, drawn.front().y)), " to ",
                   ResidualText(std::pow(10, last.y)), " in ",
                   CountText(static_cast<int64_t>(last.x - drawn.front().x)), " iterations");
  return absl::StrFormat(
      "<svg class=\"curve\" role=\"img\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\"><title>%s</title><path class=\"decades\" d=\"%s\"/><path class=\"line\" "
      "d=\"%s\"/><circle class=\"end\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/></svg>",
      kWidth, kHeight, kWidth, kHeight, text, grid, line, place_x(last.x), place_y(last.y));
}

}  // namespace spaid::server
