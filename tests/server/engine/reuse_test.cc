// Solves that name the M of an earlier A: kept, rebuilt, grown anew, by counts of iterations. The
// fake's solves (SolveByM) take 10 iterations with A's own M, c times as many with that of A / c
// (of A c for c < 1), and lose as much of the residual in each.
#include "server/engine/reuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/engine/reusing_solve.h"
#include "tests/server/engine/job_factory_fixture.h"
#include "tests/server/engine/placement_bench.h"
#include "tests/server/engine/solve_by_m.h"

namespace spaid::server {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(AllowedIterationsTest, AreRoundedUpAndBounded) {
  EXPECT_EQ(AllowedIterations(1.5, 10, 1000), 15);
  EXPECT_EQ(AllowedIterations(1.5, 11, 1000), 17);
  EXPECT_EQ(AllowedIterations(1.5, 1, 1000), 2);
  EXPECT_EQ(AllowedIterations(1, 10, 1000), 10);
  EXPECT_EQ(AllowedIterations(1.1, 10, 1000), 11) << "11.000000000000002 in fp64";
  EXPECT_EQ(AllowedIterations(1.5, 10, 12), 12);
  EXPECT_EQ(AllowedIterations(std::numeric_limits<double>::max(), INT32_MAX, 7), 7);
}

SolveTerms Terms(double rtol, bool guess = false) {
  return SolveTerms::Of({.method = kernels::Method::kCg, .rtol = rtol}, guess);
}

TEST(FirstCountsTest, KeepTheFirstOfEachTerms) {
  FirstCounts counts;
  EXPECT_FALSE(counts.Find(Terms(1e-8)));
  counts.Record(Terms(1e-8), 0);
  EXPECT_FALSE(counts.Find(Terms(1e-8))) << "nothing was iterated";
  counts.Record(Terms(1e-8), 10);
  counts.Record(Terms(1e-8), 20);
  EXPECT_EQ(counts.Find(Terms(1e-8)), 10);
  EXPECT_FALSE(counts.Find(Terms(1e-6)));
  EXPECT_EQ(counts.Find(Terms(1e-8, /*guess=*/true)), 10) << "until there is one with a guess";
  counts.Record(Terms(1e-8, /*guess=*/true), 4);
  EXPECT_EQ(counts.Find(Terms(1e-8, /*guess=*/true)), 4);
  EXPECT_EQ(counts.Find(Terms(1e-8)), 10);
  FirstCounts guessed;
  guessed.Record(Terms(1e-8, /*guess=*/true), 4);
  EXPECT_FALSE(guessed.Find(Terms(1e-8)));
}

TEST(FirstCountsTest, ForgetTheOldest) {
  FirstCounts counts;
  for (size_t k = 0; k <= FirstCounts::kMost; ++k) {
    counts.Record(Terms(1 + static_cast<double>(k)), static_cast<int64_t>(k) + 1);
  }
  EXPECT_FALSE(counts.Find(Terms(1)));
  EXPECT_EQ(counts.Find(Terms(2)), 2);
  EXPECT_EQ(counts.Find(Terms(1 + FirstCounts::kMost)), FirstCounts::kMost + 1);
}

TEST(SolveTermsTest, HoldTheLengthsThatTheMethodReads) {
  kernels::SolveOptions one, other;
  other.restart = 7;
  other.shadow_vectors = 2;
  const auto same = [&](kernels::Method method) {
    one.method = other.method = method;
    return SolveTerms::Of(one, false) == SolveTerms::Of(other, false);
  };
  EXPECT_TRUE(same(kernels::Method::kBicgstab));
  EXPECT_FALSE(same(kernels::Method::kGmres));
  EXPECT_FALSE(same(kernels::Method::kIdr));
}

class ReuseTest : public JobFactoryTest {
 protected:
  void SetUp() override {
    JobFactoryTest::SetUp();
    engine_.solve = SolveByM;
  }
  // 3 unknowns, `scale` times the values; with scale 1 the M is built of it.
  Stored<Matrix> A(double scale = 1) { return Put(Diagonal(3, scale)); }
  Stored<Preconditioner> M(v1::PreconditionerSpec spec = Spec()) {
    auto ticket = StartBuild(A(), std::move(spec));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket->ready ? *ticket->ready : Built(*ticket)->preconditioner;
  }
  static v1::PreconditionerSpec Grown() { return Spec(v1::ENGINE_KIND_DYNAMIC_SPAI); }
  JobFactory::SolveRequest Request(const Stored<Matrix>& a, const Stored<Preconditioner>& m,
                                   ReuseMode mode = ReuseMode::kAuto, double factor = 1.5) {
    JobFactory::SolveRequest request = Solve(a);
    request.spec.reset();
    request.preconditioner = m;
    request.solve.reuse = {.mode = mode, .factor = factor};
    request.solve.options.max_iterations = 1000;
    return request;
  }
  std::shared_ptr<Job> Start(JobFactory::SolveRequest request) {
    auto ticket = bench_->StartSolve(std::move(request));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (!ticket.ok()) return nullptr;
    waiters_.push_back(std::move(ticket->waiter));
    return last_ = ticket->job;
  }
  static std::shared_ptr<const SolveOutcome> End(const std::shared_ptr<Job>& job) {
    AwaitEnd(job);
    return std::static_pointer_cast<const SolveOutcome>(job->result());
  }
  std::shared_ptr<const SolveOutcome> Run(JobFactory::SolveRequest request) {
    auto outcome = End(Start(std::move(request)));
    EXPECT_TRUE(last_->error().ok()) << last_->error();
    return outcome;
  }
  v1::SolveDone Done(JobFactory::SolveRequest request) { return Run(std::move(request))->done; }
  Stored<Preconditioner> Named(const v1::SolveDone& done) {
    auto found = preconditioners_.Get("t", done.preconditioner());
    EXPECT_TRUE(found.ok()) << found.status();
    return *found;
  }
  // The first solve with M, on its own matrix: 10.
  void Record(const Stored<Preconditioner>& m) {
    EXPECT_EQ(Done(Request(A(), m)).outcomes(0).iterations(), 10);
  }
  static void ExpectReuse(const v1::SolveDone& done, v1::ReuseDecision decision, int64_t iterations,
                          int64_t first, const std::string& reason) {
    EXPECT_EQ(done.reuse().decision(), decision) << done.reuse().reason();
    EXPECT_EQ(done.outcomes(0).iterations(), iterations);
    EXPECT_EQ(done.reuse().first_iterations(), first);
    EXPECT_THAT(done.reuse().reason(), HasSubstr(reason));
  }
  static std::vector<int32_t> Told(const Job& job, int32_t rhs = 0) {
    std::vector<int32_t> iterations;
    for (const v1::JobEvent& event : job.Read(0, 1000).events) {
      for (const v1::Residual& point : event.residuals().residuals()) {
        if (point.rhs() == rhs) iterations.push_back(point.iteration());
      }
    }
    return iterations;
  }
  static std::vector<int32_t> UpTo(int32_t last) {
    std::vector<int32_t> all(static_cast<size_t>(last) + 1);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  std::shared_ptr<Job> last_;
  std::vector<JobWaiter> waiters_;
};

constexpr auto kKept = v1::REUSE_DECISION_KEPT;
constexpr auto kRebuilt = v1::REUSE_DECISION_REBUILT;
constexpr auto kRegrown = v1::REUSE_DECISION_REGROWN;

TEST_F(ReuseTest, AutoKeepsMUpToFactorTimesItsFirstCountAndRebuildsItBeyond) {
  const auto m = M();
  ExpectReuse(Done(Request(A(), m)), kKept, 10, 10, "M is of this matrix");
  v1::SolveDone done = Done(Request(A(1.4), m));
  ExpectReuse(done, kKept, 14, 10, "14 iterations, at most 15, 1.5 times the first count of 10");
  EXPECT_EQ(done.preconditioner(), m.handle);
  ExpectReuse(Done(Request(A(1.5), m)), kKept, 15, 10, "15 iterations, at most 15");
  EXPECT_EQ(engine_.builds, 1);

  // 15 of 16 iterations are had; what is left, a sixteenth, takes the new M one of its ten.
  const auto solved = Run(Request(A(1.6), m));
  done = solved->done;
  ExpectReuse(done, kRebuilt, 16, 10,
              "the old M did not solve it in 15 iterations, 1.5 times the first");
  EXPECT_NE(done.preconditioner(), m.handle);
  EXPECT_EQ(last_->preconditioner(), done.preconditioner());
  EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_TRUE(done.timings().rebuild()) << "by the cached plan";
  EXPECT_EQ(done.timings().solve_ms(), 2) << "of both";
  EXPECT_EQ(done.figures().iterations(), 16);
  EXPECT_EQ(Told(*last_), UpTo(16)) << "the history goes on";
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(solved->x[j] * 1.6 * static_cast<double>(j + 1), 6, 1e-12);
  }
  EXPECT_EQ(engine_.builds, 2);

