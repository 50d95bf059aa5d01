// Structured log lines: an event name and key=value fields, one line each, on standard error.
//
//   Log(LogLevel::kInfo, "job_ended", {{"job", job.name()}, {"run_ms", 12.5}});
//   // 2026-01-02T03:04:05.678Z info job_ended job=jobs/3f… run_ms=12.5
//
// A separate thread writes, so that logging never waits for the reader of standard error. If that
// reader is too slow the oldest lines are dropped, and a line in their place says how many. Repeats
// of an event with the same code and reason are summed up once a second.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
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
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), bare(true) {}
  LogField(std::string_view k, double v);
  template <std::integral T>
  LogField(std::string_view k, T v) : key(k), value(std::to_string(v)), bare(true) {}

  std::string_view key;
  std::string value;
  bool bare = false;  // a number or a truth value, in JSON without quotes
};

// Thread-safe; never blocks. Values with spaces, quotes or control characters are quoted and
// escaped, so that nothing a client sends can forge a line. Lines of over 4 KiB are cut.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// Lines of this thread have `trace_id` as their last field while it lives; null or empty: none.
class LogTrace {
 public:
  // `id` outlives it.
  explicit LogTrace(const std::string* id);
  ~LogTrace();
  LogTrace(const LogTrace&) = delete;
  LogTrace& operator=(const LogTrace&) = delete;

 private:
  const std::string* const before_;
};

enum class LogFormat { kText, kJson };
// How lines are written: as above, or each as a JSON object with the keys ts, level, event, and the
// fields, whose numbers are numbers. Before the first line.
void SetLogFormat(LogFormat format);

// Lines under `level` are dropped. Default: kInfo. Thread-safe.
void SetLogLevel(LogLevel level);
// "debug", "info", "warning", "error"; false for anything else.
bool ParseLogLevel(std::string_view name, LogLevel* level);

struct LogLimits {
  int64_t lines = 4096;  // that wait to be written; taken at the first line
  int64_t repeats = 20;  // lines of one event, code and reason in a second; 0: no limit
};
void SetLogLimits(const LogLimits& limits);

// Counts since the start: lines dropped because later ones needed the room or because they could
// not be written, and repeats that were summed up. Thread-safe.
struct LogTotals {
  int64_t dropped = 0, suppressed = 0;
};
LogTotals LogCounts();

// Waits at most `limit` until all lines, and the sums of repeats, are written; false: they are not.
// Also runs, for a second, when the process exits. Thread-safe.
bool FlushLog(std::chrono::milliseconds limit);
// Makes an abort or a crash of the process wait a moment for the lines not yet written.
void FlushLogAtCrash();
// Writes a line as it is, after all others, within a second: the last words of a failing program.
void LogLastWords(std::string_view line);

// Takes the lines (without time and level) in place of standard error; empty: back to standard
// error. For tests.
void SetLogSink(std::function<void(LogLevel, const std::string& line)> sink);

}  // namespace spaid::server
