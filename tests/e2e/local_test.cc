// The C++ client and the real daemon on one host: arrays in shared memory, what becomes of them
// when either side ends, and gRPC over a socket that is a file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spaid/client.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

using std::chrono::milliseconds;

bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

template <class T>
SharedArray<T> Shared(Client& client, const std::vector<T>& values) {
  auto array = client.Allocate<T>(static_cast<int64_t>(values.size()));
  EXPECT_TRUE(array.ok()) << array.error().message;
  std::copy(values.begin(), values.end(), array->begin());
  return *std::move(array);
}

// A matrix in shared memory.
struct SharedMatrix {
  SharedMatrix(Client& client, const CscMatrix& a)
      : n(a.n),
        col_ptr(Shared(client, a.col_ptr)),
        row_idx(Shared(client, a.row_idx)),
        values(Shared(client, a.values)) {}
  operator CscView() const {
    return {.n = n, .col_ptr = col_ptr, .row_idx = row_idx, .values = values};
  }
  int64_t bytes() const {
    return static_cast<int64_t>(8 * col_ptr.size() + 4 * row_idx.size() + 8 * values.size());
  }
  int64_t n;
  SharedArray<int64_t> col_ptr;
  SharedArray<int32_t> row_idx;
  SharedArray<double> values;
};

class Local : public ::testing::Test {
 protected:
  void Serve(std::vector<std::string> flags = {}, const char* host = "127.0.0.1:0") {
    daemon_.reset();
    flags.push_back("--local-socket=" + path());
    flags.push_back("--drain-grace=0s");
    daemon_ = std::make_unique<Daemon>(flags, host);
    ASSERT_TRUE(daemon_->serving()) << daemon_->log();
  }
  std::string path() const { return (folder_ / "local").string(); }
  ClientOptions Options() const {
    return {.address = daemon_->address(), .max_attempts = 10, .local_socket = path()};
  }
  // Uploads and solves by what is shared, in place; whether all of that was shared.
  void ExpectSolves(Client& client, bool shared) {
    const CscMatrix a = Poisson(50, 40);
    const std::vector<double> rhs = SmoothRhs(a);
    const SharedMatrix shared_a(client, a);
    const auto b = Shared(client, rhs), x = Shared(client, std::vector<double>(rhs.size(), 7.0));
    const LocalStatus before = client.GetLocalStatus();
    SolveOptions options{.engine = Engine::kJacobi, .rtol = 1e-10};
    options.solution = x;
    const auto solved = client.Solve(shared_a, b, options);
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
    EXPECT_TRUE(solved->x.empty()) << "it is where it was to go";
    EXPECT_LT(RelativeResidual(a, x.span(), rhs), 1e-9);
    const int64_t all = shared_a.bytes() + 16 * static_cast<int64_t>(rhs.size());
    const LocalStatus after = client.GetLocalStatus();
    EXPECT_EQ(after.shared_bytes - before.shared_bytes, shared ? all : 0);
    EXPECT_EQ(after.fallback_bytes > before.fallback_bytes, !shared);
  }

  TempDir folder_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(Local, ArraysAreTakenWhereTheyLie) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  Client client(Options());
  ExpectSolves(client, true);
  const LocalStatus status = client.GetLocalStatus();
  EXPECT_TRUE(status.available) << status.why;
  EXPECT_EQ(status.tenant, "default");
  // Beside arrays that are not shared, and parts of shared ones.
  const CscMatrix a = ConvectionDiffusion(30, 30, 0.5);
  const SharedMatrix shared(client, a);
  CscView mixed = a;
  mixed.values = shared.values;
  const auto sent = client.Upload(a), other = client.Upload(mixed), all = client.Upload(shared);
  ASSERT_TRUE(sent.ok() && other.ok() && all.ok());
  EXPECT_EQ(sent->name, other->name);
  EXPECT_EQ(sent->name, all->name);
  const auto rhs = Shared(client, std::vector<double>(3 * 900, 1.0));
  const auto odd = rhs.span().subspan(900, 900);
  const auto solved = client.Solve(sent->name, odd, {.engine = Engine::kNone, .rtol = 1e-8});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_LT(RelativeResidual(a, solved->x, odd), 1e-7);
}

TEST_F(Local, AnUploadWithOtherValuesIsAnotherMatrix) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  Client client(Options());
  const SharedMatrix a(client, Poisson(100, 100));
  const auto first = client.Upload(a);
  a.values[0] = 5;
  const auto second = client.Upload(a);
  a.values[0] = 4;
  Timings timings;
  const auto third = client.Upload(a, "", {}, &timings);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_NE(first->name, second->name);
  EXPECT_EQ(first->name, third->name);
  EXPECT_TRUE(timings.reused);
}

