// The whole daemon when a device fails under it; the device is a fake one (fake_daemon.cc).
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spaid/client.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
  void TearDown() override { unsetenv("SPAID_FAKE_FAULT"); }

  // In the grace time the daemon still serves: it ends when the test says so.
  static Daemon Start(const char* devices, std::vector<std::string> flags = {}) {
    setenv("SPAID_FAKE_DEVICES", devices, 1);
    flags.emplace_back("--drain-grace=10m");
    return Daemon(flags);
  }
  static Daemon StartHanging(const char* devices, std::vector<std::string> flags = {}) {
    setenv("SPAID_FAKE_FAULT", "hangs", 1);
    for (const char* flag : {"--hang-limit=1", "--hang-floor=2s"}) flags.emplace_back(flag);
    return Start(devices, std::move(flags));
  }
  static void AwaitUnready(const Daemon& daemon) {
    while (Readiness(daemon) == 1) std::this_thread::yield();
    EXPECT_EQ(Readiness(daemon), 2) << daemon.log();
  }
  // A signal before that would begin a drain of its own.
  static void AwaitDraining(const Daemon& daemon) {
    while (daemon.log().find("drain_begin") == std::string::npos) std::this_thread::yield();
  }
  static void ExpectExit(Daemon& daemon, int status) {
    const auto exit = daemon.WaitForExit(std::chrono::seconds(20));  // no watchdog of 30 s
    ASSERT_TRUE(exit.has_value()) << daemon.log();
    EXPECT_EQ(*exit, status) << daemon.log();
  }
  static void ExpectLine(const Daemon& daemon, const std::string& text) {
    EXPECT_NE(daemon.log().find(text), std::string::npos) << text << "\n" << daemon.log();
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
  AwaitDraining(daemon);
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

TEST_F(LostDevice, WhereDevicesAreNamedTheLossOfOneEndsTheDaemon) {
  Daemon daemon = Start("cpu,gpu", {"--devices=cpu,gpu:0"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  EXPECT_EQ(Readiness(daemon), 1);
  Client client = Connect(daemon);
  EXPECT_EQ(client.Build(Diagonal(3), PreconditionerSpec{}).error().reason, "DEVICE_LOST");
  EXPECT_EQ(Readiness(daemon), 2) << "at once";
  // While it drains, what is left works on.
  const auto next = client.Build(Diagonal(3), PreconditionerSpec{});
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->preconditioner.device, "cpu");
  AwaitDraining(daemon);
  daemon.Signal(SIGTERM);  // no need to wait for the grace time's end
  ExpectExit(daemon, 1);
  ExpectLine(daemon,
             "spaid: [DEVICE_LOST] a device is lost (--on-device-loss=exit): gpu:0: the fake "
             "device is broken");
}

TEST_F(LostDevice, NamedDevicesMayDegradeAndChosenOnesExit) {
  {
    Daemon daemon = Start("cpu,gpu", {"--devices=cpu,gpu:0", "--on-device-loss=degrade"});
    ASSERT_TRUE(daemon.serving()) << daemon.log();
    Client client = Connect(daemon);
    EXPECT_EQ(client.Build(Diagonal(3), PreconditionerSpec{}).error().reason, "DEVICE_LOST");
    EXPECT_EQ(Readiness(daemon), 1);
    daemon.Signal(SIGTERM);
    AwaitUnready(daemon);
    daemon.Signal(SIGTERM);
    ExpectExit(daemon, 0);
  }
  Daemon daemon = Start("cpu,gpu", {"--on-device-loss=exit"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  EXPECT_EQ(Connect(daemon).Build(Diagonal(3), PreconditionerSpec{}).error().reason, "DEVICE_LOST");
  EXPECT_EQ(Readiness(daemon), 2);
  AwaitDraining(daemon);
  daemon.Signal(SIGTERM);
  ExpectExit(daemon, 1);
}

// Its thread never comes back, and cannot be joined.
TEST_F(LostDevice, AGpuThatHangsIsLostAndTheDaemonEndsAllTheSame) {
  for (const bool exits : {false, true}) {
    Daemon daemon =
        StartHanging("cpu,gpu", {exits ? "--on-device-loss=exit" : "--on-device-loss=degrade"});
    ASSERT_TRUE(daemon.serving()) << daemon.log();
    Client client = Connect(daemon);
    const auto hung = client.Build(Diagonal(3), PreconditionerSpec{});
    ASSERT_FALSE(hung.ok());
    EXPECT_EQ(hung.error().reason, "DEVICE_LOST");
    EXPECT_NE(hung.error().message.find("gpu:0 hung: a job showed"), std::string::npos)
        << hung.error().message;
    EXPECT_EQ(Readiness(daemon), exits ? 2 : 1);
    const auto next = client.Build(Diagonal(3), PreconditionerSpec{});
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(next->preconditioner.device, "cpu");
    if (exits) AwaitDraining(daemon);
    daemon.Signal(SIGTERM);
    if (!exits) {
      AwaitUnready(daemon);
      daemon.Signal(SIGTERM);
    }
    ExpectExit(daemon, exits ? 1 : 0);
    ExpectLine(daemon, "job_left_hanging");
    if (exits) ExpectLine(daemon, "(--on-device-loss=exit): gpu:0: gpu:0 hung: ");
  }
}

TEST_F(LostDevice, TheCpuThatHangsEndsTheDaemon) {
  Daemon daemon = StartHanging("cpu");
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  Client client = Connect(daemon);
  const auto hung = client.Build(Diagonal(3), PreconditionerSpec{});
  ASSERT_FALSE(hung.ok());
  EXPECT_EQ(hung.error().reason, "DEVICE_LOST");
  EXPECT_EQ(Readiness(daemon), 2);
  AwaitDraining(daemon);
  daemon.Signal(SIGTERM);
  ExpectExit(daemon, 1);
  ExpectLine(daemon, "no device of --devices is left: cpu: cpu hung: ");
}

}  // namespace
}  // namespace spaid::e2e
