#include "server/sched/scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/sched/job.h"
#include "tests/server/sched/gate.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

class SchedulerTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
  }
  void TearDown() override {
    scheduler_.reset();
    SetLogSink(nullptr);
  }
  void Make(int64_t max_queued = 10) {
    SchedulerOptions options;
    options.max_queued = max_queued;
    options.clock = &clock_;
    options.metrics = &metrics_;
    options.on_ended = [this](const std::shared_ptr<Job>& job) {
      std::lock_guard lock(mutex_);
      ended_.push_back(job->name());
    };
    scheduler_ = std::make_unique<Scheduler>(options);
  }
  std::shared_ptr<Job> NewJob(JobLimits limits = {}, v1::JobKind kind = v1::JOB_KIND_BUILD) {
    return Job::Create({.tenant = "t", .kind = kind, .matrix = {}, .preconditioner = {}}, limits,
                       clock_);
  }
  std::shared_ptr<Job> Submit(JobWork work, double predicted_ms = 100, JobLimits limits = {}) {
    auto job = NewJob(limits);
    const absl::Status status =
        scheduler_->Submit(job, {.predicted_ms = predicted_ms}, std::move(work));
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  static JobWork Nothing() {
    return [](Job&, const std::string&) { return absl::OkStatus(); };
  }
  // The worker is busy with this until opened.
  std::shared_ptr<Job> Block(double predicted_ms = 100) {
    auto job = Submit(gate_.Work(), predicted_ms);
    gate_.AwaitBegun();
    return job;
  }
  // Ended as StopError(cause) says.
  static std::string EndReason(const std::shared_ptr<Job>& job) {
    AwaitEnd(job);
    return ReasonOf(job->error());
  }

  FakeClock clock_;
  Metrics metrics_;
  Gate gate_;
  std::mutex mutex_;
  std::vector<std::string> ended_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, RunsInOrder) {
  Make();
  auto first = Block();
  std::vector<int> order;
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 5; ++i) {
    jobs.push_back(Submit([&order, i](Job&, const std::string& device) {
      EXPECT_EQ(device, "cpu");
      order.push_back(i);
      return absl::OkStatus();
    }));
  }
  gate_.Open();
  for (const auto& job : jobs) AwaitEnd(job);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(jobs[4]->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(SchedulerTest, SaysPositionAndTimeToStart) {
  Make();
  Block(/*predicted_ms=*/100);
  auto second = Submit(Nothing(), 40), third = Submit(Nothing(), 30);
  EXPECT_EQ(scheduler_->Where(*second)->position, 0);
  EXPECT_DOUBLE_EQ(scheduler_->Where(*second)->eta_ms, 100);
  EXPECT_EQ(scheduler_->Where(*third)->position, 1);
  EXPECT_DOUBLE_EQ(scheduler_->Where(*third)->eta_ms, 140);
  EXPECT_DOUBLE_EQ(third->Read(1, 1).events[0].queued().eta_ms(), 140);
  clock_.Advance(milliseconds(60));
  EXPECT_DOUBLE_EQ(scheduler_->Where(*third)->eta_ms, 80);
  clock_.Advance(milliseconds(600));  // the running job is late: it is not counted below nothing
  EXPECT_DOUBLE_EQ(scheduler_->Where(*third)->eta_ms, 40);
  const Scheduler::Load load = scheduler_->load();
  EXPECT_EQ(load.queued, 2);
  EXPECT_EQ(load.running, 1);
  EXPECT_DOUBLE_EQ(load.eta_ms, 70);
  gate_.Open();
  AwaitEnd(third);
  EXPECT_FALSE(scheduler_->Where(*third));
}

TEST_F(SchedulerTest, LearnsHowFarPredictionsAreOff) {
  Make();
  auto slow = Block(/*predicted_ms=*/10);
  clock_.Advance(milliseconds(50));  // five times as long as predicted
  gate_.Open();
  AwaitEnd(slow);
  Gate again;
  auto next = Submit(again.Work(), 10);
  again.AwaitBegun();
  auto waiting = Submit(Nothing(), 10);
  EXPECT_DOUBLE_EQ(scheduler_->Where(*waiting)->eta_ms, 50);
  again.Open();
  AwaitEnd(waiting);
}

TEST_F(SchedulerTest, TellsTheQueueAsItMoves) {
  Make();
  Block();
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 9; ++i) jobs.push_back(Submit(Nothing()));
  auto last = jobs.back();
  gate_.Open();
  AwaitEnd(last);
  std::vector<int64_t> told;
  for (const auto& event : last->Read(1, 100).events) {
    if (event.has_queued()) told.push_back(event.queued().position());
  }
  EXPECT_EQ(told, (std::vector<int64_t>{8, 4, 2, 1, 0}));
}

