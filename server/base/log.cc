#include "server/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>

#include "server/base/text.h"

namespace spaid::server {
namespace {

struct Sink {
  std::mutex mutex;
  std::function<void(LogLevel, const std::string&)> function;
};

Sink& TestSink() {
  static Sink* sink = new Sink;
  return *sink;
}

std::atomic<LogLevel>& Level() {
  static std::atomic<LogLevel> level{LogLevel::kInfo};
  return level;
}

spdlog::logger& Logger() {
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("spaid", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    // UTC, so that lines of several hosts sort; the message holds the fields.
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc));
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

void AppendValue(std::string_view value, std::string* line) {
  const bool plain = !value.empty() && value.find_first_of(" \"\\=") == std::string_view::npos &&
                     IsPlainText(value);
  if (plain) {
    line->append(value);
    return;
  }
  line->push_back('"');
  for (const char c : Printable(value)) {
    if (c == '"') line->push_back('\\');
    line->push_back(c);
  }
  line->push_back('"');
}

}  // namespace

LogField::LogField(std::string_view k, double v) : key(k) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.6g", v);
  value = buffer;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < Level().load(std::memory_order_relaxed)) return;
  std::string line(event);
  for (const LogField& field : fields) {
    line.push_back(' ');
    line.append(field.key);
    line.push_back('=');
    AppendValue(field.value, &line);
  }
  {
    Sink& sink = TestSink();
    std::lock_guard lock(sink.mutex);
    if (sink.function) {
      sink.function(level, line);
      return;
    }
  }
  Logger().log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

void SetLogLevel(LogLevel level) { Level().store(level, std::memory_order_relaxed); }

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  if (name == "debug") {
    *level = LogLevel::kDebug;
  } else if (name == "info") {
    *level = LogLevel::kInfo;
  } else if (name == "warning") {
    *level = LogLevel::kWarning;
  } else if (name == "error") {
    *level = LogLevel::kError;
  } else {
    return false;
  }
  return true;
}

void SetLogSink(std::function<void(LogLevel, const std::string& line)> sink) {
  std::lock_guard lock(TestSink().mutex);
  TestSink().function = std::move(sink);
}

}  // namespace spaid::server
