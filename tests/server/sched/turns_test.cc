// Solves that outrun their predictions, and take turns with others.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/status.h"
#include "server/sched/job.h"
#include "server/sched/scheduler.h"
#include "tests/server/sched/gate.h"
#include "tests/server/sched/scheduler_fixture.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

// Solves that never end, as the kernels work: they look at their turn at each residual check.
class TurnsTest : public SchedulerTest {
 protected:
  void Make(std::vector<DeviceRoom> devices = {{.name = "cpu"}}, int64_t max_detached = 0) {
    SchedulerOptions options;
    options.dispatch.devices = std::move(devices);
    options.dispatch.slice = milliseconds(100);
    options.max_detached_per_tenant = max_detached;
    options.clock = &clock_;
    scheduler_ = std::make_unique<Scheduler>(options);
  }
  // What an endless solve shows of itself, and is told.
  struct Solve {
    std::shared_ptr<Job> job;
    JobWaiter waiter;
    std::atomic<int64_t> checks{0}, pauses{0};
    std::atomic<bool> converged{false};
  };
  std::shared_ptr<Solve> Endless(double predicted_ms = 10, JobLimits limits = {},
                                 const std::string& tenant = "t", DeviceMask devices = kAnyDevice) {
    auto solve = std::make_shared<Solve>();
    solve->job = Job::Create(
        {.tenant = tenant, .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}}, limits,
        clock_);
    solve->waiter = *solve->job->Attach({});
    const JobWork run = [solve](Job& job, const Assignment& at) -> absl::Status {
      const auto stop = std::make_shared<std::atomic<bool>>(false);
      job.SetStopHook([stop](StopCause) { stop->store(true); });
      while (!stop->load() && !solve->converged.load()) {
        if (at.turn != nullptr && at.turn->Over()) {
          ++solve->pauses;
          at.turn->Yield();
        }
        ++solve->checks;
        std::this_thread::yield();
      }
      return stop->load() ? absl::CancelledError("stopped") : absl::OkStatus();
    };
    Work work{.predicted_ms = predicted_ms, .devices = devices};
    work.yields = true;
    EXPECT_TRUE(scheduler_->Submit(solve->job, work, run).ok());
    return solve;
  }
  // It goes on.
  static void AwaitChecks(const Solve& solve) {
    for (const int64_t before = solve.checks; solve.checks < before + 10;) {
      std::this_thread::yield();
    }
  }
  static void AwaitPauses(const Solve& solve, int64_t pauses) {
    while (solve.pauses < pauses) std::this_thread::yield();
  }
};