  // The end of that solve is no first count: the next one is.
  const auto rebuilt = Named(done);
  EXPECT_EQ(rebuilt.value->spec.SerializeAsString(), m.value->spec.SerializeAsString());
  ExpectReuse(Done(Request(A(1.92), rebuilt)), kKept, 12, 12, "the first count of this M");
  ExpectReuse(Done(Request(A(2.72), rebuilt)), kKept, 17, 12, "at most 18, 1.5 times");
  // The old one has its own.
  ExpectReuse(Done(Request(A(1.2), m)), kKept, 12, 10, "at most 15");
  EXPECT_THAT(metrics_.Serialize(), HasSubstr("outcome=\"converged\"} 7"));
  EXPECT_THAT(metrics_.Serialize(), Not(HasSubstr("outcome=\"max-iterations\""))) << "one solve";
}

TEST_F(ReuseTest, TheFactorIsTheRequests) {
  const auto m = M();
  Record(m);
  ExpectReuse(Done(Request(A(1.6), m, ReuseMode::kAuto, 1.6)), kKept, 16, 10, "at most 16, 1.6");
  ExpectReuse(Done(Request(A(1.1), m, ReuseMode::kAuto, 1)), kRebuilt, 11, 10,
              "in 10 iterations, 1 times");
}

TEST_F(ReuseTest, KeepNeverBuilds) {
  const auto m = M();
  ExpectReuse(Done(Request(A(3), m, ReuseMode::kKeep)), kKept, 30, 30, "the request keeps M");
  ExpectReuse(Done(Request(A(9), m, ReuseMode::kKeep)), kKept, 90, 30, "");
  EXPECT_EQ(engine_.builds, 1);
  JobFactory::SolveRequest request = Solve(A());
  request.spec = Spec();
  EXPECT_FALSE(Done(std::move(request)).has_reuse()) << "no M was named";
}

TEST_F(ReuseTest, RebuildBuildsFirst) {
  const auto m = M();
  Record(m);
  const v1::SolveDone done = Done(Request(A(1.1), m, ReuseMode::kRebuild));
  ExpectReuse(done, kRebuilt, 10, 10, "the request rebuilds M");
  EXPECT_NE(done.preconditioner(), m.handle);
  EXPECT_TRUE(done.timings().rebuild());
  EXPECT_EQ(Told(*last_), UpTo(10));
  // Again: it is there already. And with the new one there is nothing to rebuild.
  const v1::SolveDone again = Done(Request(A(1.1), m, ReuseMode::kRebuild));
  EXPECT_EQ(again.preconditioner(), done.preconditioner());
  EXPECT_TRUE(again.timings().reused());
  ExpectReuse(Done(Request(A(1.1), Named(done), ReuseMode::kRebuild)), kKept, 10, 10,
              "M is of this matrix");
  EXPECT_EQ(engine_.builds, 2);
}

TEST_F(ReuseTest, AMatrixThatWasSentAgainIsStillItsOwn) {
  const auto m = M();
  ASSERT_TRUE(matrices_.Delete("t", m.value->matrix).ok());
  const auto again = A();
  ASSERT_NE(again.handle, m.value->matrix);
  ExpectReuse(Done(Request(again, m, ReuseMode::kRebuild)), kKept, 10, 10, "M is of this matrix");
  EXPECT_EQ(engine_.builds, 1);
}

TEST_F(ReuseTest, TheSolveThatBuiltMRecordsItsCount) {
  JobFactory::SolveRequest first = Solve(A());
  first.spec = Spec();
  first.solve.options.max_iterations = 1000;
  const auto m = Named(Done(std::move(first)));
  ExpectReuse(Done(Request(A(1.6), m)), kRebuilt, 16, 10, "");
}

TEST_F(ReuseTest, OtherTermsBeginANewRecord) {
  const auto m = M();
  Record(m);
  auto loose = Request(A(3), m);
  loose.solve.options.rtol = 1e-4;
  ExpectReuse(Done(std::move(loose)), kKept, 30, 30, "the first count of this M");
  auto gmres = Request(A(4), m);
  gmres.solve.options.method = kernels::Method::kGmres;
  ExpectReuse(Done(std::move(gmres)), kKept, 40, 40, "the first count of this M");
}

TEST_F(ReuseTest, WithoutACountTheOldMHasHalfOfTheIterations) {
  auto request = Request(A(3), M());
  request.solve.options.max_iterations = 41;
  // 21 of 30 are had; 0.3 is left, three of the new M's ten.
  ExpectReuse(Done(std::move(request)), kRebuilt, 24, 0,
              "in 21 iterations, half of max_iterations");
}

TEST_F(ReuseTest, MaxIterationsBoundTheSum) {
  const auto m = M();
  Record(m);
  auto request = Request(A(4), m);
  request.solve.options.max_iterations = 15;
  v1::SolveDone done = Done(std::move(request));
  ExpectReuse(done, kKept, 15, 10, "15 iterations, and max_iterations leave none");
  EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_MAX_ITERATIONS);
  EXPECT_EQ(engine_.builds, 1);
  request = Request(A(4), m);
  request.solve.options.max_iterations = 16;
  done = Done(std::move(request));
  ExpectReuse(done, kRebuilt, 16, 10, "");
  EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_MAX_ITERATIONS);
}

