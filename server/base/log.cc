#include "server/base/log.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/periodic_worker.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

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

std::atomic<LogFormat> g_format{LogFormat::kText};
thread_local const std::string* t_trace = nullptr;

constexpr size_t kMaxLine = 4096;
constexpr std::chrono::milliseconds kFlushAtExit{1000};
constexpr int kFlushAtCrashMs = 200;
// The level of lines that are written as they are.
constexpr auto kPlain = spdlog::level::critical;

// Lines given to the writing thread, and what became of them.
std::atomic<int64_t> g_given{0}, g_written{0}, g_pushed_out{0};
std::atomic<int64_t> g_unwritable{0}, g_suppressed{0};
std::atomic<int64_t> g_max_lines{LogLimits{}.lines}, g_max_repeats{LogLimits{}.repeats};

bool AllWritten() { return g_written.load() + g_pushed_out.load() >= g_given.load(); }

// Blocks for as long as nobody reads: for the writing thread.
bool WriteToStderr(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = write(STDERR_FILENO, data, size);
    if (count >= 0) {
      data += count;
      size -= static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

using Pool = spdlog::details::thread_pool;
std::atomic<const std::shared_ptr<Pool>*> g_pool{nullptr};

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

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Appends a field to a line: ` key=value`, or `,"key":value`.
void AppendField(const LogField& field, std::string* line) {
  if (g_format.load(std::memory_order_relaxed) == LogFormat::kText) {
    line->push_back(' ');
    line->append(field.key);
    line->push_back('=');
    return AppendValue(field.value, line);
  }
  line->append(",");
  line->append(Quoted(field.key));
  line->append(":");
  // Numbers that JSON lacks (nan, inf) are texts.
  const bool number = field.value.find('n') == std::string::npos;
  line->append(field.bare && number ? field.value : Quoted(field.value));
}

// Makes a line without time and level; a longest one loses fields in JSON, or its end.
std::string LineOf(std::string_view event, std::initializer_list<LogField> fields,
                   std::string* kind = nullptr) {
  const bool text = g_format.load(std::memory_order_relaxed) == LogFormat::kText;
  std::string line = text ? std::string(event) : R"("event":)" + Quoted(event);
  const auto append = [&](const LogField& field) {
    const size_t begin = line.size();
    AppendField(field, &line);
    if (kind != nullptr && (field.key == "code" || field.key == "reason")) {
      kind->append(line, begin);
    }
    if (!text && line.size() > kMaxLine) {
      line.resize(begin);
      AppendField({"cut", field.key}, &line);
    }
  };
  for (const LogField& field : fields) append(field);
  if (t_trace != nullptr && !t_trace->empty()) append({"trace_id", *t_trace});
  if (text && line.size() > kMaxLine) {
    line.resize(kMaxLine - 3);
    line.append("...");
  }
  return line;
}

// Used by the writing thread alone.
class StderrSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit StderrSink(std::weak_ptr<Pool> pool) : pool_(std::move(pool)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    if (const int64_t lost = NewlyPushedOut(); lost > 0) {
      const std::string gap = LineOf("log_lines_dropped", {{"lines", lost}});
      Format({message.time, {}, message.logger_name, spdlog::level::warn, gap}, &text);
    }
    if (message.level == kPlain) {
      text.append(message.payload.begin(), message.payload.end());
      text.push_back('\n');
    } else {
      Format(message, &text);
    }
    if (!WriteToStderr(text.data(), text.size())) ++g_unwritable;
    ++g_written;
  }
  void flush_() override {}

 private:
  void Format(const spdlog::details::log_msg& message, spdlog::memory_buf_t* text) {
    formatter_->format(message, *text);
  }

  int64_t NewlyPushedOut() {
    const auto pool = pool_.lock();
    if (!pool) return 0;
    const auto now = static_cast<int64_t>(pool->overrun_counter());
    return now - g_pushed_out.exchange(now);
  }

  std::weak_ptr<Pool> pool_;
};

// Never destroyed: a writer that waits for a reader cannot be joined.
spdlog::async_logger& Logger() {
  static const auto* logger = [] {
    // The process's signals are for others.
    const auto block_signals = [] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);
    };
    const auto* pool =
        new std::shared_ptr<Pool>(std::make_shared<Pool>(g_max_lines.load(), 1, block_signals));
    g_pool.store(pool);
    auto made =
        std::make_shared<spdlog::async_logger>("spaid", std::make_shared<StderrSink>(*pool), *pool,
                                               spdlog::async_overflow_policy::overrun_oldest);
    // UTC, so that lines of several hosts sort; the message holds the fields.
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        g_format == LogFormat::kJson ? R"({"ts":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})"
                                     : "%Y-%m-%dT%H:%M:%S.%eZ %l %v",
        spdlog::pattern_time_type::utc));
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::off);
    std::atexit([] { FlushLog(kFlushAtExit); });
    return new std::shared_ptr<spdlog::async_logger>(std::move(made));
  }();
  return **logger;
}

