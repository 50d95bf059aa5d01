// Sockets that are files.
#include "server/rpc/acceptor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/base/ids.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

class SocketFiles : public ::testing::Test {
 protected:
  SocketFiles() { std::filesystem::create_directory(folder_); }
  ~SocketFiles() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<Acceptor>> Listen() {
    return Acceptor::Listen("unix:" + path_.string(), &connections_);
  }
  bool IsSocket() const { return std::filesystem::is_socket(path_); }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / RandomId();
  const std::filesystem::path path_ = folder_ / "socket";
  Metrics metrics_;
  Connections connections_{{}, &metrics_};
};

TEST_F(SocketFiles, GoWithTheDaemonThatMadeThem) {
  auto first = Listen();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(IsSocket());
  EXPECT_EQ(ReasonOf(Listen().status()), "CANNOT_LISTEN") << "the first one answers";
  EXPECT_TRUE(IsSocket());
  first->reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketFiles, ThatADeadDaemonLeftAreReplaced) {
  {
    auto dead = Listen();
    ASSERT_TRUE(dead.ok()) << dead.status();
    std::filesystem::rename(path_, folder_ / "left");
  }
  std::filesystem::rename(folder_ / "left", path_);
  ASSERT_TRUE(IsSocket());
  EXPECT_TRUE(Listen().ok());
}

TEST_F(SocketFiles, OfANewerDaemonStay) {
  auto old = Listen();
  ASSERT_TRUE(old.ok()) << old.status();
  std::filesystem::rename(path_, folder_ / "away");
  auto newer = Listen();
  ASSERT_TRUE(newer.ok()) << newer.status();
  old->reset();
  EXPECT_TRUE(IsSocket());
}

TEST_F(SocketFiles, DoNotReplaceWhatIsNoSocket) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(ReasonOf(Listen().status()), "CANNOT_LISTEN");
  std::string kept;
  std::ifstream(path_) >> kept;
  EXPECT_EQ(kept, "precious");
}

}  // namespace
}  // namespace spaid::server