TEST_F(ReuseTest, TheWorstRightHandSideDecidesAndThoseThatAreSolvedStayAsTheyAre) {
  const auto m = M();
  Record(m);
  const auto a = A(1.6);
  auto request = Request(a, m);
  request.solve.rhs_count = 3;
  request.b.assign(9, 6.0);
  request.x0.assign(9, 0.0);
  for (size_t j = 0; j < 3; ++j) request.x0[3 + j] = 6 / a.value->values[j];
  const auto solved = Run(std::move(request));
  const v1::SolveDone& done = solved->done;
  ExpectReuse(done, kRebuilt, 16, 10, "in 15 iterations, 1.5 times the first count of 10");
  EXPECT_EQ(done.outcomes(1).iterations(), 0);
  EXPECT_EQ(done.outcomes(2).iterations(), 16);
  for (const auto& outcome : done.outcomes()) {
    EXPECT_EQ(outcome.outcome(), v1::OUTCOME_CONVERGED);
  }
  EXPECT_EQ(Told(*last_, 0), UpTo(16));
  EXPECT_EQ(Told(*last_, 1), UpTo(0));
  EXPECT_EQ(Told(*last_, 2), UpTo(16));
  for (size_t k = 0; k < 9; ++k) {
    EXPECT_NEAR(solved->x[k] * a.value->values[k % 3], 6, 1e-12);
  }
  EXPECT_EQ(engine_.solves, 3) << "10, 15, and one more for both";
}