TEST_F(TurnsTest, ASolveThatOutrunsItsPredictionLetsOthersGoFirst) {
  Make();
  const auto solve = Endless(/*predicted_ms=*/100);
  AwaitChecks(*solve);
  const auto next = Submit(Nothing());
  clock_.Advance(milliseconds(199));
  AwaitChecks(*solve);
  EXPECT_EQ(next->state(), v1::JOB_STATE_QUEUED) << "its turn is twice what it said";
  EXPECT_EQ(solve->pauses, 0);
  clock_.Advance(milliseconds(2));
  AwaitEnd(next);
  EXPECT_EQ(next->state(), v1::JOB_STATE_SUCCEEDED);
  AwaitChecks(*solve);
  EXPECT_EQ(solve->job->state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(solve->pauses, 1);
  clock_.Advance(milliseconds(10'000));
  AwaitChecks(*solve);
  EXPECT_EQ(solve->pauses, 1) << "nobody waits";
  solve->converged = true;
  AwaitEnd(solve->job);
  EXPECT_EQ(solve->job->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(TurnsTest, TwoWithoutEndTakeTurns) {
  Make();
  const auto a = Endless(), b = Endless();
  for (int turn = 1; turn <= 20; ++turn) {
    AwaitChecks(turn % 2 == 1 ? *a : *b);
    EXPECT_EQ(scheduler_->load().paused, turn == 1 ? 0 : 1);
    const Solve& other = turn % 2 == 1 ? *b : *a;
    const int64_t checks = other.checks;
    AwaitChecks(turn % 2 == 1 ? *a : *b);
    EXPECT_EQ(other.checks, checks) << "one at a time";
    clock_.Advance(milliseconds(100));
    AwaitPauses(turn % 2 == 1 ? *a : *b, (turn + 1) / 2);
  }
  EXPECT_EQ(scheduler_->load().running, 2);
  EXPECT_EQ(scheduler_->load().queued, 0);
}

// Whatever a paused job is told it heeds at once, though its slot is another one's.
TEST_F(TurnsTest, APausedJobIsStoppedAtOnce) {
  Make();
  const auto cancelled = Endless(),
             late = Endless(10, {.max_queue = {}, .max_run = std::chrono::hours(1)}),
             abandoned = Endless();
  const auto take_turn = [&](Solve& solve) {
    const int64_t pauses = solve.pauses;
    AwaitChecks(solve);
    clock_.Advance(milliseconds(100));
    AwaitPauses(solve, pauses + 1);
  };
  take_turn(*cancelled);
  take_turn(*late);
  Submit(gate_.Work());
  for (const auto& solve : {abandoned, cancelled, late}) take_turn(*solve);
  gate_.AwaitBegun();
  EXPECT_TRUE(cancelled->job->RequestStop(StopCause::kCancelled));
  EXPECT_EQ(EndReason(cancelled->job), "CANCELLED");
  abandoned->waiter.Leave();
  EXPECT_EQ(EndReason(abandoned->job), "ABANDONED");
  clock_.Advance(std::chrono::hours(1));  // since it began, in its pauses, too
  EXPECT_EQ(EndReason(late->job), "MAX_RUN");
  EXPECT_EQ(scheduler_->load().running, 1);
  gate_.Open();
}

TEST_F(TurnsTest, ADrainStopsPausedJobs) {
  Make();
  const auto a = Endless(), b = Endless();
  AwaitChecks(*a);
  clock_.Advance(milliseconds(100));
  AwaitChecks(*b);
  std::thread drain([&] { EXPECT_TRUE(scheduler_->Drain(clock_.Now() + milliseconds(50))); });
  while (!scheduler_->load().draining) std::this_thread::yield();
  clock_.Advance(milliseconds(60));
  drain.join();
  EXPECT_EQ(ReasonOf(a->job->error()), "DRAINING");
  EXPECT_EQ(ReasonOf(b->job->error()), "DRAINING");
}

TEST_F(TurnsTest, DestructionEndsPausedJobs) {
  Make();
  const auto a = Endless(), b = Endless();
  AwaitChecks(*a);
  clock_.Advance(milliseconds(100));
  AwaitChecks(*b);
  scheduler_.reset();
  EXPECT_EQ(ReasonOf(a->job->error()), "DRAINING");
  EXPECT_EQ(ReasonOf(b->job->error()), "DRAINING");
}

// It goes on, and finds out by itself.
TEST_F(TurnsTest, APausedJobLearnsThatItsDeviceIsLost) {
  Make({{.name = "cpu"}, {.name = "gpu:0"}});
  const auto a = Endless(10, {}, "t", DeviceBit(1));
  AwaitChecks(*a);
  Work on_gpu{.predicted_ms = 10, .devices = DeviceBit(1)};
  std::promise<void> fail;
  auto failing = NewJob();
  ASSERT_TRUE(
      scheduler_
          ->Submit(failing, on_gpu,
                   [failed = fail.get_future().share()](Job&, const Assignment&) -> absl::Status {
                     failed.wait();
                     return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "gone");
                   })
          .ok());
  clock_.Advance(milliseconds(100));
  AwaitPauses(*a, 1);
  while (failing->state() != v1::JOB_STATE_RUNNING) std::this_thread::yield();
  EXPECT_EQ(scheduler_->load().paused, 1);
  fail.set_value();
  EXPECT_EQ(EndReason(failing), "DEVICE_LOST");
  AwaitChecks(*a);
  EXPECT_EQ(scheduler_->load().paused, 0);
  a->converged = true;
  AwaitEnd(a->job);
}

TEST_F(TurnsTest, DetachedJobsOfATenantAreBounded) {
  Make({{.name = "cpu"}}, /*max_detached=*/2);
  const auto detached = [&](const std::string& tenant) {
    auto job = Job::Create(
        {.tenant = tenant, .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}}, {},
        clock_);
    (void)job->Attach({.detach = true, .deadline = {}});
    return job;
  };
  const auto running = detached("evil"), queued = detached("evil"), refused = detached("evil");
  ASSERT_TRUE(scheduler_->Submit(running, {}, gate_.Work()).ok());
  gate_.AwaitBegun();
  EXPECT_TRUE(scheduler_->AdmitDetached("evil").ok());
  ASSERT_TRUE(scheduler_->Submit(queued, {}, Nothing()).ok());
  const absl::Status status = scheduler_->Submit(refused, {}, Nothing());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "TOO_MANY_DETACHED");
  EXPECT_EQ(MetaOf(status, "limit"), "2");
  EXPECT_TRUE(RetryDelayOf(status));
  EXPECT_EQ(ReasonOf(scheduler_->AdmitDetached("evil")), "TOO_MANY_DETACHED");
  EXPECT_EQ(refused->state(), v1::JOB_STATE_FAILED);
  const auto other = detached("good"), attached = NewJob();
  EXPECT_TRUE(scheduler_->Submit(other, {}, Nothing()).ok());
  EXPECT_TRUE(scheduler_->Submit(attached, {}, Nothing()).ok());
  gate_.Open();
  for (const auto& job : {running, queued, other, attached}) AwaitEnd(job);
  EXPECT_TRUE(scheduler_->AdmitDetached("evil").ok());
}

}  // namespace
}  // namespace spaid::server
