#include "server/base/log.h"

#include <gtest/gtest.h>

#include <vector>

namespace spaid::server {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
  }
  void TearDown() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kInfo);
  }
  std::vector<std::string> lines_;
};

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