TEST_F(ReuseTest, ABreakdownRebuildsToo) {
  const auto m = M();
  Record(m);
  engine_.break_solves = 1;
  const auto a = A(1.25);
  auto request = Request(a, m);
  request.solve.rhs_count = 2;
  request.b.assign(6, 6.0);
  request.x0.assign(6, 0.0);
  for (size_t j = 0; j < 3; ++j) request.x0[3 + j] = 6 / a.value->values[j];
  const v1::SolveDone done = Done(std::move(request));
  // 1 of 13 is had (12.5); of the other 12/13 the new M takes 10 times that, rounded up.
  ExpectReuse(done, kRebuilt, 11, 10, "the old M did not solve it: breakdown after ");
  EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(done.outcomes(1).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(done.outcomes(1).iterations(), 0);
  EXPECT_EQ(engine_.solves, 4) << "those with one iteration behind them, and those with none";
}

const kernels::Status& NotSpd() {
  static const auto* const status = new kernels::Status(
      kernels::StatusCode::kFailedPrecondition, "NOT_POSITIVE_DEFINITE", "a diagonal entry is -1");
  return *status;
}

TEST_F(ReuseTest, ABuildThatFailsLeavesTheOldM) {
  const auto m = M();
  Record(m);
  engine_.FailBuilds(NotSpd());
  const v1::SolveDone done = Done(Request(A(2), m));
  ExpectReuse(done, kKept, 20, 10, "NOT_POSITIVE_DEFINITE: a diagonal entry is -1");
  EXPECT_THAT(done.reuse().reason(), HasSubstr("went on with the old one"));
  EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(done.preconditioner(), m.handle);
  EXPECT_EQ(Told(*last_), UpTo(20));
  ExpectReuse(Done(Request(A(2), m, ReuseMode::kRebuild)), kKept, 20, 10,
              "solved with the old one");
  // After a breakdown the same M is no better.
  engine_.break_solves = 1;
  const v1::SolveDone broken = Done(Request(A(2), m));
  ExpectReuse(broken, kKept, 1, 10, "breakdown after 1 iteration; M could not be built");
  EXPECT_EQ(broken.outcomes(0).outcome(), v1::OUTCOME_BREAKDOWN);
}

TEST_F(ReuseTest, ABuildWithoutMemoryLeavesTheOldM) {
  const auto m = M();
  Record(m);
  engine_.out_of_memory = 2;  // and once more where room was made
  ExpectReuse(Done(Request(A(2), m)), kKept, 20, 10, "DEVICE_OUT_OF_MEMORY");
}

TEST_F(ReuseTest, ABuildThatIsRefusedAtOnceLeavesTheOldMToItsEnd) {
  v1::PreconditionerSpec spec = Spec();
  spec.mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_AUTO);
  spec.mutable_static_spai()->set_pattern_matrix(Put(Diagonal(3), /*pattern_only=*/true).handle);
  const auto m = M(spec);
  ASSERT_TRUE(matrices_.Delete("t", spec.static_spai().pattern_matrix()).ok());
  Record(m);
  ExpectReuse(Done(Request(A(1.5), m)), kKept, 15, 10, "at most 15");
  ExpectReuse(Done(Request(A(2), m)), kKept, 20, 10, "20 iterations with the old M: M could not");
  EXPECT_EQ(engine_.solves, 3) << "nothing was interrupted";
  ExpectReuse(Done(Request(A(2), m, ReuseMode::kRebuild)), kKept, 20, 10, "HANDLE_UNKNOWN");
}

