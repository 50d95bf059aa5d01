// The handle of a detached job against the real daemon, through a network that breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"
#include "tests/server/rpc/proxy.h"

namespace spaid::e2e {
namespace {

// Some seconds of CG, with several events in each.
struct LongSolve {
  CscMatrix a = Poisson(400, 400);
  std::vector<double> b = SmoothRhs(a);
  SolveOptions options{.engine = Engine::kNone, .method = Method::kCg, .rtol = 1e-12};
};

TEST(Job, NoEventIsLostOrDoubledWhereConnectionsBreak) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const LongSolve solve;
  Client direct({.address = daemon.address()});
  auto started = direct.StartSolve(solve.a, solve.b, solve.options);
  ASSERT_TRUE(started.ok()) << started.error().message;

  server::Proxy proxy(daemon.address());
  Client client({.address = proxy.address()});
  Job job = client.OpenJob(started->name());
  std::vector<int64_t> numbers;
  std::vector<int32_t> iterations;
  int cuts = 0;
  const auto end = job.Wait({.on_progress = [&](const Progress& progress) {
    if (progress.event_number == 0) return;
    numbers.push_back(progress.event_number);
    for (const Residual& residual : progress.residuals) iterations.push_back(residual.iteration);
    // Everything that is not here yet has to come through another connection.
    if (progress.event_number % 3 == 0) proxy.Cut(), ++cuts;
  }});
  ASSERT_TRUE(end.ok()) << end.error().message << "\n" << daemon.log();
  EXPECT_EQ(end->info.state, JobState::kSucceeded);
  EXPECT_EQ(end->info.outcomes.at(0).outcome, Outcome::kConverged);
  std::vector<int64_t> all(static_cast<size_t>(end->info.event_count));
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(numbers, all);
  // Every iteration's residual, once.
  ASSERT_FALSE(iterations.empty());
  std::vector<int32_t> in_order(iterations.size());
  std::iota(in_order.begin(), in_order.end(), iterations.front());
  EXPECT_EQ(iterations, in_order);
  EXPECT_EQ(iterations.back(), end->info.outcomes.at(0).iterations);
  EXPECT_GE(cuts, 2);
  EXPECT_GE(proxy.connections(), 3);
  ASSERT_TRUE(end->solution);
  EXPECT_LE(RelativeResidual(solve.a, end->solution->x, solve.b), 1.1e-12);
  // The handle that started it goes on from there, too.
  EXPECT_EQ(started->Wait()->solution->x, end->solution->x);
}

TEST(Job, IsCancelledAndSaysSo) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  LongSolve solve;
  solve.options.rtol = 1e-300;
  solve.options.max_iterations = 2'000'000'000;
  Client client({.address = daemon.address()});
  auto job = client.StartSolve(solve.a, solve.b, solve.options);
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_TRUE(job->Snapshot()->detached);
  ASSERT_TRUE(job->Cancel().ok());
  const auto end = job->Wait();
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->info.state, JobState::kCancelled);
}

TEST(Job, OfABuildTellsTheHandleAndASecondOneNeedsNoJob) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const CscMatrix a = Poisson(20, 20);
  Client client({.address = daemon.address()});
  auto job = client.StartBuild(a, PreconditionerSpec{});
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_FALSE(job->matrix().empty());
  const auto end = job->Wait();
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_TRUE(client.GetPreconditioner(end->info.preconditioner).ok());
  auto again = client.StartBuild(a, PreconditionerSpec{});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->Wait()->info.preconditioner, end->info.preconditioner);
}

TEST(Job, IsForgottenByADaemonThatWasStartedAnew) {
  auto daemon = std::make_unique<Daemon>();
  ASSERT_TRUE(daemon->serving()) << daemon->log();
  const std::string address = daemon->address();
  LongSolve solve;
  solve.options.rtol = 1e-300;
  Client client({.address = address, .max_attempts = 20});
  auto job = client.StartSolve(solve.a, solve.b, solve.options);
  ASSERT_TRUE(job.ok()) << job.error().message;
  daemon.reset();  // SIGKILL
  Daemon second({}, address.c_str());
  ASSERT_TRUE(second.serving()) << second.log();
  EXPECT_EQ(job->Wait().error().code, Code::kNotFound);
}

}  // namespace
}  // namespace spaid::e2e
