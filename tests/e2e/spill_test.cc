// The real daemon over a spill folder: stopped, killed and started anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <spaid/client.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

using ::testing::HasSubstr;

bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class Spill : public ::testing::Test {
 protected:
  void Serve(std::vector<std::string> more = {}) {
    more.push_back("--spill-dir=" + path());
    more.push_back("--drain-grace=0s");
    daemon_ = std::make_unique<Daemon>(more);
    ASSERT_TRUE(daemon_->serving()) << daemon_->log();
    client_ = std::make_unique<Client>(ClientOptions{.address = daemon_->address()});
  }
  void Stop(int signal) {
    daemon_->Signal(signal);
    const std::optional<int> status = daemon_->WaitForExit();
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(*status, signal == SIGKILL ? -SIGKILL : 0) << daemon_->log();
  }
  std::string path() const { return (folder_ / "spill").string(); }
  size_t Files() const {
    size_t count = 0;
    for (const auto& file : std::filesystem::directory_iterator(path() + "/files")) {
      count += file.path().extension() != ".part";
    }
    return count;
  }

  TempDir folder_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Client> client_;
};

TEST_F(Spill, HandlesSurviveAnOrderlyRestart) {
  const CscMatrix a = Poisson(40, 40);
  const std::vector<double> b = SmoothRhs(a);
  Serve();
  const auto stored = client_->Upload(a, "poisson");
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  const auto built = client_->Build(stored->name, {.engine = Engine::kStaticSpai}, true);
  ASSERT_TRUE(built.ok()) << built.error().message;
  const std::string m = built->preconditioner.name;
  const auto before = client_->Solve(stored->name, b, {.preconditioner = m});
  ASSERT_TRUE(before.ok()) << before.error().message;
  Stop(SIGTERM);
  Serve();
  const auto known = client_->GetMatrix(stored->name);
  ASSERT_TRUE(known.ok()) << known.error().message;
  EXPECT_EQ(known->label, "poisson");
  const auto after = client_->Solve(stored->name, b, {.preconditioner = m});
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(after->x, before->x);
  EXPECT_LT(RelativeResidual(a, after->x, b), 1e-6);
  const auto downloaded = client_->Download(m);
  ASSERT_TRUE(downloaded.ok()) << downloaded.error().message;
  EXPECT_EQ(downloaded->values, built->m->values);
  // By its content, too: in another process fingerprints are the same.
  Timings timings;
  const auto again = client_->Upload(a, "", {}, &timings);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->name, stored->name);
  EXPECT_EQ(timings.bytes_up, 0);
  const auto reused = client_->Build(stored->name, {.engine = Engine::kStaticSpai});
  ASSERT_TRUE(reused.ok());
  EXPECT_EQ(reused->preconditioner.name, m);
  EXPECT_TRUE(reused->timings.reused);
  // And it is to be seen.
  httplib::Client ops("http://" + daemon_->ops_address());
  const auto metrics = ops.Get("/metrics"), status = ops.Get("/status.json");
  ASSERT_TRUE(metrics && status);
  EXPECT_THAT(metrics->body, HasSubstr("spaid_spill_records 2"));
  EXPECT_THAT(status->body, HasSubstr("spill folder"));
}

TEST_F(Spill, WhatWasWrittenSurvivesAKill) {
  const CscMatrix a = Poisson(30, 30);
  Serve();
  const auto stored = client_->Upload(a);
  ASSERT_TRUE(stored.ok());
  ASSERT_TRUE(Eventually([&] { return Files() == 2; }));
  Stop(SIGKILL);
  Serve();
  const std::vector<double> b = SmoothRhs(a);
  // The row may have come too late; then the client heals it.
  const auto solved = client_->Solve(a, b, {.engine = Engine::kJacobi});
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  EXPECT_LT(RelativeResidual(a, solved->x, b), 1e-6);
}

TEST_F(Spill, DetachedJobsAreDoneAfterAKill) {
  const CscMatrix a = ConvectionDiffusion(60, 60, 1.0);
  const std::vector<double> b = SmoothRhs(a);
  Serve({"--lanes=1"});
  // Long enough to be killed in, and others behind it.
  const SolveOptions endless{.engine = Engine::kNone,
                             .method = Method::kGmres,
                             .rtol = 1e-30,
                             .max_iterations = 2'000'000};
  const auto first = client_->StartSolve(a, b, endless);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = client_->StartSolve(a, b, {.engine = Engine::kJacobi});
  const auto third = client_->StartBuild(a, {.engine = Engine::kStaticSpai});
  ASSERT_TRUE(second.ok() && third.ok());
  Stop(SIGKILL);
  Serve();
  const auto ended = client_->OpenJob(second->name()).Wait();
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  ASSERT_TRUE(ended->solution.has_value());
  EXPECT_LT(RelativeResidual(a, ended->solution->x, b), 1e-6);
  const auto built = client_->OpenJob(third->name()).Wait();
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->info.state, JobState::kSucceeded);
  EXPECT_TRUE(client_->GetPreconditioner(built->info.preconditioner).ok());
  const auto cancelled = client_->Cancel(first->name());
  ASSERT_TRUE(cancelled.ok()) << cancelled.error().message;
  ASSERT_TRUE(client_->OpenJob(first->name()).Watch().ok());
  Stop(SIGTERM);
}

TEST_F(Spill, OneDaemonAFolder) {
  Serve();
  const Ran second = RunProgram(
      {DaemonProgram(), "--address=127.0.0.1:0", "--ops-address=off", "--spill-dir=" + path()});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.output, HasSubstr("[BAD_SPILL_FOLDER]"));
  EXPECT_THAT(second.output, HasSubstr("another daemon uses it"));
  EXPECT_THAT(second.output, HasSubstr(path()));
}

TEST_F(Spill, AFolderThatCannotBeUsedIsSaidAtOnce) {
  const std::string file = (folder_ / "file").string();
  std::ofstream(file) << "x";
  const Ran ran = RunProgram(
      {DaemonProgram(), "--address=127.0.0.1:0", "--ops-address=off", "--spill-dir=" + file});
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.output, HasSubstr("[BAD_SPILL_FOLDER]"));
  EXPECT_EQ(RunProgram({DaemonProgram(), "--spill-sync=perhaps"}).status, 2);
}

TEST_F(Spill, AFolderDeletedUnderneathCostsNobodyAnAnswer) {
  const CscMatrix a = Poisson(20, 20);
  Serve();
  ASSERT_TRUE(client_->Upload(a).ok());
  ASSERT_TRUE(Eventually([&] { return Files() == 2; }));
  std::error_code failed;  // the daemon may be writing
  do {
    std::filesystem::remove_all(path(), failed);
  } while (failed);
  const std::vector<double> b = SmoothRhs(a);
  for (int i = 0; i < 3; ++i) {
    const auto solved = client_->Solve(OtherValues(a), b, {.engine = Engine::kJacobi});
    EXPECT_TRUE(solved.ok()) << solved.error().message;
  }
  Stop(SIGTERM);
}

}  // namespace
}  // namespace spaid::e2e
