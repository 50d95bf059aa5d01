// The whole daemon when a device fails under it; the device is a fake one (fake_daemon.cc).
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spaid/client.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/e2e/daemon.h"
#include "tests/server/ops/health_check.h"

namespace spaid::e2e {
namespace {

class LostDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    setenv("SPAID_DAEMON", (here / "server_fake_daemon").c_str(), 1);
  }
  static void TearDownTestSuite() { unsetenv("SPAID_DAEMON"); }

  // In the grace time the daemon still serves: it ends when the test says so.
  static Daemon Start(const char* devices) {
    setenv("SPAID_FAKE_DEVICES", devices, 1);
    return Daemon({"--drain-grace=10m"});
  }
  static Client Connect(const Daemon& daemon) {
    return Client({.address = daemon.address(), .max_attempts = 1});
  }
  static int Readiness(const Daemon& daemon) {
    return testing::Check(grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials()),
                          "readiness");
  }
  static CscMatrix Diagonal(double d) {
    CscMatrix a;
    a.n = 2;
    a.col_ptr = {0, 1, 2};
    a.row_idx = {0, 1};
    a.values = {d, 2 * d};
    return a;
  }
};

TEST_F(LostDevice, TheLastOneEndsTheDaemonWithAnError) {
  Daemon daemon = Start("gpu");
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  EXPECT_EQ(Readiness(daemon), 1);
  Client client = Connect(daemon);
  const auto lost = client.Build(Diagonal(3), PreconditionerSpec{});
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Code::kUnavailable);
  EXPECT_EQ(lost.error().reason, "DEVICE_LOST");
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  ASSERT_EQ(info->devices.size(), 1u);
  EXPECT_FALSE(info->devices[0].healthy);
  EXPECT_NE(info->devices[0].unhealthy_reason, "");
  while (Readiness(daemon) == 1) std::this_thread::yield();
  EXPECT_EQ(Readiness(daemon), 2) << daemon.log();
  daemon.Signal(SIGTERM);  // no need to wait for the grace time's end
  const auto status = daemon.WaitForExit();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(*status, 1) << daemon.log();
  EXPECT_NE(daemon.log().find("no device of --devices is left: gpu:0: "), std::string::npos)
      << daemon.log();
  EXPECT_NE(daemon.log().find("device_lost"), std::string::npos);
}

TEST_F(LostDevice, AnotherDeviceLivesOn) {
  Daemon daemon = Start("cpu,gpu");
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client = Connect(daemon);
  EXPECT_EQ(client.Build(Diagonal(3), PreconditionerSpec{}).error().reason, "DEVICE_LOST");
  const auto next = client.Build(Diagonal(3), PreconditionerSpec{});
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->preconditioner.device, "cpu");
  EXPECT_EQ(next->preconditioner.placement, "cpu: gpu:0 has failed");
  EXPECT_EQ(Readiness(daemon), 1);
  daemon.Signal(SIGTERM);
  while (Readiness(daemon) == 1) std::this_thread::yield();
  daemon.Signal(SIGTERM);  // the grace time's end
  const auto status = daemon.WaitForExit();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(*status, 0) << daemon.log();
}

}  // namespace
}  // namespace spaid::e2e
