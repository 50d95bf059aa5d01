#include "server/sched/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/base/status.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

struct Answer : JobResult {
  explicit Answer(bool* alive) : alive_(alive) { *alive_ = true; }
  ~Answer() override { *alive_ = false; }
  bool* alive_;
};

struct Promise : JobPromise {
  void Fulfilled() override { ++fulfilled; }
  int fulfilled = 0;
};

class JobTest : public testing::Test {
 protected:
  std::shared_ptr<Job> Make(v1::JobKind kind = v1::JOB_KIND_BUILD) {
    return Job::Create({.tenant = "t", .kind = kind, .matrix = "matrices/1", .preconditioner = {}},
                       {}, clock_);
  }
  FakeClock clock_;
};

TEST_F(JobTest, ALifeInEvents) {
  auto job = Make();
  int news = 0;
  auto subscription = job->Subscribe(1, [&] { ++news; });
  EXPECT_EQ(news, 0);
  job->ReportQueued(2, 30);
  clock_.Advance(milliseconds(40));
  EXPECT_TRUE(job->Start({"cpu"}));
  job->ReportProgress(v1::STAGE_BUILD, 5, 10);
  v1::BuildQuality quality;
  quality.set_density(2);
  job->ReportQuality(quality);
  job->SetPreconditioner("preconditioners/9");
  clock_.Advance(milliseconds(60));
  EXPECT_TRUE(job->Finish(absl::OkStatus()));
  EXPECT_EQ(news, 5);

  const JobEvents all = job->Read(0, 100);
  ASSERT_EQ(all.events.size(), 5u);
  EXPECT_TRUE(all.end);
  EXPECT_EQ(all.next, 6);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(all.events[i].number(), static_cast<int64_t>(i) + 1);
  EXPECT_EQ(all.events[0].queued().position(), 2);
  EXPECT_EQ(all.events[0].queued().job(), job->name());
  EXPECT_EQ(all.events[1].started().device(), "cpu");
  EXPECT_EQ(all.events[1].started().queue_ms(), 40);
  EXPECT_EQ(all.events[2].progress().done(), 5);
  EXPECT_EQ(all.events[3].quality().density(), 2);
  const v1::JobFinished& finished = all.events[4].finished();
  EXPECT_EQ(finished.job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(finished.job().preconditioner(), "preconditioners/9");
  EXPECT_EQ(finished.job().event_count(), 5);
  EXPECT_EQ(finished.timings().total_ms(), 100);
  EXPECT_EQ(job->Snapshot().SerializeAsString(), finished.job().SerializeAsString());
}

TEST_F(JobTest, ReadsInPiecesFromAnyNumber) {
  auto job = Make();
  job->ReportQueued(0, 0);
  job->Start({"cpu"});
  JobEvents part = job->Read(1, 1);
  EXPECT_EQ(part.events.size(), 1u);
  EXPECT_FALSE(part.end);
  part = job->Read(part.next, 10);
  EXPECT_EQ(part.events[0].number(), 2);
  EXPECT_TRUE(job->Read(3, 10).events.empty());
  job->Finish(absl::OkStatus());
  EXPECT_TRUE(job->Read(3, 10).end);
  EXPECT_TRUE(job->Read(99, 10).end) << "past the end is the end, not a wait for ever";
}

TEST_F(JobTest, ALateSubscriberIsToldAtOnce) {
  auto job = Make();
  job->ReportQueued(0, 0);
  int news = 0;
  auto one = job->Subscribe(1, [&] { ++news; });
  EXPECT_EQ(news, 1);
  auto two = job->Subscribe(2, [&] { news += 10; });
  EXPECT_EQ(news, 1) << "nothing from 2 on yet";
  one.Cancel();
  job->Start({"cpu"});
  EXPECT_EQ(news, 11);
}

TEST_F(JobTest, ACallbackMayUseTheJob) {
  auto job = Make();
  std::vector<int64_t> read;
  int64_t next = 1;
  auto subscription = job->Subscribe(1, [&] {
    JobEvents events = job->Read(next, 10);
    next = events.next;
    for (const auto& event : events.events) read.push_back(event.number());
  });
  job->ReportQueued(0, 0);
  job->Start({"cpu"});
  job->Finish(absl::OkStatus());
  EXPECT_THAT(read, testing::ElementsAre(1, 2, 3));
}

TEST_F(JobTest, TheLastWaiterLeavingStopsIt) {
  auto job = Make();
  StopCause told = StopCause::kNone;
  job->Start({"cpu"});
  job->SetStopHook([&](StopCause cause) { told = cause; });
  auto a = job->Attach({}), b = job->Attach({});
  a.reset();
  EXPECT_EQ(told, StopCause::kNone);
  b.reset();
  EXPECT_EQ(told, StopCause::kAbandoned);
  EXPECT_FALSE(job->Attach({})) << "nobody joins a job that is being abandoned";
  EXPECT_FALSE(job->RequestStop(StopCause::kCancelled)) << "the first cause stays";
  job->Finish(StopError(job->stop_cause()));
  EXPECT_EQ(job->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job->Snapshot().error().reason(), "ABANDONED");
}

TEST_F(JobTest, ADetachedJobGoesOn) {
  auto job = Make();
  auto a = job->Attach({.detach = false, .deadline = {}});
  auto b = job->Attach({.detach = true, .deadline = {}});
  b.reset();
  a.reset();
  EXPECT_EQ(job->stop_cause(), StopCause::kNone);
  EXPECT_TRUE(job->Start({"cpu"}));
}

TEST_F(JobTest, AHookSetAfterTheStopIsCalledAtOnce) {
  auto job = Make();
  job->Start({"cpu"});
  job->RequestStop(StopCause::kMaxRun);
  StopCause told = StopCause::kNone;
  job->SetStopHook([&](StopCause cause) { told = cause; });
  EXPECT_EQ(told, StopCause::kMaxRun);
}

TEST_F(JobTest, StopBeforeStartMeansNoStart) {
  auto job = Make();
  EXPECT_TRUE(job->RequestStop(StopCause::kCancelled));
  EXPECT_FALSE(job->Start({"cpu"}));
  EXPECT_TRUE(job->Finish(StopError(StopCause::kCancelled)));
  EXPECT_FALSE(job->Finish(absl::OkStatus())) << "it ended before";
  EXPECT_FALSE(job->RequestStop(StopCause::kCancelled));
  EXPECT_EQ(job->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(job->Snapshot().has_start_time());
}

TEST_F(JobTest, TheDeadlineIsThatOfTheMostPatient) {
  auto job = Make();
  const TimePoint soon = clock_.Now() + milliseconds(10), late = clock_.Now() + milliseconds(20);
  auto a = job->Attach({.detach = false, .deadline = late});
  auto b = job->Attach({.detach = false, .deadline = soon});
  EXPECT_EQ(job->deadline(), late);
  auto c = job->Attach({});
  EXPECT_FALSE(job->deadline());
}

TEST_F(JobTest, TheResultLivesAsLongAsSomebodyWaits) {
  bool alive = false;
  auto job = Make();
  auto waiter = job->Attach({});
  job->Start({"cpu"});
  job->SetResult(std::make_shared<Answer>(&alive));
  EXPECT_FALSE(job->result()) << "not before the end";
  job->Finish(absl::OkStatus());
  EXPECT_TRUE(job->result());
  waiter->Leave();
  EXPECT_FALSE(alive);
  EXPECT_FALSE(job->result());

  auto detached = Make();
  detached->Attach({.detach = true, .deadline = {}})->Leave();
  detached->Start({"cpu"});
  detached->SetResult(std::make_shared<Answer>(&alive));
  detached->Finish(absl::OkStatus());
  EXPECT_FALSE(alive) << "nobody waits, nothing is kept";
}

// Who reads it holds it; the job lets go of it in the end, however that comes.
TEST_F(JobTest, APartialResultIsThereWhileTheWorkGoesOn) {
  for (const absl::Status& end : {absl::OkStatus(), absl::InternalError("broken")}) {
    bool alive = false, late_alive = false;
    auto job = Make();
    int news = 0;
    auto subscription = job->Subscribe(1, [&] { ++news; });
    EXPECT_EQ(job->partial(), nullptr);
    ASSERT_TRUE(job->Start({"cpu"}));
    job->SetPartial(std::make_shared<Answer>(&alive));
    EXPECT_EQ(news, 1);
    job->TellPartial();
    EXPECT_EQ(news, 2);
    EXPECT_EQ(job->Read(1, 100).events.size(), 1u) << "no event comes of it";
    auto held = job->partial();
    EXPECT_NE(held, nullptr);
    EXPECT_TRUE(job->Finish(end));
    EXPECT_EQ(job->partial(), nullptr);
    EXPECT_TRUE(alive);
    held.reset();
    EXPECT_FALSE(alive);
    job->SetPartial(std::make_shared<Answer>(&late_alive));
    EXPECT_FALSE(late_alive);
  }
}

TEST_F(JobTest, ASolvesResultIsKeptUntilItIsDeliveredOrDropped) {
  bool alive = false;
  for (const bool detach : {false, true}) {
    auto job = Make(v1::JOB_KIND_SOLVE);
    auto waiter = job->Attach({.detach = detach, .deadline = {}});
    job->Start({"cpu"});
    job->SetResult(std::make_shared<Answer>(&alive));
    EXPECT_FALSE(job->DropResult()) << "not before the end";
    job->Finish(absl::OkStatus());
    EXPECT_FALSE(job->DropResult()) << "somebody waits for it";
    waiter->Leave();
    EXPECT_TRUE(alive);
    {
      auto reader = job->result();
      EXPECT_FALSE(job->DropResult()) << "somebody reads it";
    }
    EXPECT_TRUE(job->DropResult());
    EXPECT_FALSE(alive);
    EXPECT_FALSE(job->DropResult());
  }
  auto delivered = Make(v1::JOB_KIND_SOLVE);
  auto waiter = delivered->Attach({});
  delivered->Start({"cpu"});
  delivered->SetResult(std::make_shared<Answer>(&alive));
  delivered->Finish(absl::OkStatus());
  delivered->Delivered();
  waiter->Leave();
  EXPECT_FALSE(alive);
}

TEST_F(JobTest, ABuildsPromiseIsFulfilledByItsEnd) {
  for (const absl::Status& end : {absl::OkStatus(), absl::InternalError("no")}) {
    auto job = Make();
    auto promise = std::make_shared<Promise>();
    job->SetPromise(promise);
    EXPECT_TRUE(job->promised());
    job->Start({"cpu"});
    EXPECT_EQ(promise->fulfilled, 0);
    bool alive = false;
    auto waiter = job->Attach({.detach = true, .deadline = {}});
    if (end.ok()) job->SetResult(std::make_shared<Answer>(&alive));
    job->Finish(end);
    EXPECT_EQ(promise->fulfilled, 1);
    EXPECT_FALSE(job->promised());
  }
  auto late = Make();
  late->Finish(absl::OkStatus());
  auto promise = std::make_shared<Promise>();
  late->SetPromise(promise);
  EXPECT_EQ(promise->fulfilled, 1) << "it had ended before it was promised";
}

TEST_F(JobTest, ASolvesPromiseLastsUntilItsResultWasFetchedOrDropped) {
  bool alive = false;
  const auto solved = [&](std::shared_ptr<Promise> promise) {
    auto job = Make(v1::JOB_KIND_SOLVE);
    job->SetPromise(std::move(promise));
    (void)job->Attach({.detach = true, .deadline = {}});
    job->Start({"cpu"});
    job->SetResult(std::make_shared<Answer>(&alive));
    job->Finish(absl::OkStatus());
    return job;
  };
  for (const auto& end : {+[](Job& job) { job.Delivered(); }, +[](Job& job) { job.Fulfil(); },
                          +[](Job& job) { (void)job.DropResult(); }}) {
    auto promise = std::make_shared<Promise>();
    auto job = solved(promise);
    EXPECT_EQ(promise->fulfilled, 0);
    end(*job);
    EXPECT_EQ(promise->fulfilled, 1);
  }
  auto promise = std::make_shared<Promise>();
  solved(promise);  // as the process ends
  EXPECT_EQ(promise->fulfilled, 0);
}

TEST_F(JobTest, AJobThatADrainStopsIsStillPromised) {
  for (const StopCause cause : {StopCause::kDrain, StopCause::kCancelled, StopCause::kMaxRun}) {
    auto job = Make(v1::JOB_KIND_SOLVE);
    auto promise = std::make_shared<Promise>();
    job->SetPromise(promise);
    job->Start({"cpu"});
    job->RequestStop(cause);
    job->Finish(StopError(cause));
    EXPECT_EQ(promise->fulfilled, cause == StopCause::kDrain ? 0 : 1);
    job->Fulfil();
    EXPECT_EQ(job->promised(), cause == StopCause::kDrain);
  }
}

TEST_F(JobTest, ACancelledSolveKeepsItsOutcomes) {
  auto job = Make(v1::JOB_KIND_SOLVE);
  job->Start({"cpu"});
  job->RequestStop(StopCause::kCancelled);
  v1::RhsOutcome outcome;
  outcome.set_outcome(v1::OUTCOME_CANCELLED);
  job->SetOutcomes({outcome});
  job->Finish(absl::OkStatus());
  EXPECT_EQ(job->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(job->Snapshot().has_error());
  EXPECT_EQ(job->Snapshot().outcomes_size(), 1);
}

TEST_F(JobTest, ASolveThatConvergedInSpiteOfTheStopSucceeded) {
  auto job = Make(v1::JOB_KIND_SOLVE);
  job->Start({"cpu"});
  job->RequestStop(StopCause::kCancelled);
  v1::RhsOutcome outcome;
  outcome.set_outcome(v1::OUTCOME_CONVERGED);
  job->SetOutcomes({outcome});
  job->Finish(absl::OkStatus());
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobTest, ResidualsThatWaitedAreShownToWhoLooks) {
  auto job = Make(v1::JOB_KIND_SOLVE);
  job->Start({"cpu"});
  job->ReportResidual(0, 0, 1.0);
  EXPECT_EQ(job->Read(2, 10).events.size(), 1u) << "the first one does not wait";
  job->ReportResidual(0, 1, 0.5);
  EXPECT_EQ(job->Read(3, 10).events.size(), 0u);
  clock_.Advance(milliseconds(100));
  ASSERT_EQ(job->Read(3, 10).events.size(), 1u);
  EXPECT_EQ(job->Read(3, 10).events[0].residuals().residuals_size(), 1);
}

TEST_F(JobTest, NothingIsReportedAfterTheEnd) {
  auto job = Make();
  job->Start({"cpu"});
  job->Finish(absl::OkStatus());
  const int64_t count = job->Snapshot().event_count();
  job->ReportProgress(v1::STAGE_BUILD, 1, 2);
  job->ReportResidual(0, 0, 1);
  job->ReportQueued(0, 0);
  job->ReportQuality({});
  EXPECT_EQ(job->Snapshot().event_count(), count);
}

TEST_F(JobTest, TheHeartbeatHasNoNumber) {
  auto job = Make();
  v1::JobEvent beat = job->Heartbeat(3, 120);
  EXPECT_EQ(beat.number(), 0);
  EXPECT_EQ(beat.heartbeat().position(), 3);
  EXPECT_EQ(beat.heartbeat().state(), v1::JOB_STATE_QUEUED);
  job->Start({"cpu"});
  EXPECT_EQ(job->Heartbeat(3, 120).heartbeat().position(), 0);
}

// The class of a job is the highest of those who want it: it changes as they come and go.
TEST_F(JobTest, ThePriorityIsThatOfTheMostUrgent) {
  auto job = Job::Create({.tenant = "t",
                          .kind = v1::JOB_KIND_BUILD,
                          .matrix = {},
                          .preconditioner = {},
                          .priority = Priority::kBulk},
                         {}, clock_);
  std::vector<Priority> told;
  job->SetListener([&] { told.push_back(job->priority()); });
  EXPECT_EQ(job->priority(), Priority::kBulk);
  auto own = *job->Attach({.detach = false, .deadline = {}});
  auto urgent = *job->Attach({.detach = false, .deadline = {}, .priority = Priority::kInteractive});
  EXPECT_EQ(job->Snapshot().priority(), v1::PRIORITY_INTERACTIVE);
  auto normal = *job->Attach({.detach = false, .deadline = {}, .priority = Priority::kNormal});
  JobWaiter taken_over;
  taken_over = std::move(urgent);
  taken_over.Leave();
  EXPECT_EQ(job->priority(), Priority::kNormal);
  // Who detaches it wants it still when they have gone.
  auto detached = *job->Attach({.detach = true, .deadline = {}, .priority = Priority::kNormal});
  detached.Leave();
  normal.Leave();
  own.Leave();
  EXPECT_EQ(job->priority(), Priority::kNormal);
  EXPECT_EQ(told, (std::vector<Priority>{Priority::kInteractive, Priority::kNormal}));
  auto last = *job->Attach({.detach = false, .deadline = {}, .priority = Priority::kInteractive});
  job->Start({"cpu"});
  job->Finish(absl::OkStatus());
  last.Leave();
  EXPECT_EQ(job->Snapshot().priority(), v1::PRIORITY_INTERACTIVE) << "as it ended";
  EXPECT_EQ(told.size(), 3u);
}

TEST(StopErrorTest, EveryCauseHasItsReason) {
  const std::pair<StopCause, const char*> expected[] = {
      {StopCause::kCancelled, "CANCELLED"}, {StopCause::kAbandoned, "ABANDONED"},
      {StopCause::kMaxQueue, "MAX_QUEUE"},  {StopCause::kMaxRun, "MAX_RUN"},
      {StopCause::kDeadline, "DEADLINE"},   {StopCause::kDrain, "DRAINING"}};
  for (const auto& [cause, why] : expected) EXPECT_EQ(ReasonOf(StopError(cause)), why);
  EXPECT_TRUE(StopError(StopCause::kNone).ok());
  EXPECT_TRUE(RetryDelayOf(StopError(StopCause::kDrain)));
}

}  // namespace
}  // namespace spaid::server