TEST_F(Local, BadInputIsRefusedAsOnTheWire) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  Client client(Options());
  const SharedMatrix a(client, Poisson(10, 10));
  a.row_idx[17] = 1'000'000;
  const auto stored = client.Upload(a);
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.error().reason, "INDEX_OUT_OF_RANGE");
  const std::vector<double> b(100, 1.0);
  std::vector<double> x(99);
  SolveOptions options;
  options.solution = x;
  EXPECT_EQ(client.Solve(Poisson(10, 10), b, options).error().reason, "SIZE_MISMATCH");
}

TEST_F(Local, ASolutionOverItsRightHandSide) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  Client client(Options());
  const CscMatrix a = Poisson(20, 20);
  const std::vector<double> rhs = SmoothRhs(a);
  const auto b = Shared(client, rhs);
  SolveOptions options{.engine = Engine::kJacobi};
  options.solution = b;
  const auto solved = client.Solve(a, b, options);
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_LT(RelativeResidual(a, b.span(), rhs), 1e-7);
}

TEST_F(Local, OutlivesTheDaemon) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  const std::string address = daemon_->address();
  Client client(Options());
  ExpectSolves(client, true);
  const CscMatrix a = Poisson(30, 30);
  const SharedMatrix kept(client, a);
  ASSERT_TRUE(client.Upload(kept).ok());
  // Killed: the file of its socket stays, and is replaced.
  ASSERT_NO_FATAL_FAILURE(Serve({}, address.c_str()));
  const int64_t before = client.GetLocalStatus().shared_bytes;
  ASSERT_TRUE(client.Upload(kept).ok());
  EXPECT_EQ(client.GetLocalStatus().shared_bytes - before, kept.bytes()) << "registered again";
  ExpectSolves(client, true);
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(), 0) << daemon_->log();
  EXPECT_FALSE(std::filesystem::exists(path()));
  const LocalStatus status = client.GetLocalStatus();
  EXPECT_FALSE(status.available);
  EXPECT_NE(status.why.find(path()), std::string::npos) << status.why;
}

TEST_F(Local, TakesTheWireWhereItIsAnotherDaemons) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  Daemon other;
  ASSERT_TRUE(other.serving()) << other.log();
  Client client({.address = other.address(), .local_socket = path()});
  const CscMatrix a = Poisson(30, 30);
  const SharedMatrix shared(client, a);
  const auto stored = client.Upload(shared);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  const LocalStatus status = client.GetLocalStatus();
  EXPECT_FALSE(status.available);
  EXPECT_EQ(status.reason, "LEASE_UNKNOWN");
  EXPECT_EQ(status.fallback_bytes, 0) << "nothing was asked for the last time";
}

