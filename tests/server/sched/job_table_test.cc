#include "server/sched/job_table.h"

#include <gtest/gtest.h>

#include "server/base/status.h"
#include "server/sched/job.h"

namespace spaid::server {
namespace {

class JobTableTest : public testing::Test {
 protected:
  std::shared_ptr<Job> Make(const std::string& tenant = "t") {
    return Job::Create(
        {.tenant = tenant, .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}}, {},
        clock_);
  }
  std::shared_ptr<Job> Ended(JobTable& table, const std::string& tenant = "t") {
    auto job = Make(tenant);
    table.Add(job);
    job->Start({"cpu"});
    job->Finish(absl::OkStatus());
    table.Ended(job);
    return job;
  }
  FakeClock clock_;
};

TEST_F(JobTableTest, FindsATenantsOwn) {
  JobTable table({.clock = &clock_});
  auto job = Make();
  table.Add(job);
  EXPECT_EQ(*table.Get("t", job->name()), job);
  EXPECT_EQ(ReasonOf(table.Get("other", job->name()).status()), "HANDLE_UNKNOWN");
  EXPECT_EQ(ReasonOf(table.Get("t", "jobs/none").status()), "HANDLE_UNKNOWN");
  table.Remove(*job);
  EXPECT_FALSE(table.Get("t", job->name()).ok());
  EXPECT_EQ(table.size(), 0);
}

TEST_F(JobTableTest, AJobThatIsForgottenIsNotPromisedAnyMore) {
  struct Promise : JobPromise {
    void Fulfilled() override { fulfilled = true; }
    bool fulfilled = false;
  };
  JobTable table({.max_ended = 1, .clock = &clock_});
  auto job = Job::Create(
      {.tenant = "t", .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}}, {}, clock_);
  const auto promise = std::make_shared<Promise>();
  job->SetPromise(promise);
  table.Add(job);
  (void)job->Attach({.detach = true, .deadline = {}});
  job->Start({"cpu"});
  job->SetResult(std::make_shared<JobResult>());
  job->Finish(absl::OkStatus());
  table.Ended(job);
  EXPECT_FALSE(promise->fulfilled);
  Ended(table);
  EXPECT_TRUE(promise->fulfilled);
}

TEST_F(JobTableTest, KeepsEndedJobsByCount) {
  JobTable table({.max_ended = 2, .clock = &clock_});
  auto live = Make();
  table.Add(live);
  auto a = Ended(table), b = Ended(table), c = Ended(table);
  EXPECT_FALSE(table.Get("t", a->name()).ok());
  EXPECT_TRUE(table.Get("t", b->name()).ok());
  EXPECT_TRUE(table.Get("t", c->name()).ok());
  EXPECT_TRUE(table.Get("t", live->name()).ok()) << "live jobs are never dropped";
}

TEST_F(JobTableTest, AFloodOfEndedJobsDropsItsOwn) {
  JobTable table({.max_ended = 4, .clock = &clock_});
  auto a = Ended(table, "quiet"), b = Ended(table, "quiet"), c = Ended(table, "quiet");
  for (int i = 0; i < 20; ++i) Ended(table, "flood");
  EXPECT_FALSE(table.Get("quiet", a->name()).ok()) << "one over its half";
  EXPECT_TRUE(table.Get("quiet", b->name()).ok());
  EXPECT_TRUE(table.Get("quiet", c->name()).ok());
  EXPECT_EQ(table.size(), 4);
}

TEST_F(JobTableTest, KeepsEndedJobsByAge) {
  JobTable table({.max_age = std::chrono::seconds(60), .clock = &clock_});
  auto job = Ended(table);
  clock_.Advance(std::chrono::seconds(60));
  EXPECT_TRUE(table.Get("t", job->name()).ok());
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_FALSE(table.Get("t", job->name()).ok());
}

TEST_F(JobTableTest, KeepsEndedJobsByBytes) {
  JobTable table({.max_ended_bytes = 20'000, .clock = &clock_});
  auto small = Ended(table);
  auto large = Make();
  table.Add(large);
  large->Start({"cpu"});
  for (int i = 0; i < 2000; ++i) large->ReportResidual(0, i, 1);
  large->Finish(absl::OkStatus());
  ASSERT_GT(large->bytes(), 20'000);
  table.Ended(large);
  EXPECT_EQ(table.size(), 0) << "oldest first, until the bound holds";
}

TEST_F(JobTableTest, CountsTheOutcomesOfAJob) {
  JobTable table({.clock = &clock_});
  Ended(table);
  const int64_t before = table.ended_bytes();
  auto job = Make();
  table.Add(job);
  job->Start({"cpu"});
  const int64_t live = job->bytes();
  v1::RhsOutcome outcome;
  outcome.set_detail(std::string(1000, 'd'));
  job->SetOutcomes(std::vector<v1::RhsOutcome>(100, outcome));
  EXPECT_GE(job->bytes() - live, 100'000);
  job->Finish(absl::OkStatus());
  table.Ended(job);
  EXPECT_GE(table.ended_bytes() - before, 200'000) << "and those of its finished event";
}

TEST_F(JobTableTest, ARemovedJobThatEndsIsIgnored) {
  JobTable table({.clock = &clock_});
  auto job = Make();
  table.Ended(job);
  EXPECT_EQ(table.size(), 0);
}

TEST_F(JobTableTest, PagesNewestFirstByState) {
  JobTable table({.clock = &clock_});
  std::vector<std::shared_ptr<Job>> made;
  for (int i = 0; i < 6; ++i) {
    if (i % 2) {
      made.push_back(Ended(table));
    } else {
      made.push_back(Make());
      table.Add(made.back());
    }
  }
  Ended(table, "other");
  auto first = table.List("t", {.state = v1::JOB_STATE_SUCCEEDED}, *ParsePage("l", 2, ""));
  ASSERT_EQ(first.jobs.size(), 2u);
  EXPECT_EQ(first.jobs[0], made[5]);
  EXPECT_EQ(first.jobs[1], made[3]);
  auto second =
      table.List("t", {.state = v1::JOB_STATE_SUCCEEDED}, *ParsePage("l", 2, first.next_token));
  ASSERT_EQ(second.jobs.size(), 1u);
  EXPECT_EQ(second.jobs[0], made[1]);
  EXPECT_EQ(second.next_token, "");
  EXPECT_EQ(table.List("t", {.state = v1::JOB_STATE_UNSPECIFIED}, {}).jobs.size(), 6u);
  EXPECT_TRUE(table.List("nobody", {.state = v1::JOB_STATE_UNSPECIFIED}, {}).jobs.empty());
}

TEST_F(JobTableTest, TellsWhatEndedLastOfAllTenants) {
  JobTable table({.max_age = std::chrono::seconds(60), .clock = &clock_});
  EXPECT_TRUE(table.LastEnded(10).empty());
  auto first = Ended(table, "a"), second = Ended(table, "b");
  auto live = Make();
  table.Add(live);
  EXPECT_EQ(table.LastEnded(10), (std::vector{second, first}));
  EXPECT_EQ(table.LastEnded(1), (std::vector{second}));
  clock_.Advance(std::chrono::seconds(61));
  EXPECT_TRUE(table.LastEnded(10).empty()) << "what is too old is not told";
}

}  // namespace
}  // namespace spaid::server
