#include "server/ops/port_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "server/base/status.h"

namespace spaid::server {
namespace {

class PortFileTest : public testing::Test {
 protected:
  PortFileTest() {
    folder_ = std::filesystem::path(testing::TempDir()) / ("port-file." + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
    file_ = (folder_ / "port").string();
  }
  ~PortFileTest() override { std::filesystem::remove_all(folder_); }

  std::optional<std::string> Text() const {
    std::ifstream in(file_);
    std::string text;
    if (!std::getline(in, text)) return std::nullopt;
    return text;
  }
  auto Entries() const {
    return std::distance(std::filesystem::directory_iterator(folder_),
                         std::filesystem::directory_iterator());
  }

  std::filesystem::path folder_;
  std::string file_;
};

TEST_F(PortFileTest, IsWrittenAndTakenAway) {
  const auto written = PortFile::Write(file_, "127.0.0.1:7");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(Text(), "127.0.0.1:7");
  EXPECT_EQ(Entries(), 1) << "nothing is left beside it";
  written->Remove();
  EXPECT_EQ(Entries(), 0);
  written->Remove();  // it is gone: no harm
}

TEST_F(PortFileTest, OfANewerDaemonStays) {
  const auto older = PortFile::Write(file_, "127.0.0.1:7");
  const auto newer = PortFile::Write(file_, "127.0.0.1:8");
  ASSERT_TRUE(older.ok() && newer.ok());
  older->Remove();
  EXPECT_EQ(Text(), "127.0.0.1:8");
  newer->Remove();
  EXPECT_EQ(Text(), std::nullopt);
}

TEST_F(PortFileTest, OfTheSameTextStaysToo) {
  const auto older = PortFile::Write(file_, "127.0.0.1:7");
  ASSERT_TRUE(older.ok());
  ASSERT_EQ(unlink(file_.c_str()), 0);
  std::ofstream(file_) << "127.0.0.1:7\n";
  older->Remove();
  EXPECT_EQ(Text(), "127.0.0.1:7");
}

TEST_F(PortFileTest, ReplacesALinkAndLeavesWhereItLeads) {
  const std::string other = (folder_ / "other").string();
  std::ofstream(other) << "precious\n";
  ASSERT_EQ(symlink(other.c_str(), file_.c_str()), 0);
  const auto written = PortFile::Write(file_, "127.0.0.1:7");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(Text(), "127.0.0.1:7");
  std::string text;
  std::ifstream(other) >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(PortFileTest, ThatCannotBeWrittenIsAnError) {
  for (const std::string& file : {file_ + "/no/port", folder_.string()}) {
    const auto written = PortFile::Write(file, "127.0.0.1:7");
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(ReasonOf(written.status()), "BAD_FLAG");
    EXPECT_NE(written.status().message().find("--port-file=" + file), absl::string_view::npos);
  }
  EXPECT_EQ(Entries(), 0);
}

}  // namespace
}  // namespace spaid::server
