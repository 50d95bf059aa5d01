#include "server/sched/coalescer.h"

#include <gtest/gtest.h>

#include "server/base/status.h"

namespace spaid::server {
namespace {

class JobCoalescerTest : public testing::Test {
 protected:
  absl::StatusOr<JobCoalescer::Ticket> Join(const std::string& key, bool existing = false,
                                            Priority priority = Priority::kNormal) {
    const Job::AttachOptions attach{.detach = false, .deadline = {}, .priority = priority};
    return coalescer_.Join(
        key, attach, [&] { return existing; },
        [&]() -> absl::StatusOr<JobCoalescer::Ticket> {
          ++made_;
          JobCoalescer::Ticket ticket;
          ticket.job = Job::Create({.tenant = "t",
                                    .kind = v1::JOB_KIND_BUILD,
                                    .matrix = {},
                                    .preconditioner = {},
                                    .priority = priority},
                                   {}, RealClock());
          ticket.waiter = *ticket.job->Attach(attach);
          return ticket;
        });
  }
  JobCoalescer coalescer_;
  int made_ = 0;
};

TEST_F(JobCoalescerTest, TheSameKeyIsOneJob) {
  auto a = Join("k"), b = Join("k"), c = Join("other");
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(a->job, b->job);
  EXPECT_FALSE(a->shared);
  EXPECT_TRUE(b->shared);
  EXPECT_NE(a->job, c->job);
  // Cancelled only when the last of them leaves.
  a->waiter.Leave();
  EXPECT_EQ(b->job->stop_cause(), StopCause::kNone);
  b->waiter.Leave();
  EXPECT_EQ(b->job->stop_cause(), StopCause::kAbandoned);
}

TEST_F(JobCoalescerTest, AnAbandonedOrEndedJobIsNotJoined) {
  auto a = Join("k");
  a->waiter.Leave();
  auto b = Join("k");
  EXPECT_EQ(made_, 2);
  EXPECT_NE(a->job, b->job);
  b->job->Start({"cpu"});
  b->job->Finish(absl::OkStatus());
  EXPECT_FALSE(Join("k", /*existing=*/true)->job) << "its result is there";
  EXPECT_EQ(made_, 2);
}

TEST_F(JobCoalescerTest, TheJobIsAsUrgentAsTheMostUrgentOfThem) {
  auto patient = Join("k", false, Priority::kBulk);
  auto urgent = Join("k", false, Priority::kInteractive);
  auto normal = Join("k", false, Priority::kNormal);
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(patient->job->priority(), Priority::kInteractive);
  urgent->waiter.Leave();
  EXPECT_EQ(patient->job->priority(), Priority::kNormal);
}

TEST_F(JobCoalescerTest, ARefusalIsNobodysJob) {
  const auto refused = coalescer_.Join(
      "k", {}, [] { return false; },
      []() -> absl::StatusOr<JobCoalescer::Ticket> {
        return MakeError(absl::StatusCode::kResourceExhausted, reason::kQueueFull, "full");
      });
  EXPECT_EQ(ReasonOf(refused.status()), "QUEUE_FULL");
  EXPECT_FALSE(Join("k")->shared);
}

TEST_F(JobCoalescerTest, ManyKeysDoNotPileUp) {
  for (int i = 0; i < 1000; ++i) {
    auto ticket = Join(std::to_string(i));
    ticket->job->Start({"cpu"});
    ticket->job->Finish(absl::OkStatus());
  }
  EXPECT_LE(coalescer_.size(), 128u);
}

}  // namespace
}  // namespace spaid::server