TEST_F(Local, TakesTheWireOverTheLimits) {
  ASSERT_NO_FATAL_FAILURE(Serve({"--local-bytes=64KiB"}));
  Client client(Options());
  const auto large = client.Allocate<double>(100'000);
  ASSERT_TRUE(large.ok());
  LocalStatus status = client.GetLocalStatus();
  EXPECT_EQ(status.reason, "SEGMENTS_FULL");
  EXPECT_NE(status.why.find("--local-bytes"), std::string::npos) << status.why;
  const CscMatrix a = Poisson(400, 250);
  std::fill(large->begin(), large->end(), 1.0);
  const auto solved = client.Solve(a, *large, {.engine = Engine::kNone, .max_iterations = 3});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_EQ(client.GetLocalStatus().fallback_bytes, 800'000);
}

TEST_F(Local, SaysWhyThereIsNone) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  Client none({.address = daemon_->address()});
  EXPECT_FALSE(none.GetLocalStatus().available);
  EXPECT_NE(none.GetLocalStatus().why.find("local_socket is empty"), std::string::npos);
  EXPECT_EQ(none.GetLocalStatus().fallback_bytes, 0);
  ClientOptions options = Options();
  options.local_socket = "/nowhere/local";
  Client nowhere(options);
  ExpectSolves(nowhere, false);
  EXPECT_NE(nowhere.GetLocalStatus().why.find("/nowhere/local"), std::string::npos);
  options = Options();
  options.token = "0123456789abcdef";
  Client stranger(options);
  EXPECT_EQ(stranger.GetLocalStatus().reason, "BAD_TOKEN");
}

TEST_F(Local, ManyThreadsShareOneClient) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  Client client(Options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&client, t] {
      for (int i = 0; i < 5; ++i) {
        CscMatrix a = Poisson(30, 30);
        for (double& value : a.values) value *= 1 + t + 10 * i;
        const SharedMatrix shared(client, a);
        const auto b = Shared(client, SmoothRhs(a));
        SolveOptions options{.engine = Engine::kJacobi};
        const auto x = client.Allocate<double>(900);
        ASSERT_TRUE(x.ok());
        options.solution = *x;
        const auto solved = client.Solve(shared, b, options);
        ASSERT_TRUE(solved.ok()) << solved.error().message;
        EXPECT_LT(RelativeResidual(a, x->span(), b.span()), 1e-7);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

constexpr std::string_view kVictim = "--be-a-local-victim";

// Dies by SIGKILL in the middle of a solve in place, or of an upload.
[[noreturn]] void BeVictim(char** argv) {
  const std::string mode = argv[4];
  Client client({.address = argv[2], .local_socket = argv[3]});
  const CscMatrix a = Poisson(400, 400);
  const SharedMatrix shared(client, a);
  const auto b = Shared(client, SmoothRhs(a)), x = Shared(client, std::vector<double>(b.size()));
  if (mode == "upload") {
    std::thread([] {
      std::this_thread::sleep_for(milliseconds(3));
      kill(getpid(), SIGKILL);
    }).detach();
    for (;;) {
      if (!client.Upload(shared).ok()) _exit(2);
      shared.values[0] += 1;
    }
  }
  SolveOptions options{.engine = Engine::kNone, .rtol = 1e-15, .max_iterations = 1'000'000};
  options.solution = x;
  (void)client.Solve(shared, b, options, {.on_progress = [](const Progress& progress) {
                       if (progress.kind == Progress::Kind::kResiduals) kill(getpid(), SIGKILL);
                     }});
  _exit(1);
}

TEST_F(Local, GivesAllBackWhenAClientIsKilled) {
  ASSERT_NO_FATAL_FAILURE(Serve(
      {"--keep-freed-memory=100ms", "--matrix-store-bytes=200MiB", "--max-matrix-bytes=100MiB"}));
  const auto victims = [&](const char* mode) {
    const Ran victim = RunProgram({std::filesystem::read_symlink("/proc/self/exe").string(),
                                   std::string(kVictim), daemon_->address(), path(), mode});
    EXPECT_EQ(victim.status, -SIGKILL) << mode << ": " << victim.output;
  };
  Client client(Options());
  ExpectSolves(client, true);
  ASSERT_NO_FATAL_FAILURE(victims("solve"));
  const auto clean = [&] {
    const auto matrices = client.ListMatrices();
    if (!matrices.ok()) return false;
    for (const MatrixInfo& matrix : *matrices) client.DeleteMatrix(matrix.name);
    const auto info = client.GetServerInfo();
    return info.ok() && info->running == 0 && info->queued == 0;
  };
  EXPECT_TRUE(Eventually(clean));
  std::this_thread::sleep_for(milliseconds(500));
  const int descriptors = daemon_->OpenDescriptors();
  [[maybe_unused]] const int64_t resident = daemon_->ResidentBytes();
  for (int i = 0; i < 6; ++i) victims(i % 2 == 0 ? "solve" : "upload");
  EXPECT_TRUE(Eventually(clean));
  EXPECT_TRUE(Eventually([&] { return daemon_->OpenDescriptors() <= descriptors; }))
      << daemon_->OpenDescriptors() << " open for " << descriptors;
#if !defined(__SANITIZE_ADDRESS__)  // whose quarantine is memory, too
  EXPECT_TRUE(Eventually([&] { return daemon_->ResidentBytes() <= resident + (32 << 20); }))
      << (daemon_->ResidentBytes() - resident) / 1024 << " KiB more";
#endif
  ExpectSolves(client, true);
}

TEST(UnixAddress, ServesAndIsCalled) {
  const TempDir folder;
  const std::string address = "unix:" + (folder / "grpc").string();
  Daemon daemon({"--drain-grace=0s"}, address.c_str());
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  EXPECT_EQ(daemon.address(), address);
  Client client({.address = address});
  const CscMatrix a = Poisson(20, 20);
  const auto solved = client.Solve(a, SmoothRhs(a), {.engine = Engine::kJacobi});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_LT(RelativeResidual(a, solved->x, SmoothRhs(a)), 1e-7);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.WaitForExit(), 0) << daemon.log();
  EXPECT_FALSE(std::filesystem::exists(folder / "grpc"));
}

}  // namespace
}  // namespace spaid::e2e

int main(int argc, char** argv) {
  if (argc == 5 && argv[1] == spaid::e2e::kVictim) spaid::e2e::BeVictim(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
