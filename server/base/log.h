// Structured log lines: an event name and key=value fields, one line each, on standard error.
//
//   Log(LogLevel::kInfo, "job_ended", {{"job", job.name()}, {"state", "succeeded"},
//   {"run_ms", 12.5}});
//   -> 2026-01-02T03:04:05.678Z info job_ended job=jobs/3f… state=succeeded run_ms=12.5
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace spaid::server {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  LogField(std::string_view k, double v);
  template <std::integral T>
  LogField(std::string_view k, T v) : key(k), value(std::to_string(v)) {}

  std::string_view key;
  std::string value;
};

// Thread-safe. Values with spaces, quotes or control characters are quoted and escaped, so that
// nothing a client sends can forge a line.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// Lines under `level` are dropped. Default: kInfo. Thread-safe.
void SetLogLevel(LogLevel level);
// "debug", "info", "warning", "error"; false for anything else.
bool ParseLogLevel(std::string_view name, LogLevel* level);

// Takes the lines (without time and level) in place of standard error; empty: back to standard
// error. For tests.
void SetLogSink(std::function<void(LogLevel, const std::string& line)> sink);

}  // namespace spaid::server
