#include "server/sched/scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/sched/job.h"
#include "tests/server/sched/gate.h"
#include "tests/server/sched/scheduler_fixture.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

TEST_F(SchedulerTest, RunsInOrder) {
  Make();
  auto first = Block();
  std::vector<int> order;
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 5; ++i) {
    jobs.push_back(Submit([&order, i](Job&, const Assignment& at) {
      EXPECT_EQ(at.device, "cpu");
      order.push_back(i);
      return absl::OkStatus();
    }));
  }
  gate_.Open();
  for (const auto& job : jobs) AwaitEnd(job);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(jobs[4]->state(), v1::JOB_STATE_SUCCEEDED);
}

// What is done once before a device's first job is no part of that: neither of its run, nor of what
// jobs of its kind are expected to take.
TEST_F(SchedulerTest, NothingStartsBeforeTheDevicesArePrepared) {
  std::promise<void> prepared;
  SchedulerOptions options;
  options.dispatch.devices = {{.name = "cpu", .slots = 2}, {.name = "gpu:0"}};
  options.clock = &clock_;
  options.prepare = [&, ready = prepared.get_future().share()](size_t device) -> absl::Status {
    if (device == 1) ready.wait();
    if (device == 0) throw std::runtime_error("no figure, but the device works");
    return absl::OkStatus();
  };
  scheduler_ = std::make_unique<Scheduler>(options);
  const auto job = Submit(Nothing());
  EXPECT_EQ(job->state(), v1::JOB_STATE_QUEUED);
  clock_.Advance(milliseconds(500));
  EXPECT_EQ(job->state(), v1::JOB_STATE_QUEUED);
  prepared.set_value();
  AwaitEnd(job);
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job->QueueTime(), milliseconds(500));
  EXPECT_EQ(job->RunTime(), milliseconds(0));
  const auto ratios = scheduler_->load().ratios;
  ASSERT_EQ(ratios.size(), 1U);
  EXPECT_LT(ratios[0].value, 1);
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
  clock_.Advance(milliseconds(600));  // the running job is late: it may take as long again
  EXPECT_DOUBLE_EQ(scheduler_->Where(*third)->eta_ms, 560 + 40);
  const Scheduler::Load load = scheduler_->load();
  EXPECT_EQ(load.queued, 2);
  EXPECT_EQ(load.running, 1);
  EXPECT_DOUBLE_EQ(load.eta_ms, 560 + 70);
  gate_.Open();
  AwaitEnd(third);
  EXPECT_FALSE(scheduler_->Where(*third));
}

// Streams ask where a job stands with what their jobs' watchers want held.
TEST_F(SchedulerTest, AskingWhereRunsNobodysWatchers) {
  Make();
  Block(/*predicted_ms=*/100);
  auto own = Submit(Nothing(), 40);
  clock_.Advance(
      milliseconds(10'000));  // what the running job has taken is charged when the next one comes
  auto other = Job::Create(
      {.tenant = "u", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}}, {}, clock_);
  ASSERT_TRUE(scheduler_->Submit(other, {.predicted_ms = 30}, Nothing()).ok());
  EXPECT_EQ(other->Read(1, 1).events[0].queued().position(), 1);
  std::atomic<bool> told{false}, told_here{false};
  const auto news = other->Subscribe(2, [&, asks = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == asks) told_here = true;
    told = true;
    told.notify_all();
  });
  EXPECT_EQ(scheduler_->Where(*other)->position, 0);
  told.wait(false);
  EXPECT_FALSE(told_here);
  EXPECT_EQ(other->Read(2, 1).events[0].queued().position(), 0);
  gate_.Open();
  AwaitEnd(own);
}

