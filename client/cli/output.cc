#include "client/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "client/cli/json.h"
#include "client/cli/printable.h"

namespace spaid::cli {
namespace {

bool WantsColor(Color color, int fd) {
  if (color != Color::kAuto) return color == Color::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

std::string Printf(const char* format, double value, int digits) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, digits, value);
  return text.data();
}

// Characters, not bytes: every UTF-8 lead byte is one.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string FormatCount(int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t at = 0; at < digits.size(); ++at) {
    const bool group_starts = at > 0 && (digits.size() - at) % 3 == 0;
    if (group_starts && digits[at - 1] != '-') text.push_back(',');
    text.push_back(digits[at]);
  }
  return text;
}

std::string FormatFixed(double value, int digits) { return Printf("%.*f", value, digits); }

std::string FormatMs(double ms) {
  if (!std::isfinite(ms)) return "-";
  if (ms == 0) return "0 ms";
  if (ms < 9.995) return FormatFixed(ms, 2) + " ms";
  if (ms < 99.95) return FormatFixed(ms, 1) + " ms";
  if (ms < 999.5) return FormatFixed(ms, 0) + " ms";
  if (ms < 9'995) return FormatFixed(ms / 1000, 2) + " s";
  if (ms < 119'950) return FormatFixed(ms / 1000, 1) + " s";
  if (ms > 1e15) return "over 10,000 years";
  const auto seconds = static_cast<int64_t>(std::llround(ms / 1000));
  const std::string rest = std::to_string(seconds % 60);
  return std::to_string(seconds / 60) + " min " + (rest.size() == 1 ? "0" : "") + rest + " s";
}

std::string FormatBytes(int64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  constexpr std::array kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return FormatFixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + kUnits[unit];
}

std::string FormatResidual(double residual) {
  if (residual == 0) return "0";
  return std::isnan(residual) ? "NaN" : Printf("%.*e", residual, 1);
}

std::string FormatTime(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> text;
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnknown:
      return "UNKNOWN";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kAborted:
      return "ABORTED";
    case Code::kOutOfRange:
      return "OUT_OF_RANGE";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDataLoss:
      return "DATA_LOSS";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

std::string UpperSnake(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return upper;
}

std::string Styled(std::string_view text, Style style, bool color) {
  if (!color || style == Style::kPlain || text.empty()) return std::string(text);
  const char* code = "";
  switch (style) {
    case Style::kPlain:
      break;
    case Style::kBold:
      code = "1";
      break;
    case Style::kDim:
      code = "2";
      break;
    case Style::kGood:
      code = "1;32";
      break;
    case Style::kBad:
      code = "1;31";
      break;
    case Style::kWarn:
      code = "33";
      break;
  }
  return std::string("\033[") + code + "m" + std::string(text) + "\033[0m";
}

void Table::Add(std::vector<Cell> row) {
  for (Cell& cell : row) cell.text = Printable(cell.text);
  rows_.push_back(std::move(row));
}

std::string Table::Text(bool color) const {
  std::vector<size_t> widths;
  for (const auto& [title, align] : columns_) widths.push_back(Width(title));
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size() && c < widths.size(); ++c) {
      widths[c] = std::max(widths[c], Width(row[c].text));
    }
  }
  std::string text;
  const auto add_line = [&](const auto& cell_at, size_t count) {
    std::string line;
    size_t owed = 0;  // spaces before the next cell; none at a line's end
    for (size_t c = 0; c < count; ++c) {
      const Cell& cell = cell_at(c);
      const size_t pad = widths[c] - Width(cell.text);
      const bool right = columns_[c].second == Align::kRight;
      if (!cell.text.empty()) {
        line.append(owed + (right ? pad : 0), ' ');
        line += Styled(cell.text, cell.style, color);
        owed = right ? 0 : pad;
      } else {
        owed += widths[c];
      }
      owed += 2;
    }
    text += "  " + line + "\n";
  };
  std::vector<Cell> head;
  for (const auto& [title, align] : columns_) head.emplace_back(title, Style::kDim);
  add_line([&](size_t c) -> const Cell& { return head[c]; }, head.size());
  for (const auto& row : rows_) {
    add_line([&](size_t c) -> const Cell& { return row[c]; },
             std::min(row.size(), columns_.size()));
  }
  return text;
}

void Facts::Add(std::string name, std::string value, Style style) {
  lines_.push_back({std::move(name), Printable(value), style});
}

std::string Facts::Text(bool color) const {
  size_t width = 0;
  for (const Line& line : lines_) width = std::max(width, Width(line.name));
  std::string text;
  for (const Line& line : lines_) {
    text += "  " + Styled(line.name, Style::kDim, color) +
            std::string(width - Width(line.name) + 2, ' ') + Styled(line.value, line.style, color) +
            "\n";
  }
  return text;
}

Output::Output(const GlobalArgs& args)
    : program_(args.program),
      json_(args.json),
      quiet_(args.quiet),
      color_(WantsColor(args.color, STDOUT_FILENO)),
      error_color_(WantsColor(args.color, STDERR_FILENO)) {}

void Output::Print(std::string_view text) const {
  if (!json_) std::fwrite(text.data(), 1, text.size(), stdout);
}

void Output::PrintJson(const nlohmann::json& object) const {
  // Labels may hold any bytes: a broken one must not take the whole answer with it, and nothing in
  // one is for the terminal.
  const std::string text =
      object.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void Output::Note(std::string_view text) const {
  if (!json_ && !quiet_) std::fprintf(stderr, "%s\n", Printable(text).c_str());
}

ExitCode Output::Fail(const Error& error) const {
  if (json_) PrintJson({{"error", ToJson(error)}});
  std::string text =
      program_ + ": " + Styled("error: ", Style::kBad, error_color_) + Printable(error.message);
  text += " [" + std::string(CodeName(error.code));
  if (!error.reason.empty()) text += "/" + Printable(error.reason);
  text += "]";
  if (error.retry_after) {
    text += " (try again in " + FormatMs(static_cast<double>(error.retry_after->count())) + ")";
  }
  std::fprintf(stderr, "%s\n", text.c_str());
  return ExitCode::kError;
}

ExitCode Output::Finish(ExitCode code) const {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "%s: error: the output was not written: %s\n", program_.c_str(),
               std::strerror(errno));
  return ExitCode::kError;
}

}  // namespace spaid::cli