void Write(spdlog::level::level_enum level, std::string_view line) {
  spdlog::async_logger& logger = Logger();
  ++g_given;
  logger.log(level, spdlog::string_view_t(line.data(), line.size()));
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

// To who takes the lines: the test's sink, or standard error.
void Give(LogLevel level, const std::string& line) {
  {
    Sink& sink = TestSink();
    std::lock_guard lock(sink.mutex);
    if (sink.function) {
      sink.function(level, line);
      return;
    }
  }
  Write(ToSpdlog(level), line);
}

// Counts what repeats. Thread-safe.
class Repeats {
 public:
  // False: the line is one too many in its second, and is counted instead. `what`: the event with
  // the fields that tell its kind.
  bool Admit(LogLevel level, const std::string& what) {
    const int64_t limit = g_max_repeats.load(std::memory_order_relaxed);
    if (limit <= 0) return true;
    std::lock_guard lock(mutex_);
    // Events and reasons are ours, and few; a bound is a bound.
    auto at = seen_.find(what);
    if (at == seen_.end()) at = seen_.try_emplace(seen_.size() < kMaxKinds ? what : "others").first;
    Kind& kind = at->second;
    if (++kind.lines <= limit) {
      if (!ticking_) Tick();
      return true;
    }
    kind.level = level;
    ++kind.suppressed;
    ++g_suppressed;
    return false;
  }

  // Tells what was suppressed, and counts anew.
  void SumUp() {
    std::map<std::string, Kind> last;
    {
      std::lock_guard lock(mutex_);
      last.swap(seen_);
    }
    for (const auto& [what, kind] : last) {
      if (kind.suppressed == 0) continue;
      const bool text = g_format.load(std::memory_order_relaxed) == LogFormat::kText;
      Give(kind.level,
           text ? "log_repeats event=" + what + " suppressed=" + std::to_string(kind.suppressed)
                : LineOf("log_repeats", {{"of", what}, {"suppressed", kind.suppressed}}));
    }
  }

 private:
  static constexpr size_t kMaxKinds = 256;
  struct Kind {
    int64_t lines = 0, suppressed = 0;
    LogLevel level = LogLevel::kInfo;
  };

  // Begins the next second each second, for good.
  void Tick() {
    ticking_ = true;
    new spdlog::details::periodic_worker([this] { SumUp(); }, std::chrono::seconds(1));
  }

  std::mutex mutex_;
  std::map<std::string, Kind> seen_;  // in this second
  bool ticking_ = false;
};

Repeats& AllRepeats() {
  static auto* repeats = new Repeats;
  return *repeats;
}

// The writing thread goes on while the crashed one waits here, which takes no lock.
void WaitAtCrash(int /*signal*/) {
  for (int ms = 0; ms < kFlushAtCrashMs && !AllWritten(); ms += 2) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

LogField::LogField(std::string_view k, double v) : key(k), bare(true) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.6g", v);
  value = buffer;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < Level().load(std::memory_order_relaxed)) return;
  std::string kind(event);
  const std::string line = LineOf(event, fields, &kind);
  if (level > LogLevel::kDebug && !AllRepeats().Admit(level, kind)) return;
  Give(level, line);
}

LogTrace::LogTrace(const std::string* id) : before_(std::exchange(t_trace, id)) {}
LogTrace::~LogTrace() { t_trace = before_; }

void SetLogFormat(LogFormat format) { g_format = format; }

void SetLogLimits(const LogLimits& limits) {
  g_max_lines = std::max<int64_t>(limits.lines, 1);
  g_max_repeats = limits.repeats;
}

LogTotals LogCounts() {
  const auto* pool = g_pool.load();
  const auto pushed_out = pool == nullptr ? 0 : static_cast<int64_t>((*pool)->overrun_counter());
  return {.dropped = pushed_out + g_unwritable.load(), .suppressed = g_suppressed.load()};
}

bool FlushLog(std::chrono::milliseconds limit) {
  AllRepeats().SumUp();
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!AllWritten()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void FlushLogAtCrash() {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction was {};
    // A sanitizer's handler stays.
    if (sigaction(signal, nullptr, &was) != 0 || was.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = WaitAtCrash;
    // Once: what is done again after the handler ends the process, with its core at the right
    // place.
    action.sa_flags = SA_RESETHAND;
    sigaction(signal, &action, nullptr);
  }
}

void LogLastWords(std::string_view line) {
  Write(kPlain, line);
  FlushLog(kFlushAtExit);
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
