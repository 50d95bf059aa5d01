// Things that break around a daemon: clients that die, signals, memory, ports, files.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spaid/client.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/errors.h"
#include "spaid/v1/matrix.grpc.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"
#include "tests/e2e/victim.h"
#include "tests/server/ops/health_check.h"

namespace spaid::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Tries until it holds or half a minute has passed.
template <class Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

TEST(ClientKilled, MidUploadGivesItsBytesBack) {
  // Room for one matrix of 16 MiB and what it takes to look at it: while the dead client's bytes
  // are held, no other fits.
  Daemon daemon({"--matrix-store-bytes=26000000", "--max-matrix-bytes=18000000"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const Ran victim = RunVictim(daemon, "upload");
  ASSERT_EQ(victim.status, -SIGKILL) << victim.output;
  Client client({.address = daemon.address()});
  CscMatrix a = Band(16 << 20);
  a.values[0] = 99;  // not what the victim was sending
  Error last;
  EXPECT_TRUE(Eventually([&] {
    const auto stored = client.Upload(a);
    if (!stored.ok()) last = stored.error();
    return stored.ok();
  })) << last.reason
      << " " << last.message;
}

TEST(ClientKilled, MidBuildCancelsItsJob) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const Ran victim = RunVictim(daemon, "build");
  ASSERT_EQ(victim.status, -SIGKILL) << victim.output;
  Client client({.address = daemon.address()});
  const auto jobs = client.ListJobs();
  ASSERT_TRUE(jobs.ok()) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 1u);
  const auto ended = client.Watch(jobs->front().name, {});
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_EQ(ended->state, JobState::kCancelled);
}

// Long enough to be running when the signal comes.
const PreconditionerSpec kLongBuild{.pattern_power = 4, .local_solver = LocalSolver::kQr};
const PreconditionerSpec kEndlessBuild{.pattern_power = 10, .local_solver = LocalSolver::kQr};