TEST_F(SchedulerTest, AFullQueueSaysWhenToComeBack) {
  Make(/*max_queued=*/2);
  Block(100);
  auto a = Submit(Nothing(), 200), b = Submit(Nothing(), 300);
  auto refused = NewJob();
  auto waiter = refused->Attach({});
  const absl::Status status = scheduler_->Submit(refused, {.predicted_ms = 1}, Nothing());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), "QUEUE_FULL");
  EXPECT_EQ(RetryDelayOf(status), milliseconds(300));  // half of 100 + 200 + 300
  EXPECT_EQ(MetaOf(status, "limit"), "2");
  EXPECT_EQ(refused->state(), v1::JOB_STATE_FAILED) << "whoever watches it learns of it";
  gate_.Open();
  AwaitEnd(b);
  const std::string text = metrics_.Serialize();
  EXPECT_NE(text.find("spaid_jobs_refused_total{kind=\"build\",reason=\"QUEUE_FULL\"} 1"),
            std::string::npos)
      << text;
}

TEST_F(SchedulerTest, CancelsAQueuedJobAtOnce) {
  Make();
  auto running = Block();
  auto a = Submit(Nothing()), b = Submit(Nothing());
  EXPECT_TRUE(a->RequestStop(StopCause::kCancelled));
  EXPECT_TRUE(a->ended()) << "at once, though the worker is busy";
  EXPECT_EQ(a->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(scheduler_->Where(*b)->position, 0);
  EXPECT_FALSE(running->ended());
  gate_.Open();
  AwaitEnd(b);
}

TEST_F(SchedulerTest, CancelsARunningJobByItsHook) {
  Make();
  auto running = Block();
  EXPECT_TRUE(running->RequestStop(StopCause::kCancelled));
  EXPECT_EQ(EndReason(running), "CANCELLED");
  EXPECT_EQ(running->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(running->RequestStop(StopCause::kCancelled)) << "it has ended";
}

TEST_F(SchedulerTest, AJobStoppedBeforeItWasSubmittedEndsAtOnce) {
  Make();
  Block();
  auto job = NewJob();
  job->Attach({})->Leave();
  EXPECT_TRUE(scheduler_->Submit(job, {}, Nothing()).ok());
  EXPECT_TRUE(job->ended());
  EXPECT_EQ(ReasonOf(job->error()), "ABANDONED");
  gate_.Open();
}

TEST_F(SchedulerTest, TheLastWaiterLeavingEndsAQueuedJob) {
  Make();
  Block();
  auto job = NewJob();
  auto a = job->Attach({}), b = job->Attach({});
  ASSERT_TRUE(scheduler_->Submit(job, {}, Nothing()).ok());
  a->Leave();
  EXPECT_FALSE(job->ended());
  b->Leave();
  EXPECT_EQ(EndReason(job), "ABANDONED");
  gate_.Open();
}

TEST_F(SchedulerTest, ADetachedJobRunsWithoutWaiters) {
  Make();
  Block();
  auto job = NewJob();
  auto waiter = job->Attach({.detach = true, .deadline = clock_.Now() + milliseconds(5)});
  ASSERT_TRUE(scheduler_->Submit(job, {}, Nothing()).ok());
  waiter->Leave();
  clock_.Advance(milliseconds(50));  // nor does the deadline of the call end it
  gate_.Open();
  AwaitEnd(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(SchedulerTest, MaxQueueEndsAJobThatWaits) {
  Make();
  Block();
  auto patient = Submit(Nothing());
  auto hasty = Submit(Nothing(), 1, {.max_queue = milliseconds(20), .max_run = {}});
  clock_.Advance(milliseconds(19));
  EXPECT_FALSE(hasty->ended());
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(EndReason(hasty), "MAX_QUEUE");
  EXPECT_EQ(hasty->error().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(hasty->state(), v1::JOB_STATE_FAILED);
  EXPECT_FALSE(patient->ended());
  gate_.Open();
  AwaitEnd(patient);
}

TEST_F(SchedulerTest, MaxRunStopsAJobThatRuns) {
  Make();
  auto job = Submit(gate_.Work(), 1, {.max_queue = milliseconds(5), .max_run = milliseconds(30)});
  gate_.AwaitBegun();
  clock_.Advance(milliseconds(29));
  EXPECT_EQ(job->stop_cause(), StopCause::kNone) << "max_queue is of the queue only";
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(EndReason(job), "MAX_RUN");
}

TEST_F(SchedulerTest, TheDeadlineCoversQueueAndRun) {
  Make();
  auto running = NewJob(), queued = NewJob();
  auto a = running->Attach({.detach = false, .deadline = clock_.Now() + milliseconds(40)});
  auto b = queued->Attach({.detach = false, .deadline = clock_.Now() + milliseconds(30)});
  ASSERT_TRUE(scheduler_->Submit(running, {}, gate_.Work()).ok());
  gate_.AwaitBegun();
  ASSERT_TRUE(scheduler_->Submit(queued, {}, Nothing()).ok());
  clock_.Advance(milliseconds(30));
  EXPECT_EQ(EndReason(queued), "DEADLINE");
  EXPECT_FALSE(running->ended());
  clock_.Advance(milliseconds(10));
  EXPECT_EQ(EndReason(running), "DEADLINE");
}

TEST_F(SchedulerTest, WorkThatFailsFailsItsJobOnly) {
  Make();
  auto bad = Submit([](Job&, const std::string&) -> absl::Status {
    return MakeError(absl::StatusCode::kFailedPrecondition, "ZERO_DIAGONAL", "a(3, 3) is 0");
  });
  EXPECT_EQ(EndReason(bad), "ZERO_DIAGONAL");
  EXPECT_EQ(bad->Snapshot().error().code(), 9);
  auto throws = Submit([](Job&, const std::string&) -> absl::Status { throw std::bad_alloc(); });
  EXPECT_EQ(EndReason(throws), "OUT_OF_MEMORY");
  auto odd =
      Submit([](Job&, const std::string&) -> absl::Status { throw std::runtime_error("library"); });
  EXPECT_EQ(EndReason(odd), "INTERNAL");
  auto good = Submit(Nothing());
  AwaitEnd(good);
  EXPECT_EQ(good->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(SchedulerTest, DrainFinishesWhatItCan) {
  Make();
  auto running = Block(100);
  auto soon = Submit(Nothing(), 50), late = Submit(Nothing(), 50);
  const TimePoint deadline = clock_.Now() + milliseconds(120);
  scheduler_->StartDrain(deadline);
  EXPECT_EQ(EndReason(late), "DRAINING") << "it could not start before the deadline";
  EXPECT_FALSE(soon->ended());
  auto refused = NewJob();
  const absl::Status status = scheduler_->Submit(refused, {}, Nothing());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  EXPECT_TRUE(RetryDelayOf(status));
  EXPECT_TRUE(scheduler_->load().draining);
  gate_.Open();
  EXPECT_TRUE(scheduler_->Drain(deadline));
  EXPECT_EQ(running->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(soon->state(), v1::JOB_STATE_SUCCEEDED);
  std::lock_guard lock(mutex_);
  EXPECT_EQ(ended_.size(), 3u) << "everyone was told before Drain came back";
}

TEST_F(SchedulerTest, DrainStopsWhatIsLeftAtItsDeadline) {
  Make();
  auto running = Block(1);
  bool drained = false;
  std::thread drain([&] { drained = scheduler_->Drain(clock_.Now() + milliseconds(100)); });
  while (!scheduler_->load().draining) std::this_thread::yield();
  EXPECT_FALSE(running->ended());
  // The drain may not be waiting yet: time goes on until it has come to its deadline.
  while (!running->ended()) {
    clock_.Advance(milliseconds(100));
    std::this_thread::yield();
  }
  drain.join();
  EXPECT_TRUE(drained);
  EXPECT_EQ(ReasonOf(running->error()), "DRAINING");
  EXPECT_EQ(running->error().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, DestructionEndsEverything) {
  Make();
  auto running = Block();
  auto queued = Submit(Nothing());
  scheduler_.reset();
  EXPECT_EQ(ReasonOf(running->error()), "DRAINING");
  EXPECT_EQ(ReasonOf(queued->error()), "DRAINING");
  EXPECT_FALSE(running->RequestStop(StopCause::kCancelled)) << "jobs outlive the scheduler";
}

TEST(SchedulerDevicesTest, EveryDeviceHasItsWorker) {
  SetLogSink([](LogLevel, const std::string&) {});
  Gate a, b;
  {
    SchedulerOptions options;
    options.devices = {"cpu", "gpu:0"};
    Scheduler scheduler(options);
    std::vector<std::shared_ptr<Job>> jobs;
    for (Gate* gate : {&a, &b}) {
      jobs.push_back(Job::Create(
          {.tenant = "t", .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}}, {},
          RealClock()));
      ASSERT_TRUE(scheduler.Submit(jobs.back(), {}, gate->Work()).ok());
    }
    a.AwaitBegun();
    b.AwaitBegun();  // both at once
    EXPECT_NE(jobs[0]->Snapshot().device(), jobs[1]->Snapshot().device());
    a.Open();
    b.Open();
    EXPECT_TRUE(scheduler.Drain(RealClock().Now() + std::chrono::seconds(60)));
  }
  SetLogSink(nullptr);
}

}  // namespace
}  // namespace spaid::server
