#include "server/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace spaid::server {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel, const std::string& line) {
      std::lock_guard lock(mutex_);
      lines_.push_back(line);
      changed_.notify_all();
    });
  }
  void TearDown() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kInfo);
    SetLogLimits({});
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

// Standard error as a pipe.
class PipedStderr {
 public:
  PipedStderr() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0);
    before_ = dup(STDERR_FILENO);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~PipedStderr() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(ends_[0]);
  }
  // Reads until `end` has come.
  std::string ReadTo(const std::string& end) {
    std::string text;
    std::array<char, 4096> buffer{};
    while (text.find(end) == std::string::npos) {
      const ssize_t count = read(ends_[0], buffer.data(), buffer.size());
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  }

 private:
  std::array<int, 2> ends_{};
  int before_ = -1;
};

// Nobody reads: who logs goes on, the oldest lines are dropped, and the log says how many.
TEST(LogToStderr, AReaderThatHangsHoldsNobodyUp) {
  SetLogLimits({.lines = 4096, .repeats = 0});
  constexpr int kLines = 20'000;  // beyond the pipe and what waits
  const int64_t before = LogCounts().dropped;
  PipedStderr piped;
  for (int k = 0; k < kLines; ++k) Log(LogLevel::kInfo, "stuck", {{"n", k}});
  EXPECT_FALSE(FlushLog(std::chrono::milliseconds(10)));
  const int64_t dropped = LogCounts().dropped - before;
  EXPECT_GT(dropped, kLines / 2);
  const std::string text = piped.ReadTo("n=" + std::to_string(kLines - 1) + "\n");
  EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
  int64_t lines = 0, told = 0;
  for (size_t at = 0; (at = text.find(" stuck n=", at)) != std::string::npos; ++at) ++lines;
  const std::string gap = " warning log_lines_dropped lines=";
  for (size_t at = 0; (at = text.find(gap, at)) != std::string::npos; ++at) {
    told += std::stoll(text.substr(at + gap.size()));
  }
  EXPECT_EQ(told, dropped);
  EXPECT_EQ(lines + dropped, kLines);
  // The newest are there, in order.
  EXPECT_LT(text.find("n=" + std::to_string(kLines - 4000) + "\n"),
            text.find("n=" + std::to_string(kLines - 3999) + "\n"));
  SetLogLimits({});
}

TEST(LogToStderr, LastWordsComeLast) {
  PipedStderr piped;
  for (int k = 0; k < 10; ++k) Log(LogLevel::kInfo, "before", {{"n", k}});
  LogLastWords("spaid: [BAD_FLAG] the end");
  const std::string text = piped.ReadTo("the end\n");
  EXPECT_NE(text.find("before n=9\nspaid: [BAD_FLAG] the end\n"), std::string::npos) << text;
}

TEST(LogDeathTest, AnAbortWritesWhatWaits) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        FlushLogAtCrash();
        for (int k = 0; k < 1000; ++k) Log(LogLevel::kError, "last", {{"n", k}});
        Log(LogLevel::kError, "words");
        std::abort();
      },
      testing::KilledBySignal(SIGABRT), "error words");
}

TEST(LogDeathTest, AnAbortWaitsForNoReader) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        FlushLogAtCrash();
        SetLogLimits({.repeats = 0});
        const PipedStderr piped;
        for (int k = 0; k < 5000; ++k) Log(LogLevel::kError, "last", {{"n", k}});
        std::abort();
      },
      testing::KilledBySignal(SIGABRT), "");
}

TEST_F(LogTest, WritesKeysAndValues) {
  Log(LogLevel::kInfo, "job_ended", {{"job", "jobs/1"}, {"ms", 12.5}, {"n", 3}, {"ok", true}});
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0], "job_ended job=jobs/1 ms=12.5 n=3 ok=true");
}

TEST_F(LogTest, NothingAClientSendsForgesALine) {
  Log(LogLevel::kWarning, "refused", {{"label", "a b\n2026 info fake=\"1\""}, {"empty", ""}});
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0], "refused label=\"a b\\x0a2026 info fake=\\\"1\\\"\" empty=\"\"");
}

TEST_F(LogTest, ShowsTextAndEscapesWhatATerminalObeys) {
  const char* said = "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82";
  Log(LogLevel::kInfo, "e", {{"v", said}});
  Log(LogLevel::kInfo, "e", {{"v", "\x1b[2J"}});
  Log(LogLevel::kInfo, "e",
      {{"v",
        "\xc2\x9b"
        "2J"}});  // U+009B: a CSI of one character
  Log(LogLevel::kInfo, "e",
      {{"v",
        "\x9b"
        "2J\xe2\x82"}});  // no UTF-8
  EXPECT_EQ(lines_,
            (std::vector<std::string>{std::string("e v=") + said, "e v=\"\\x1b[2J\"",
                                      "e v=\"\\xc2\\x9b2J\"", "e v=\"\\x9b2J\\xe2\\x82\""}));
}

TEST_F(LogTest, CutsLongLines) {
  Log(LogLevel::kInfo, "long", {{"v", std::string(1 << 20, 'x')}});
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].size(), 4096u);
  EXPECT_EQ(lines_[0].substr(4090), "xxx...");
}

TEST_F(LogTest, SumsUpWhatRepeats) {
  SetLogLimits({.repeats = 3});
  const int64_t before = LogCounts().suppressed;
  int64_t told = 0, written = 0;
  const auto count = [&] {
    told = written = 0;
    for (const std::string& line : lines_) {
      const std::string sum = "log_repeats event=refused code=NOT_FOUND reason=GONE suppressed=";
      if (line.rfind(sum, 0) == 0) told += std::stoll(line.substr(sum.size()));
      if (line.rfind("refused", 0) == 0) ++written;
    }
  };
  constexpr int kCalls = 1000;
  for (int k = 0; k < kCalls; ++k) {
    Log(LogLevel::kWarning, "refused", {{"n", k}, {"code", "NOT_FOUND"}, {"reason", "GONE"}});
  }
  // Another reason has a count of its own.
  Log(LogLevel::kWarning, "refused_too", {{"code", "NOT_FOUND"}, {"reason", "OTHER"}});
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      count();
      return told + written >= kCalls + 1;
    });
    EXPECT_EQ(told + written, kCalls + 1);
    EXPECT_EQ(told, LogCounts().suppressed - before);
    EXPECT_LE(written, 3 * 30);  // of as many seconds
  }
}

TEST_F(LogTest, DropsWhatIsUnderTheLevel) {
  Log(LogLevel::kDebug, "quiet");
  EXPECT_TRUE(lines_.empty());
  LogLevel level = LogLevel::kInfo;
  ASSERT_TRUE(ParseLogLevel("debug", &level));
  SetLogLevel(level);
  Log(LogLevel::kDebug, "loud");
  EXPECT_EQ(lines_, std::vector<std::string>{"loud"});
  EXPECT_FALSE(ParseLogLevel("verbose", &level));
}

}  // namespace
}  // namespace spaid::server