TEST(Drain, FinishesRunningWorkAndExitsWithZero) {
  Daemon daemon({"--drain-grace=0s", "--drain-deadline=60s"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const CscMatrix a = ConvectionDiffusion(70, 70, 0.25);
  Client client({.address = daemon.address()});
  bool signalled = false;
  const auto built =
      client.Build(a, kLongBuild, true, {.on_progress = [&](const Progress& progress) {
                     if (progress.kind == Progress::Kind::kStarted && !signalled) {
                       signalled = true;
                       daemon.Signal(SIGTERM);
                     }
                   }});
  ASSERT_TRUE(signalled);
  ASSERT_TRUE(built.ok()) << built.error().message << "\n" << daemon.log();
  EXPECT_NEAR(InverseResidual(a, *built->m), built->preconditioner.quality.residual_frobenius,
              1e-9);
  EXPECT_EQ(daemon.WaitForExit(), 0) << daemon.log();
}

TEST(Drain, RefusesNewWorkWithARetryHint) {
  Daemon daemon({"--drain-grace=0s", "--drain-deadline=60s"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  // Seconds of work: one that ended before the refusal would take the daemon with it.
  const CscMatrix a = ConvectionDiffusion(300, 300, 0.25);
  Client client({.address = daemon.address()});
  Client other({.address = daemon.address(), .max_attempts = 1});
  const auto small = other.Upload(Poisson(5, 5));
  ASSERT_TRUE(small.ok());
  bool signalled = false;
  Error refusal;
  const auto built =
      client.Build(a, kEndlessBuild, false, {.on_progress = [&](const Progress& progress) {
                     if (progress.kind != Progress::Kind::kStarted || signalled) {
                       return;
                     }
                     signalled = true;
                     daemon.Signal(SIGTERM);
                     // An upload is refused or done at once; a build would wait in the queue.
                     EXPECT_TRUE(Eventually([&] { return !other.Upload(Poisson(5, 5)).ok(); }));
                     const auto late = other.Build(small->name, PreconditionerSpec{});
                     EXPECT_FALSE(late.ok());
                     if (!late.ok()) refusal = late.error();
                     EXPECT_TRUE(other.Cancel(progress.job).ok());
                   }});
  ASSERT_TRUE(signalled);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().code, Code::kCancelled) << built.error().message;
  EXPECT_EQ(refusal.code, Code::kUnavailable);
  EXPECT_EQ(refusal.reason, "DRAINING") << refusal.message;
  EXPECT_TRUE(refusal.retry_after.has_value());
  EXPECT_EQ(daemon.WaitForExit(), 0) << daemon.log();
}

TEST(Drain, TheDeadlineEndsWhatDoesNotFinish) {
  Daemon daemon({"--drain-grace=0s", "--drain-deadline=200ms"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const CscMatrix a = ConvectionDiffusion(100, 100, 0.25);
  Client client({.address = daemon.address(), .max_attempts = 1});
  bool signalled = false;
  const auto built =
      client.Build(a, kEndlessBuild, false, {.on_progress = [&](const Progress& progress) {
                     if (progress.kind == Progress::Kind::kStarted && !signalled) {
                       signalled = true;
                       daemon.Signal(SIGTERM);
                     }
                   }});
  EXPECT_TRUE(signalled);
  EXPECT_FALSE(built.ok());
  EXPECT_EQ(daemon.WaitForExit(), 0) << daemon.log();
}

// What a load balancer and Kubernetes see of it: not ready, still serving; a second signal hurries.
TEST(Drain, IsNotReadyAndStillServesDuringItsGrace) {
  Daemon daemon({"--drain-grace=600s"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const auto channel = grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(testing::Check(channel, "readiness"), 1);
  daemon.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return testing::Check(channel, "readiness") == 2; }));
  EXPECT_EQ(testing::Check(channel, "liveness"), 1);
  Client client({.address = daemon.address(), .max_attempts = 1});
  const auto built = client.Build(Poisson(6, 5), PreconditionerSpec{});
  EXPECT_TRUE(built.ok()) << built.error().message;
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_TRUE(info->draining);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.WaitForExit(seconds(60)), 0) << daemon.log();
}

TEST(Drain, AnIdleDaemonGoesAtOnceAndTakesItsPortFileWithIt) {
  Daemon daemon({"--drain-grace=0s"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.WaitForExit(seconds(20)), 0) << daemon.log();
}

// A daemon that has served everything once, and what it holds then.
class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's shadow and quarantine are memory, too";
#endif
  }
  void Serve(const std::vector<std::string>& flags) {
    daemon.emplace(flags);
    ASSERT_TRUE(daemon->serving()) << daemon->log();
    client.emplace(ClientOptions{.address = daemon->address()});
    // A solve starts when all that the daemon measures at its start is done.
    const CscMatrix a = Band(1 << 20);
    const std::vector<double> b(static_cast<size_t>(a.n), 1.0);
    ASSERT_TRUE(client->Solve(a, b, {.engine = Engine::kJacobi, .max_iterations = 1}).ok());
    daemon->ForgetPeak();
    before = daemon->ResidentBytes();
  }

  std::optional<Daemon> daemon;
  std::optional<Client> client;
  int64_t before = 0;
};

TEST_F(Memory, OfAnUploadIsTheMatrixAndLittleMore) {
  ASSERT_NO_FATAL_FAILURE(Serve({}));
  const CscMatrix a = Band(192 << 20);
  const auto stored = client->Upload(a);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  const double ratio = static_cast<double>(daemon->PeakResidentBytes() - before) /
                       static_cast<double>(ArrayBytes(a));
  RecordProperty("peak_over_matrix", std::to_string(ratio));
  std::printf("peak memory of an upload: %.3f x the matrix\n", ratio);
  EXPECT_GT(ratio, 0.9);  // it is there at all
  EXPECT_LE(ratio, 1.3);
}

// The pattern is turned before values come, and these go to their places: beside the matrix there
// are 4 bytes an entry, no second copy. What is kept of freed memory, here the row pointers, is
// another matter.
TEST_F(Memory, OfAnUploadByRowsIsNoSecondCopy) {
  ASSERT_NO_FATAL_FAILURE(Serve({"--keep-freed-memory=0s"}));
  CscMatrix a = Band(384 << 20);
  CscView rows = a;  // symmetric
  rows.by_rows = true;
  const auto ratio = [&](const MatrixInfo& stored) {
    const double over = static_cast<double>(daemon->PeakResidentBytes() - before) /
                        static_cast<double>(ArrayBytes(a));
    std::printf("peak memory of an upload by rows: %.3f x the matrix (%lld bytes)\n", over,
                static_cast<long long>(stored.host_bytes));
    return over;
  };
  const auto first = client->Upload(rows);
  ASSERT_TRUE(first.ok()) << first.error().message;
  // gRPC holds some 15 MB of messages, whatever the matrix is; on a busy machine twice that. A
  // second copy of values or indices would be 256 or 128 MB.
  const double messages = static_cast<double>(40 << 20) / static_cast<double>(ArrayBytes(a));
  EXPECT_LE(ratio(*first), 1.326 + messages);
  // Other values: 8 bytes an entry more, and the places, which are kept from now on.
  a.values[0] += 1;
  Timings timings;
  const auto second = client->Upload(rows, "", {}, &timings);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(timings.bytes_up, static_cast<int64_t>(8 * a.values.size()));
  EXPECT_LE(ratio(*second), 1.326 + 8.0 / 12 + messages);
}

TEST_F(Memory, OfADeletedMatrixServesTheNextOneAndThenGoesBack) {
  ASSERT_NO_FATAL_FAILURE(Serve({}));
  for (const int64_t bytes : {int64_t{96} << 20, int64_t{96} << 20, int64_t{64} << 20}) {
    const auto stored = client->Upload(Band(bytes));
    ASSERT_TRUE(stored.ok()) << stored.error().message;
    ASSERT_FALSE(client->DeleteMatrix(stored->name));
  }
  // Three matrices, one after the other, took no more than the largest.
  const double largest = 96 << 20;
  EXPECT_LE(static_cast<double>(daemon->PeakResidentBytes() - before) / largest, 1.3);
  // It goes back after five seconds, but for what malloc keeps for messages.
  EXPECT_TRUE(Eventually([&] { return daemon->ResidentBytes() - before < (32 << 20); }));
}

TEST_F(Memory, NothingFreedIsKeptWhereNobodyWantsIt) {
  ASSERT_NO_FATAL_FAILURE(Serve({"--keep-freed-memory=0s"}));
  const auto stored = client->Upload(Band(96 << 20));
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  const auto deleted = std::chrono::steady_clock::now();
  ASSERT_FALSE(client->DeleteMatrix(stored->name));
  EXPECT_TRUE(Eventually([&] { return daemon->ResidentBytes() - before < (32 << 20); }));
  EXPECT_LT(std::chrono::steady_clock::now() - deleted, seconds(4));
}

TEST(Start, APortThatIsTakenIsSaid) {
  Daemon first;
  ASSERT_TRUE(first.serving()) << first.log();
  Daemon second({}, first.address().c_str());
  EXPECT_FALSE(second.serving());
  EXPECT_NE(second.WaitForExit(), 0);
  EXPECT_THAT(second.log(), HasSubstr(first.address()));
  EXPECT_THAT(second.log(), HasSubstr("taken"));
  Client client({.address = first.address()});
  EXPECT_TRUE(client.GetServerInfo().ok());
}

TEST(Start, OtherMachinesAreServedOnlyWithTlsOrOnPurpose) {
  Daemon refused({}, "0.0.0.0:0");
  EXPECT_FALSE(refused.serving());
  EXPECT_NE(refused.WaitForExit(), 0);
  EXPECT_THAT(refused.log(), HasSubstr("--insecure"));
  Daemon on_purpose({"--insecure"}, "0.0.0.0:0");
  EXPECT_TRUE(on_purpose.serving()) << on_purpose.log();
}

TEST(Start, AnUnreadableCertificateIsSaid) {
  Daemon daemon({"--tls-cert=/nonexistent/cert.pem", "--tls-key=/nonexistent/key.pem"});
  EXPECT_FALSE(daemon.serving());
  EXPECT_NE(daemon.WaitForExit(), 0);
  EXPECT_THAT(daemon.log(), HasSubstr("/nonexistent/cert.pem"));
}

TEST(Start, WrongUsageIsToldFromFailure) {
  Daemon daemon({"--no-such-flag"});
  EXPECT_FALSE(daemon.serving());
  EXPECT_EQ(daemon.WaitForExit(), 2);
  EXPECT_THAT(daemon.log(), HasSubstr("no-such-flag"));
}

TEST(Garbage, OnThePortHarmsNobody) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const int port = std::stoi(daemon.address().substr(daemon.address().rfind(':') + 1));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4096, '\0'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff")}) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_GT(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    close(fd);
  }
  Client client({.address = daemon.address()});
  EXPECT_TRUE(client.GetServerInfo().ok());
}

TEST(Restart, AnIdempotentCallOutlivesTheDaemon) {
  auto first = std::make_unique<Daemon>();
  ASSERT_TRUE(first->serving()) << first->log();
  const std::string address = first->address();
  Client client({.address = address, .max_attempts = 10});
  ASSERT_TRUE(client.GetServerInfo().ok());
  first.reset();  // SIGKILL
  auto waiting = std::async(std::launch::async, [&] { return client.GetServerInfo(); });
  Daemon second({}, address.c_str());
  ASSERT_TRUE(second.serving()) << second.log();
  const auto info = waiting.get();
  EXPECT_TRUE(info.ok()) << info.error().message;
}

}  // namespace
}  // namespace spaid::e2e

int main(int argc, char** argv) {
  if (spaid::e2e::IsVictim(argc, argv)) return spaid::e2e::BeVictim(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