TEST_F(SchedulerTest, ShowsWhatRunsAndWhatStartsFirst) {
  Make();
  EXPECT_TRUE(scheduler_->jobs(10).running.empty());
  auto first = Block(/*predicted_ms=*/100);
  auto second = Submit(Nothing(), 40), third = Submit(Nothing(), 30);
  const Scheduler::Jobs jobs = scheduler_->jobs(10);
  ASSERT_EQ(jobs.running.size(), 1u);
  EXPECT_EQ(jobs.running[0].job, first);
  EXPECT_EQ(jobs.running[0].predicted_ms, 100);
  ASSERT_EQ(jobs.queued.size(), 2u);
  EXPECT_EQ(jobs.queued[0].job, second);
  EXPECT_EQ(jobs.queued[0].predicted_ms, 40);
  EXPECT_EQ(jobs.queued[1].job, third);
  EXPECT_EQ(jobs.queued[1].place.position, 1);
  EXPECT_EQ(jobs.queued[1].place.eta_ms, 140);
  EXPECT_EQ(scheduler_->jobs(1).queued.size(), 1u);
  gate_.Open();
  for (const auto& job : {first, second, third}) AwaitEnd(job);
  EXPECT_TRUE(scheduler_->jobs(10).queued.empty());
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

// Somebody in a hurry joins a job of the bulk class, and leaves another one again.
TEST_F(SchedulerTest, AQueuedJobGoesByTheMostUrgentOfItsWaiters) {
  Make();
  auto running = Block();
  std::vector<std::string> order;
  const auto submit = [&](const char* name, Priority priority) {
    auto job = Job::Create({.tenant = "t",
                            .kind = v1::JOB_KIND_BUILD,
                            .matrix = {},
                            .preconditioner = {},
                            .priority = priority},
                           {}, clock_);
    auto waiter = *job->Attach({.detach = true, .deadline = {}});
    EXPECT_TRUE(scheduler_
                    ->Submit(job, {.predicted_ms = 100},
                             [&order, name](Job&, const Assignment&) {
                               order.push_back(name);
                               return absl::OkStatus();
                             })
                    .ok());
    return job;
  };
  const auto normal = submit("normal", Priority::kNormal);
  const auto other = submit("other", Priority::kBulk);
  const auto left = submit("left", Priority::kBulk);
  const auto joined = submit("joined", Priority::kBulk);
  EXPECT_EQ(scheduler_->Where(*joined)->position, 3);
  const Job::AttachOptions in_a_hurry{
      .detach = false, .deadline = {}, .priority = Priority::kInteractive};
  const JobWaiter waiter = *joined->Attach(in_a_hurry);
  EXPECT_EQ(scheduler_->Where(*joined)->position, 0);
  // Who watches is told without asking.
  EXPECT_EQ(joined->Read(1, 10).events.back().queued().position(), 0);
  EXPECT_EQ(scheduler_->load().classes[0].queued, 1);
  left->Attach(in_a_hurry)->Leave();
  EXPECT_EQ(scheduler_->Where(*left)->position, 3);
  EXPECT_EQ(scheduler_->load().classes[0].queued, 1);
  clock_.Advance(milliseconds(100));  // as long as the running one was predicted to take
  gate_.Open();
  for (const auto& job : {normal, other, left, joined}) AwaitEnd(job);
  EXPECT_EQ(order, (std::vector<std::string>{"joined", "normal", "other", "left"}));
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
  auto bad = Submit([](Job&, const Assignment&) -> absl::Status {
    return MakeError(absl::StatusCode::kFailedPrecondition, "ZERO_DIAGONAL", "a(3, 3) is 0");
  });
  EXPECT_EQ(EndReason(bad), "ZERO_DIAGONAL");
  EXPECT_EQ(bad->Snapshot().error().code(), 9);
  auto throws = Submit([](Job&, const Assignment&) -> absl::Status { throw std::bad_alloc(); });
  EXPECT_EQ(EndReason(throws), "OUT_OF_MEMORY");
  auto odd =
      Submit([](Job&, const Assignment&) -> absl::Status { throw std::runtime_error("library"); });
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
    options.dispatch.devices = {{.name = "cpu"}, {.name = "gpu:0"}};
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

// Two workers, "cpu" and "gpu:0", on a fake clock.
class DevicesTest : public testing::Test {
 protected:
  static constexpr DeviceMask kCpu = DeviceBit(0), kGpu = DeviceBit(1);

  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
  }
  void TearDown() override {
    cpu_.Open();
    gpu_.Open();
    scheduler_.reset();
    SetLogSink(nullptr);
  }
  void Make(std::function<absl::Status(size_t device, size_t slot)> probe = nullptr,
            int64_t max_queued = 10) {
    SchedulerOptions options;
    options.dispatch.devices = {{.name = "cpu"}, {.name = "gpu:0"}};
    options.clock = &clock_;
    options.dispatch.max_queued = max_queued;
    options.probe = std::move(probe);
    options.on_lost = [this](size_t device, const absl::Status&) {
      std::lock_guard lock(mutex_);
      lost_.push_back(device);
    };
    scheduler_ = std::make_unique<Scheduler>(options);
  }
  std::shared_ptr<Job> Submit(DeviceMask devices, JobWork work, double predicted_ms = 100,
                              DeviceMask fallback = 0) {
    auto job =
        Job::Create({.tenant = "t", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}},
                    {}, clock_);
    const absl::Status status = scheduler_->Submit(
        job, {.predicted_ms = predicted_ms, .devices = devices, .fallback = fallback},
        std::move(work));
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  // Both workers are busy: the CPU's for 100 ms, the GPU's for 30.
  void BlockBoth() {
    Submit(kCpu, cpu_.Work(), 100);
    Submit(kGpu, gpu_.Work(), 30);
    cpu_.AwaitBegun();
    gpu_.AwaitBegun();
  }
  static JobWork Nothing() {
    return [](Job&, const Assignment&) { return absl::OkStatus(); };
  }
  static JobWork LoseIt() {
    return [](Job&, const Assignment&) -> absl::Status { return Lost(); };
  }
  static absl::Status Lost() {
    return MakeError(absl::StatusCode::kUnavailable, reason::kDeviceLost, "gone; send it again");
  }

  FakeClock clock_;
  Gate cpu_, gpu_;
  std::mutex mutex_;
  std::vector<size_t> lost_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(DevicesTest, AWorkerScansPastWhatItCannotRun) {
  Make();
  Submit(kCpu, cpu_.Work());
  cpu_.AwaitBegun();
  auto waits = Submit(kCpu, Nothing());
  auto runs = Submit(kGpu, Nothing());
  AwaitEnd(runs);
  EXPECT_EQ(runs->Snapshot().device(), "gpu:0");
  EXPECT_FALSE(waits->ended());
  auto either = Submit(kAnyDevice, Nothing());
  AwaitEnd(either);
  EXPECT_EQ(either->Snapshot().device(), "gpu:0");
  cpu_.Open();
  AwaitEnd(waits);
  EXPECT_EQ(waits->Snapshot().device(), "cpu");
}

TEST_F(DevicesTest, PositionsAndTimesCountWhatIsInTheWay) {
  Make();
  BlockBoth();
  auto cpu1 = Submit(kCpu, Nothing(), 40), gpu1 = Submit(kGpu, Nothing(), 20);
  auto cpu2 = Submit(kCpu, Nothing(), 10), gpu2 = Submit(kGpu, Nothing(), 10);
  auto any = Submit(kAnyDevice, Nothing(), 5);
  const auto where = [&](const std::shared_ptr<Job>& job) { return *scheduler_->Where(*job); };
  EXPECT_EQ(where(cpu1).position, 0);
  EXPECT_DOUBLE_EQ(where(cpu1).eta_ms, 100);
  EXPECT_EQ(where(gpu1).position, 0);
  EXPECT_DOUBLE_EQ(where(gpu1).eta_ms, 30);
  EXPECT_EQ(where(cpu2).position, 1);
  EXPECT_DOUBLE_EQ(where(cpu2).eta_ms, 140);
  EXPECT_EQ(where(gpu2).position, 1);
  EXPECT_DOUBLE_EQ(where(gpu2).eta_ms, 50);
  EXPECT_EQ(where(any).position, 4);
  EXPECT_DOUBLE_EQ(where(any).eta_ms, 60) << "the GPU is through first";
  EXPECT_EQ(any->Read(1, 1).events[0].queued().position(), 4);
  EXPECT_DOUBLE_EQ(any->Read(1, 1).events[0].queued().eta_ms(), 60);
  EXPECT_DOUBLE_EQ(scheduler_->load().eta_ms, 150);
  cpu_.Open();
  gpu_.Open();
  for (const auto& job : {cpu1, gpu1, cpu2, gpu2, any}) AwaitEnd(job);
}

TEST_F(DevicesTest, EachDeviceLearnsItsOwnSpeed) {
  Make();
  auto slow = Submit(kGpu, gpu_.Work(), 10);
  gpu_.AwaitBegun();
  clock_.Advance(milliseconds(50));
  gpu_.Open();
  AwaitEnd(slow);
  Gate gpu;
  Submit(kCpu, cpu_.Work(), 10);
  Submit(kGpu, gpu.Work(), 10);
  cpu_.AwaitBegun();
  gpu.AwaitBegun();
  auto a = Submit(kCpu, Nothing()), b = Submit(kGpu, Nothing());
  EXPECT_DOUBLE_EQ(scheduler_->Where(*a)->eta_ms, 10);
  EXPECT_DOUBLE_EQ(scheduler_->Where(*b)->eta_ms, 50);
  cpu_.Open();
  gpu.Open();
  AwaitEnd(a);
  AwaitEnd(b);
}

TEST_F(DevicesTest, ALostDeviceFailsWhatItAloneCouldRun) {
  Make();
  BlockBoth();
  auto loses = Submit(kGpu, LoseIt());
  auto alone = Submit(kGpu, Nothing()), falls_back = Submit(kGpu, Nothing(), 1, kCpu);
  auto either = Submit(kAnyDevice, Nothing()), other = Submit(kCpu, Nothing());
  gpu_.Open();
  AwaitEnd(loses);
  EXPECT_EQ(ReasonOf(loses->error()), "DEVICE_LOST");
  EXPECT_EQ(scheduler_->healthy(), kCpu) << "marked before the job that found out has ended";
  EXPECT_TRUE(scheduler_->DeviceStatus(0).ok());
  EXPECT_EQ(ReasonOf(scheduler_->DeviceStatus(1)), "DEVICE_LOST");
  AwaitEnd(alone);
  EXPECT_EQ(ReasonOf(alone->error()), "DEVICE_LOST");
  EXPECT_EQ(alone->state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(scheduler_->Where(*falls_back)->position, 0);
  cpu_.Open();
  for (const auto& job : {falls_back, either, other}) {
    AwaitEnd(job);
    EXPECT_EQ(job->Snapshot().device(), "cpu");
    EXPECT_TRUE(job->error().ok());
  }
  auto refused = Job::Create(
      {.tenant = "t", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}}, {}, clock_);
  EXPECT_EQ(ReasonOf(scheduler_->Submit(refused, {.devices = kGpu}, Nothing())), "DEVICE_LOST");
  EXPECT_TRUE(refused->ended());
  auto later = Submit(kGpu, Nothing(), 1, kCpu);
  AwaitEnd(later);
  EXPECT_EQ(later->Snapshot().device(), "cpu");
  std::lock_guard lock(mutex_);
  EXPECT_EQ(lost_, std::vector<size_t>{1}) << "told once";
}

TEST_F(DevicesTest, AStoppedJobThatMeetsALostDeviceMarksIt) {
  Make();
  auto job = Submit(kGpu, [](Job& own, const Assignment&) -> absl::Status {
    own.RequestStop(StopCause::kCancelled);
    return Lost();
  });
  AwaitEnd(job);
  EXPECT_EQ(ReasonOf(job->error()), "CANCELLED");
  EXPECT_EQ(scheduler_->healthy(), kCpu);
}

TEST_F(DevicesTest, IdleDevicesAreLookedAtBusyOnesAreNot) {
  std::mutex mutex;
  std::condition_variable looked;
  std::vector<int> looks(2);
  bool dead = false;
  Make([&](size_t device, size_t) -> absl::Status {
    std::lock_guard lock(mutex);
    ++looks[device];
    looked.notify_all();
    return device == 0 && dead ? Lost() : absl::OkStatus();
  });
  Submit(kGpu, gpu_.Work());
  gpu_.AwaitBegun();
  const auto pass_until = [&](auto done) {
    for (;;) {
      clock_.Advance(std::chrono::seconds(10));  // the worker may not wait yet
      std::unique_lock lock(mutex);
      if (looked.wait_for(lock, milliseconds(20), done)) return;
    }
  };
  pass_until([&] { return looks[0] >= 2; });
  {
    std::lock_guard lock(mutex);
    EXPECT_EQ(looks[1], 0) << "it works";
    dead = true;
  }
  for (DeviceMask healthy = 3; healthy != kGpu; healthy = scheduler_->healthy()) {
    clock_.Advance(std::chrono::seconds(10));
    std::this_thread::yield();
  }
  int at_death = 0;
  {
    std::lock_guard lock(mutex);
    at_death = looks[0];
  }
  gpu_.Open();
  pass_until([&] { return looks[1] >= 1; });
  std::lock_guard lock(mutex);
  EXPECT_EQ(looks[0], at_death) << "nobody looks at the dead";
}

TEST_F(DevicesTest, DrainCountsEachDevicesQueue) {
  Make();
  BlockBoth();
  auto late = Submit(kCpu, Nothing(), 10), soon = Submit(kGpu, Nothing(), 10);
  scheduler_->StartDrain(clock_.Now() + milliseconds(60));
  AwaitEnd(late);
  EXPECT_EQ(ReasonOf(late->error()), "DRAINING") << "the CPU is busy for 100 ms";
  EXPECT_FALSE(soon->ended());
  cpu_.Open();
  gpu_.Open();
  AwaitEnd(soon);
  EXPECT_TRUE(soon->error().ok());
}

}  // namespace
}  // namespace spaid::server