TEST_F(ReuseTest, ARebuiltMForWhichThereIsNoRoomServesItsSolve) {
  // Stores of a MiB; each of these takes 400 kB, and what is used stays.
  const auto put = [&](double scale) { return Put(Diagonal(20'000, scale)); };
  Stored<Matrix> a = put(1);
  const auto m = Built(*StartBuild(a))->preconditioner;
  ASSERT_TRUE(matrices_.Delete("t", a.handle).ok());
  a = put(2);
  const auto other = Built(*StartBuild(a))->preconditioner;
  ASSERT_TRUE(matrices_.Delete("t", a.handle).ok());
  const v1::SolveDone done = Done(Request(put(3), m, ReuseMode::kRebuild));
  ExpectReuse(done, kRebuilt, 10, 0, "the request rebuilds M");
  EXPECT_EQ(done.preconditioner(), "");
  ASSERT_EQ(done.quality().warnings_size(), 1);
  EXPECT_THAT(done.quality().warnings(0), HasSubstr("it was not kept"));
}

TEST_F(ReuseTest, APatternThatServesNoMoreIsGrownAnew) {
  engine_.grow_plans = true;
  engine_.reused_times = 2;  // on the pattern of an earlier A it takes twice the iterations
  const auto m = M(Grown());
  EXPECT_EQ(m.value->earlier_counts, nullptr);
  Record(m);
  v1::SolveDone done = Done(Request(A(1.6), m));
  ExpectReuse(done, kRebuilt, 17, 10, "in 15");
  const auto rebuilt = Named(done);
  EXPECT_EQ(rebuilt.value->earlier_counts, m.value->first_counts);
  ExpectReuse(Done(Request(A(1.6), rebuilt)), kKept, 20, 20, "M is of this matrix");
  // 30 of 40 are had; of the last quarter the M whose pattern is this A's own takes 3.
  done = Done(Request(A(3.2), rebuilt));
  ExpectReuse(done, kRegrown, 33, 20,
              "where it took 10 iterations at first, and its own first count was 20");
  EXPECT_FALSE(done.timings().rebuild());
  const auto grown = Named(done);
  EXPECT_TRUE(grown.value->spec.regrow());
  EXPECT_EQ(grown.value->earlier_counts, nullptr);
  EXPECT_EQ(engine_.plans, 2);
  // And again, from there: the pattern that is kept is the new one.
  ExpectReuse(Done(Request(A(3.2), grown)), kKept, 10, 10, "M is of this matrix");
  done = Done(Request(A(6.4), grown));
  ExpectReuse(done, kRebuilt, 20, 10, "in 15");
  EXPECT_FALSE(Named(done).value->spec.regrow());
  EXPECT_EQ(Named(done).value->earlier_counts, grown.value->first_counts);
  EXPECT_EQ(engine_.plans, 2);
}

TEST_F(ReuseTest, APatternThatServesAsWellIsKept) {
  engine_.grow_plans = true;
  engine_.reused_times = 1.5;
  const auto m = M(Grown());
  Record(m);
  const auto rebuilt = Named(Done(Request(A(1.6), m)));
  ExpectReuse(Done(Request(A(1.6), rebuilt)), kKept, 15, 15, "");
  ExpectReuse(Done(Request(A(3.2), rebuilt)), kRebuilt, 27, 15, "in 23 iterations, 1.5 times");
  EXPECT_EQ(engine_.plans, 1);
}

TEST_F(ReuseTest, RebuildGrowsAnewToo) {
  engine_.grow_plans = true;
  engine_.reused_times = 2;
  const auto m = M(Grown());
  Record(m);
  const v1::SolveDone done = Done(Request(A(2), m, ReuseMode::kRebuild));
  ExpectReuse(done, kRebuilt, 20, 10, "the request rebuilds M");
  ExpectReuse(Done(Request(A(3), Named(done), ReuseMode::kRebuild)), kRegrown, 10, 20,
              "its own first count was 20");
}

TEST_F(ReuseTest, AnMOnAnEarlierPatternThatNeverSolvedAnythingIsGrownAnew) {
  engine_.grow_plans = true;
  engine_.reused_times = 4;
  const auto m = M(Grown());
  Record(m);
  auto request = Request(A(1.6), m);
  const auto rebuilt = Named(Done(std::move(request)));
  request = Request(A(3.2), rebuilt);
  request.solve.options.max_iterations = 40;
  ExpectReuse(Done(std::move(request)), kRegrown, 28, 0, "never has solved anything since");
}

TEST_F(ReuseTest, AGrowthThatIsRefusedLeavesTheOldM) {
  engine_.grow_plans = true;
  engine_.reused_times = 2;
  const auto m = M(Grown());
  Record(m);
  const auto rebuilt = Named(Done(Request(A(1.6), m)));
  ExpectReuse(Done(Request(A(1.6), rebuilt)), kKept, 20, 20, "");
  engine_.FailBuilds(NotSpd());
  ExpectReuse(Done(Request(A(3.2), rebuilt)), kKept, 40, 20, "NOT_POSITIVE_DEFINITE");
}

TEST_F(ReuseTest, AStopWhileMIsBuiltAnewLeavesTheIterate) {
  const auto m = M();
  Record(m);
  for (const auto& [cause, outcome] : {std::pair(StopCause::kCancelled, v1::OUTCOME_CANCELLED),
                                       std::pair(StopCause::kMaxRun, v1::OUTCOME_TIME_LIMIT)}) {
    const int64_t builds = engine_.builds;
    engine_.HoldBuilds();
    const auto job = Start(Request(A(2), m));
    engine_.WaitForBuilds(builds + 1);
    EXPECT_EQ(job->what(), "rebuild of static-spai");
    ASSERT_TRUE(job->RequestStop(cause));
    const auto solved = End(job);
    engine_.Release();
    ASSERT_NE(solved, nullptr);
    ExpectReuse(solved->done, kKept, 15, 10, "stopped while it was built anew");
    EXPECT_EQ(solved->done.outcomes(0).outcome(), outcome);
    EXPECT_EQ(solved->done.preconditioner(), m.handle);
    EXPECT_NEAR(solved->done.outcomes(0).true_relative_residual(), 0.25, 1e-12);
    EXPECT_NEAR(solved->x[0] * 2, 6 * 0.75, 1e-12);
  }
}

TEST_F(ReuseTest, AbandonedWhileMIsBuiltAnewItEnds) {
  const auto m = M();
  Record(m);
  engine_.HoldBuilds();
  const auto job = Start(Request(A(2), m));
  engine_.WaitForBuilds(2);
  waiters_.clear();
  EXPECT_EQ(End(job), nullptr);
  EXPECT_EQ(ReasonOf(job->error()), "ABANDONED");
  engine_.Release();
  ExpectReuse(Done(Request(A(2), m)), kRebuilt, 18, 10, "");
}

TEST_F(ReuseTest, AStopInEitherSolveEndsIt) {
  const auto m = M();
  Record(m);
  engine_.HoldSolves();
  auto job = Start(Request(A(2), m));
  engine_.WaitForSolves(2);
  job->RequestStop(StopCause::kCancelled);
  auto solved = End(job);
  ASSERT_NE(solved, nullptr);
  ExpectReuse(solved->done, kKept, 0, 10, "stopped after 0 iterations with the old M");
  engine_.Release();
  // In the second one.
  engine_.HoldBuilds();
  job = Start(Request(A(2), m));
  engine_.WaitForBuilds(2);
  engine_.HoldSolves();
  engine_.hold_builds = false;
  engine_.WaitForSolves(4);
  job->RequestStop(StopCause::kCancelled);
  solved = End(job);
  engine_.Release();
  ASSERT_NE(solved, nullptr);
  ExpectReuse(solved->done, kRebuilt, 15, 10, "in 15");
  EXPECT_EQ(solved->done.outcomes(0).outcome(), v1::OUTCOME_CANCELLED);
  EXPECT_NEAR(solved->done.outcomes(0).true_relative_residual(), 0.25, 1e-12);
}

TEST_F(ReuseTest, AStopWhileRebuildBuildsIsTheJobsError) {
  const auto m = M();
  engine_.HoldBuilds();
  const auto job = Start(Request(A(2), m, ReuseMode::kRebuild));
  engine_.WaitForBuilds(2);
  job->RequestStop(StopCause::kCancelled);
  EXPECT_EQ(End(job), nullptr);
  EXPECT_EQ(ReasonOf(job->error()), "CANCELLED");
  engine_.Release();
}

TEST_F(ReuseTest, ADeviceThatIsLostInTheBuildIsTheJobsError) {
  const auto m = M();
  Record(m);
  engine_.FailBuilds(kernels::Status(kernels::StatusCode::kUnavailable, "DEVICE_LOST", "gone"));
  const auto job = Start(Request(A(2), m));
  EXPECT_EQ(End(job), nullptr);
  EXPECT_EQ(ReasonOf(job->error()), "DEVICE_LOST");
}

TEST_F(ReuseTest, AnMOfAnotherSizeIsRefused) {
  for (const auto mode : {ReuseMode::kKeep, ReuseMode::kRebuild, ReuseMode::kAuto}) {
    const absl::Status status = bench_->StartSolve(Request(Put(Diagonal(4)), M(), mode)).status();
    EXPECT_EQ(ReasonOf(status), "PRECONDITIONER_SIZE_MISMATCH");
    EXPECT_EQ(FieldOf(status), "header.preconditioner");
  }
}

TEST_F(ReuseTest, AStopOfThePreparationIsTheCallsError) {
  kernels::StopSource source;
  auto request = Request(A(2), M());
  request.stop = source.token();
  source.Request(kernels::StopReason::kCancelled);
  engine_.hold_estimates = true;
  EXPECT_EQ(bench_->StartSolve(std::move(request)).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ReuseTest, EqualRequestsInEqualOrderEndAlike) {
  std::vector<std::string> told[2];
  for (auto& one : told) {
    Make();
    auto m = M();
    std::set<std::string> handles;
    for (int step = 0; step < 10; ++step) {
      handles.insert(m.handle);
      const v1::SolveDone done = Done(Request(A(1 + 0.2 * step), m));
      one.push_back(absl::StrCat(done.reuse().decision(), done.reuse().reason(),
                                 done.outcomes(0).iterations()));
      m = Named(done);
    }
    handles.insert(m.handle);
    for (const std::string& handle : handles)
      EXPECT_TRUE(preconditioners_.Delete("t", handle).ok());
    EXPECT_GT(handles.size(), 1u);
  }
  EXPECT_EQ(told[0], told[1]);
}

// A job whose build would be a GPU's takes its memory, and its solve runs there.
TEST(ReusePlacementTest, AJobThatMayHaveToBuildIsPlacedWhereItsBuildIs) {
  Bench bench({FakeCpu(), FakeGpu(0)});
  bench.engine.SolveOnGpus();
  bench.engine.solve = SolveByM;
  bench.engine.predicted_ms = 1000;  // a GPU's
  const Stored<Matrix> a = bench.Put(3);
  auto built = bench.Build(a);
  ASSERT_TRUE(built.ok()) << built.status();
  AwaitEnd(built->job);
  const auto m = std::static_pointer_cast<const BuildOutcome>(built->job->result())->preconditioner;
  const auto solve = [&](double d, ReuseMode mode) {
    JobFactory::SolveRequest request;
    request.tenant = "t";
    request.matrix = bench.Put(d);
    request.preconditioner = m;
    request.solve.reuse.mode = mode;
    request.b.assign(2, 6.0);
    auto ticket = bench.job_factory->StartSolve(std::move(request));
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (!ticket.ok()) return v1::SolveDone();
    AwaitEnd(ticket->job);
    EXPECT_TRUE(ticket->job->error().ok()) << ticket->job->error();
    return std::static_pointer_cast<const SolveOutcome>(ticket->job->result())->done;
  };
  EXPECT_EQ(solve(3, ReuseMode::kKeep).device(), "cpu") << "small";
  const v1::SolveDone kept = solve(4, ReuseMode::kAuto);
  EXPECT_EQ(kept.reuse().decision(), kKept);
  EXPECT_EQ(kept.device(), "gpu:0");
  EXPECT_THAT(kept.placement(), HasSubstr("where its M would be built: "));
  const v1::SolveDone rebuilt = solve(30, ReuseMode::kAuto);
  EXPECT_EQ(rebuilt.reuse().decision(), kRebuilt) << rebuilt.reuse().reason();
  EXPECT_EQ(rebuilt.device(), "gpu:0");
  EXPECT_EQ(bench.engine.builds_on(0), 0);
  EXPECT_EQ(bench.engine.builds_on(1), 2);
}

}  // namespace
}  // namespace spaid::server
