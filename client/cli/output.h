// Formats what the user sees: numbers, tables, colours if a terminal shows them; and ends a
// command.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/arguments.h"

namespace spaid::cli {

std::string FormatCount(int64_t count);       // 1,234,567
std::string FormatMs(double milliseconds);    // 0.42 ms, 12.3 ms, 1.24 s, 2 min 03 s
std::string FormatBytes(int64_t bytes);       // 512 B, 12.3 MB (decimal)
std::string FormatResidual(double residual);  // 7.3e-09
std::string FormatFixed(double value, int digits);
std::string FormatTime(std::chrono::system_clock::time_point time);  // RFC 3339, UTC, seconds
std::string_view CodeName(Code code);                                // "INVALID_ARGUMENT"
std::string UpperSnake(std::string_view name);  // "max-iterations" -> "MAX_ITERATIONS"

enum class Style { kPlain, kBold, kDim, kGood, kBad, kWarn };

// A table with columns as wide as their widest cell; numbers are aligned to the right.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Cell {
    Cell(std::string t, Style s = Style::kPlain) : text(std::move(t)), style(s) {}  // NOLINT
    Cell(const char* t, Style s = Style::kPlain) : text(t), style(s) {}             // NOLINT
    std::string text;
    Style style;
  };
  explicit Table(std::vector<std::pair<std::string, Align>> columns)
      : columns_(std::move(columns)) {}
  void Add(std::vector<Cell> row);
  bool empty() const { return rows_.empty(); }
  std::string Text(bool color) const;

 private:
  std::vector<std::pair<std::string, Align>> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Lines of "  name   value", with names aligned.
class Facts {
 public:
  void Add(std::string name, std::string value, Style style = Style::kPlain);
  std::string Text(bool color) const;

  struct Line {
    std::string name, value;
    Style style;
  };
  const std::vector<Line>& lines() const { return lines_; }

 private:
  std::vector<Line> lines_;
};

std::string Styled(std::string_view text, Style style, bool color);

// Writes a command's output. With --json only PrintJson and Fail write to stdout.
class Output {
 public:
  explicit Output(const GlobalArgs& args);
  bool json() const { return json_; }
  bool color() const { return color_; }  // on stdout
  bool error_color() const { return error_color_; }

  void Print(std::string_view text) const;  // nothing with --json
  void PrintJson(const nlohmann::json& object) const;
  void Note(std::string_view text) const;  // one line on stderr; nothing with --json or --quiet
  // Reports the error (on stderr; with --json as {"error": ...} on stdout, too).
  ExitCode Fail(const Error& error) const;
  // Flushes and returns `code`, or kError if stdout could not take everything.
  ExitCode Finish(ExitCode code) const;

 private:
  std::string program_;
  bool json_, quiet_, color_, error_color_;
};

}  // namespace spaid::cli
