#include "server/sched/job_log.h"

#include <gtest/gtest.h>

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

class JobLogTest : public testing::Test {
 protected:
  JobLog Make(JobLogOptions options = {}) {
    return JobLog(clock_.WallNow(), clock_.Now(), options);
  }
  TimePoint Now() const { return clock_.Now(); }

  FakeClock clock_;
};

TEST_F(JobLogTest, ProgressIsAtMostAPercentEach) {
  JobLog log = Make();
  for (int64_t i = 0; i <= 100'000; ++i) {
    clock_.Advance(milliseconds(1));
    log.Progress(Now(), v1::STAGE_BUILD, i, 100'000);
  }
  EXPECT_EQ(log.size(), 101);
  EXPECT_EQ(log.Get(1).progress().done(), 0);
  EXPECT_EQ(log.Get(101).progress().done(), 100'000);
}

TEST_F(JobLogTest, FastProgressIsThinnedButTheEndIsTold) {
  JobLog log = Make();
  for (int64_t i = 0; i <= 1000; ++i) log.Progress(Now(), v1::STAGE_BUILD, i, 1000);
  EXPECT_EQ(log.size(), 2);
  EXPECT_EQ(log.Get(2).progress().done(), 1000);
  // Late reports of an earlier stage add nothing, however often stages alternate.
  EXPECT_FALSE(log.Progress(Now(), v1::STAGE_PLAN, 1, 2));
  EXPECT_TRUE(log.Progress(Now(), v1::STAGE_SOLVE, 0, 1));
}

TEST_F(JobLogTest, ResidualsComeInBatches) {
  JobLog log = Make();
  clock_.Advance(milliseconds(1));
  EXPECT_TRUE(log.Residual(Now(), 0, 0, 1.0)) << "the first one is told at once";
  for (int i = 1; i <= 9; ++i) {
    clock_.Advance(milliseconds(10));
    EXPECT_FALSE(log.Residual(Now(), 0, i, 1.0 / i)) << i;
  }
  clock_.Advance(milliseconds(10));
  EXPECT_TRUE(log.Residual(Now(), 0, 10, 0.1));
  ASSERT_EQ(log.size(), 2);
  EXPECT_EQ(log.Get(1).residuals().residuals_size(), 1);
  ASSERT_EQ(log.Get(2).residuals().residuals_size(), 10);
  EXPECT_EQ(log.Get(2).residuals().residuals(0).iteration(), 1);
  EXPECT_EQ(log.Get(2).residuals().residuals(9).relative_residual(), 0.1);
  EXPECT_EQ(log.Get(2).residuals().stride(), 0);
}

// However fast a solve iterates, and starts with other right-hand sides.
TEST_F(JobLogTest, ResidualEventsComeAtABoundedRate) {
  JobLog log = Make();
  constexpr int kSeconds = 3, kEach = 50'000;
  for (int i = 0; i < kSeconds * kEach; ++i) {
    clock_.Advance(std::chrono::microseconds(1'000'000 / kEach));
    log.Residual(Now(), i / 100, i % 100, 1.0);
    if (i % 100 == 99) log.Progress(Now(), v1::STAGE_SOLVE, i / 100, kSeconds * kEach / 100);
  }
  log.Flush(Now(), false);
  std::vector<int> a_second(kSeconds + 1);
  const int64_t start =
      std::chrono::duration_cast<std::chrono::seconds>(clock_.WallNow().time_since_epoch())
          .count() -
      kSeconds;
  for (int64_t e = 1; e <= log.size(); ++e) {
    const v1::JobEvent event = log.Get(e);
    if (event.has_residuals()) ++a_second.at(static_cast<size_t>(event.time().seconds() - start));
  }
  for (const int count : a_second) EXPECT_LE(count, 11);
  EXPECT_GE(a_second[1], 9);
}

// The largest event that there can be is a message that gRPC takes.
TEST_F(JobLogTest, TheWholeHistoryInOneEventIsUnderFourMegabytes) {
  JobLog log = Make();
  log.Residual(Now(), 1023, 0, 1.0);
  for (int i = 1; i < 100'000; ++i) log.Residual(Now(), 1023, INT32_MAX - i, 1e-300);
  log.Flush(Now(), false);
  ASSERT_EQ(log.size(), 2);
  EXPECT_EQ(log.Get(2).residuals().residuals_size(), 99'999);
  EXPECT_LT(log.Get(2).ByteSizeLong(), size_t{3} << 20);
}

TEST_F(JobLogTest, OtherEventsComeBehindTheResidualsBeforeThem) {
  JobLog log = Make();
  log.Residual(Now(), 0, 0, 1);
  v1::JobEvent finished;
  finished.mutable_finished();
  log.Add(Now(), finished);
  ASSERT_EQ(log.size(), 2);
  EXPECT_TRUE(log.Get(1).has_residuals());
  EXPECT_TRUE(log.Get(2).has_finished());
  EXPECT_EQ(log.Get(2).number(), 2);
}

TEST_F(JobLogTest, ALongHistoryIsThinnedEvenlyAndSaysSo) {
  JobLog log = Make({.max_points = 1000});
  for (int i = 0; i < 10'000; ++i) log.Residual(Now(), 0, i, 1.0);
  log.Flush(Now(), false);
  std::vector<int> iterations;
  for (int64_t e = 1; e <= log.size(); ++e) {
    const v1::JobEvent event = log.Get(e);
    EXPECT_EQ(event.number(), e);
    EXPECT_EQ(event.residuals().stride(), 16);
    for (const auto& r : event.residuals().residuals()) iterations.push_back(r.iteration());
  }
  ASSERT_EQ(iterations.size(), 625u);  // 0, 16, 32, …
  for (size_t i = 0; i < iterations.size(); ++i) {
    EXPECT_EQ(iterations[i], static_cast<int>(16 * i));
  }
  EXPECT_LT(log.bytes(), 200'000);
}

TEST_F(JobLogTest, TheNumberOfEventsGrowsWithTheLogarithmOfTime) {
  JobLog log = Make();
  int iteration = 0;
  const auto run = [&](std::chrono::seconds time) {
    for (int64_t i = 0; i < time.count(); ++i) {
      clock_.Advance(std::chrono::seconds(1));
      log.Residual(Now(), 0, iteration++, 1);
    }
  };
  run(std::chrono::hours(1));
  const int64_t hour = log.size();
  run(std::chrono::hours(23));
  EXPECT_LT(log.size(), 3 * hour);
}

TEST_F(JobLogTest, EventsHaveTheTimeOfTheClock) {
  JobLog log = Make();
  const auto start =
      std::chrono::duration_cast<std::chrono::seconds>(clock_.WallNow().time_since_epoch());
  clock_.Advance(milliseconds(2500));
  log.Progress(Now(), v1::STAGE_BUILD, 1, 2);
  EXPECT_EQ(log.Get(1).time().seconds(), start.count() + 2);
  EXPECT_EQ(log.Get(1).time().nanos(), 500'000'000);
}

TEST_F(JobLogTest, ACurveIsOneRightHandSidesAndBounded) {
  JobLog log = Make();
  EXPECT_TRUE(log.Curve(0, 10).empty());
  for (int i = 0; i <= 1000; ++i) {
    log.Residual(Now(), 0, i, 1.0 / (1 + i));
    log.Residual(Now(), 1, i, 2.0);
  }
  const auto whole = log.Curve(0, 5000);
  ASSERT_EQ(whole.size(), 1001u);
  EXPECT_EQ(whole[7].iteration, 7);
  EXPECT_EQ(whole[7].relative_residual, 1.0 / 8);
  const auto thinned = log.Curve(0, 5);
  ASSERT_EQ(thinned.size(), 5u);
  for (size_t k = 0; k < 5; ++k) EXPECT_EQ(thinned[k].iteration, 250 * static_cast<int>(k));
  EXPECT_EQ(log.Curve(1, 2).back().iteration, 1000);
  EXPECT_TRUE(log.Curve(2, 10).empty());
}

TEST_F(JobLogTest, MarksAreTheBatchesOfTheFirstRightHandSide) {
  JobLog log = Make();
  const WallTime start = clock_.WallNow();
  log.Progress(Now(), v1::STAGE_BUILD, 1, 2);
  EXPECT_TRUE(log.Marks(16).empty());
  for (int i = 0; i <= 10; ++i) {
    log.Residual(Now(), 0, i, 1.0 / (1 + i));
    log.Residual(Now(), 1, i, 2.0);
    clock_.Advance(milliseconds(50));
  }
  log.Flush(Now(), /*only_if_due=*/false);
  const auto marks = log.Marks(16);
  ASSERT_EQ(marks.size(), 6u) << "the first at once, then one in two";
  EXPECT_EQ(marks[0].iteration, 0);
  EXPECT_EQ(marks[0].time, start);
  EXPECT_EQ(marks[1].iteration, 2);
  EXPECT_EQ(marks[1].time, start + milliseconds(100));
  EXPECT_EQ(marks[1].relative_residual, 1.0 / 3);
  EXPECT_EQ(marks.back().iteration, 10);
  EXPECT_EQ(marks.back().time, start + milliseconds(500));
  const auto few = log.Marks(3);
  ASSERT_EQ(few.size(), 3u);
  EXPECT_EQ(few[0].iteration, 0);
  EXPECT_EQ(few[2].iteration, 10);
}

}  // namespace
}  // namespace spaid::server
