#include "server/engine/job_factory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "tests/server/engine/matrices.h"
#include "tests/server/fake_engine.h"
#include "tests/server/forged.h"
#include "tests/server/sched/gate.h"

namespace spaid::server {
namespace {

class JobFactoryTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
    Make();
  }
  void TearDown() override {
    scheduler_.reset();
    SetLogSink(nullptr);
  }
  void Make(int64_t max_queued = 10, int64_t max_build_bytes = 0,
            int64_t ladder_bytes = int64_t{1} << 30, int64_t max_lu_n = 10) {
    scheduler_.reset();
    adapter_ = std::make_unique<EngineAdapter>(
        engine_, EngineAdapterOptions{.threads = 1,
                                      .max_build_bytes = max_build_bytes,
                                      .ladder_bytes = ladder_bytes,
                                      .max_lu_n = max_lu_n});
    SchedulerOptions options;
    options.dispatch.max_queued = max_queued;
    options.on_ended = [this](const std::shared_ptr<Job>& job) { jobs_.Ended(job); };
    scheduler_ = std::make_unique<Scheduler>(options);
    bench_ = std::make_unique<JobFactory>(JobFactory::Parts{.adapter = adapter_.get(),
                                                            .matrices = &matrices_,
                                                            .preconditioners = &preconditioners_,
                                                            .scheduler = scheduler_.get(),
                                                            .jobs = &jobs_,
                                                            .metrics = &metrics_});
  }
  Stored<Matrix> Put(kernels::CscMatrix raw, bool pattern_only = false,
                     const std::string& tenant = "t") {
    if (pattern_only) raw.values.clear();
    auto matrix =
        *adapter_->Prepare(std::move(raw), kernels::Layout::kCsc,
                           {.sort_and_sum = false, .pattern_only = pattern_only, .label = {}});
    return *matrices_.Put(tenant, matrix, matrix->bytes(), matrix->ContentKey(), {},
                          [&](const Matrix& stored) { return stored.SameContent(*matrix); });
  }
  // Another matrix of the same XXH3 digests.
  static kernels::CscMatrix Forged(kernels::CscMatrix a) {
    const std::vector<double> forged = SameXxh3(a.values);
    a.values.assign(forged.begin(), forged.end());
    return a;
  }
  static v1::PreconditionerSpec Spec(v1::EngineKind kind = v1::ENGINE_KIND_STATIC_SPAI) {
    v1::PreconditionerSpec spec;
    spec.set_engine(kind);
    return spec;
  }
  absl::StatusOr<JobFactory::BuildTicket> StartBuild(const Stored<Matrix>& a,
                                                     v1::PreconditionerSpec spec = Spec(),
                                                     JobFactory::Terms terms = {},
                                                     const std::string& tenant = "t") {
    return bench_->StartBuild({.tenant = tenant,
                               .matrix = a,
                               .spec = std::move(spec),
                               .field = "header.spec",
                               .terms = terms});
  }
  JobFactory::SolveRequest Solve(const Stored<Matrix>& a) {
    JobFactory::SolveRequest request;
    request.tenant = "t";
    request.matrix = a;
    request.spec = Spec(v1::ENGINE_KIND_NONE);
    request.b.assign(static_cast<size_t>(a.value->n()), 6.0);
    return request;
  }
  // A solve whose first computation breaks down.
  absl::StatusOr<JobFactory::SolveTicket> StartSolveThatBreaks(v1::EngineKind kind) {
    JobFactory::SolveRequest request = Solve(Put(Diagonal(3)));
    request.spec = Spec(kind);
    engine_.break_solves = 1;
    return bench_->StartSolve(std::move(request));
  }
  static std::shared_ptr<const BuildOutcome> Built(const JobFactory::BuildTicket& ticket) {
    AwaitEnd(ticket.job);
    EXPECT_TRUE(ticket.job->error().ok()) << ticket.job->error();
    return std::static_pointer_cast<const BuildOutcome>(ticket.job->result());
  }
  static std::shared_ptr<const SolveOutcome> Solved(const JobFactory::SolveTicket& ticket) {
    AwaitEnd(ticket.job);
    EXPECT_TRUE(ticket.job->error().ok()) << ticket.job->error();
    return std::static_pointer_cast<const SolveOutcome>(ticket.job->result());
  }

  FakeEngine engine_;
  Metrics metrics_;
  MatrixStore matrices_{{.prefix = "matrices/",
                         .what = "matrix",
                         .limit_flag = "--matrix-store-bytes",
                         .max_bytes = 1 << 20,
                         .too_large_reason = reason::kMatrixTooLarge}};
  PreconditionerStore preconditioners_{{.prefix = "preconditioners/",
                                        .what = "preconditioner",
                                        .limit_flag = "--preconditioner-store-bytes",
                                        .max_bytes = 1 << 20,
                                        .too_large_reason = reason::kBuildTooLarge}};
  JobTable jobs_{JobTableOptions{}};
  std::unique_ptr<EngineAdapter> adapter_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<JobFactory> bench_;
};

TEST_F(JobFactoryTest, BuildsStoresAndFindsAgain) {
  auto a = Put(Diagonal(4));
  auto ticket = StartBuild(a);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  ASSERT_TRUE(ticket->job);
  auto outcome = Built(*ticket);
  const v1::Preconditioner proto = ToProto(outcome->preconditioner);
  EXPECT_EQ(proto.matrix(), a.handle);
  EXPECT_EQ(proto.nnz(), 4);
  EXPECT_EQ(proto.device(), "cpu");
  EXPECT_EQ(proto.choice().engine(), v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_EQ(proto.spec().static_spai().pattern_power(), 1) << "resolved, with its defaults";
  EXPECT_EQ(ticket->job->Snapshot().preconditioner(), proto.name());
  EXPECT_TRUE(jobs_.Get("t", ticket->job->name()).ok());

  auto again = StartBuild(a);
  ASSERT_TRUE(again->ready);
  EXPECT_EQ(again->ready->handle, proto.name());
  EXPECT_FALSE(again->job);
  EXPECT_EQ(engine_.builds, 1);
  // Of another tenant, of other values, of another spec: another one.
  EXPECT_FALSE(StartBuild(Put(Diagonal(4), false, "u"), Spec(), {}, "u")->ready);
  EXPECT_FALSE(StartBuild(Put(Diagonal(4, 2)))->ready);
  EXPECT_FALSE(StartBuild(a, Spec(v1::ENGINE_KIND_JACOBI))->ready);
}

TEST_F(JobFactoryTest, JobsSayForPeopleWhatTheyAreOf) {
  const auto a = Put(Diagonal(5));
  const auto build = *StartBuild(a);
  EXPECT_EQ(build.job->description().what, "static-spai");
  EXPECT_EQ(build.job->description().n, 5);
  EXPECT_EQ(build.job->description().nnz, 5);
  JobFactory::SolveRequest request = Solve(a);
  request.solve.options.method = kernels::Method::kCg;
  EXPECT_EQ(bench_->StartSolve(std::move(request))->job->description().what, "cg");
}

TEST_F(JobFactoryTest, IdenticalBuildsInFlightAreOne) {
  auto a = Put(Diagonal(4));
  engine_.HoldBuilds();
  auto first = StartBuild(a), second = StartBuild(a);
  engine_.WaitForBuilds(1);
  EXPECT_EQ(first->job, second->job);
  EXPECT_FALSE(first->shared);
  EXPECT_TRUE(second->shared);
  first->waiter.Leave();
  EXPECT_EQ(second->job->stop_cause(), StopCause::kNone);
  engine_.Release();
  EXPECT_TRUE(Built(*second));
  EXPECT_EQ(engine_.builds, 1);
}

TEST_F(JobFactoryTest, AForgedMatrixSharesNothingOfTheTrueOnes) {
  auto a = Put(Diagonal(160)), forged = Put(Forged(Diagonal(160)));
  ASSERT_EQ(a.value->ContentKey(), forged.value->ContentKey());
  ASSERT_NE(a.handle, forged.handle);
  const auto& true_values = a.value->csc.values;
  const auto& others = forged.value->csc.values;
  const auto at = static_cast<size_t>(
      std::mismatch(true_values.begin(), true_values.end(), others.begin()).first -
      true_values.begin());
  // In flight.
  engine_.HoldBuilds();
  auto first = StartBuild(forged), second = StartBuild(a);
  EXPECT_NE(first->job, second->job);
  EXPECT_FALSE(second->shared);
  engine_.Release();
  const auto one = Built(*first), two = Built(*second);
  EXPECT_EQ(one->preconditioner.value->m().values[at], 1 / others[at]);
  EXPECT_EQ(two->preconditioner.value->m().values[at], 1 / true_values[at]);
  // In the store.
  EXPECT_EQ(StartBuild(a)->ready->handle, two->preconditioner.handle);
  EXPECT_EQ(StartBuild(forged)->ready->handle, one->preconditioner.handle);
  // By solves.
  for (const auto& [matrix, built] : {std::pair(a, two), std::pair(forged, one)}) {
    JobFactory::SolveRequest request = Solve(matrix);
    request.spec = Spec();
    const auto solved = Solved(*bench_->StartSolve(std::move(request)));
    EXPECT_EQ(solved->done.preconditioner(), built->preconditioner.handle);
    EXPECT_EQ(solved->x[at], 6 / matrix.value->csc.values[at]);
  }
  EXPECT_EQ(engine_.builds, 2);
}

TEST_F(JobFactoryTest, AMatrixThatComesAgainFindsItsPreconditioner) {
  auto a = Put(Diagonal(160));
  const std::string built = Built(*StartBuild(a))->preconditioner.handle;
  ASSERT_TRUE(matrices_.Delete("t", a.handle).ok());
  EXPECT_FALSE(StartBuild(Put(Forged(Diagonal(160))))->ready);
  const auto again = Put(Diagonal(160));
  EXPECT_NE(again.handle, a.handle);
  EXPECT_EQ(StartBuild(again)->ready->handle, built);
}

TEST_F(JobFactoryTest, TheLastWaiterLeavingCancelsTheBuild) {
  auto a = Put(Diagonal(4));
  engine_.HoldBuilds();
  auto first = StartBuild(a), second = StartBuild(a);
  engine_.WaitForBuilds(1);
  auto job = first->job;
  first->waiter.Leave();
  second->waiter.Leave();
  AwaitEnd(job);
  EXPECT_EQ(ReasonOf(job->error()), "ABANDONED");
  engine_.Release();
  // And the next request builds anew.
  EXPECT_TRUE(Built(*StartBuild(a)));
}

TEST_F(JobFactoryTest, ABuildWithLimitsIsNotShared) {
  auto a = Put(Diagonal(4));
  engine_.HoldBuilds();
  JobFactory::Terms limited;
  limited.limits.max_run = std::chrono::hours(1);
  limited.own_limits = true;
  auto first = StartBuild(a), second = StartBuild(a, Spec(), limited);
  EXPECT_NE(first->job, second->job);
  engine_.Release();
  auto one = Built(*first), two = Built(*second);
  EXPECT_EQ(one->preconditioner.handle, two->preconditioner.handle);
  EXPECT_EQ(engine_.builds, 1) << "the second found it when its turn came";
  EXPECT_TRUE(second->job->timings().reused());
}

TEST_F(JobFactoryTest, NewValuesOnTheSamePatternAreARebuild) {
  auto first = StartBuild(Put(Diagonal(4)));
  EXPECT_FALSE(Built(*first)->preconditioner.value->timings.rebuild());
  auto second = StartBuild(Put(Diagonal(4, 3)));
  EXPECT_TRUE(Built(*second)->preconditioner.value->timings.rebuild());
  EXPECT_EQ(engine_.plans, 1);
}

TEST_F(JobFactoryTest, SaysWhyAutoFoundNothingToBuild) {
  engine_.auto_choice = kernels::EngineKind::kNone;
  kernels::CscMatrix empty_column = Diagonal(4);
  empty_column.values[2] = 0;
  const absl::Status status =
      StartBuild(Put(std::move(empty_column)), Spec(v1::ENGINE_KIND_AUTO)).status();
  EXPECT_EQ(ReasonOf(status), "NOTHING_TO_BUILD");
  EXPECT_NE(status.message().find("AUTO chose NONE"), std::string::npos) << status;
  EXPECT_NE(status.message().find("the fake was told so"), std::string::npos) << status;
}

TEST_F(JobFactoryTest, RefusesBuilds) {
  auto a = Put(Diagonal(4));
  EXPECT_EQ(ReasonOf(StartBuild(a, Spec(v1::ENGINE_KIND_NONE)).status()), "NOTHING_TO_BUILD");
  EXPECT_EQ(ReasonOf(StartBuild(a, Spec(v1::ENGINE_KIND_UNSPECIFIED)).status()), "UNKNOWN_ENUM");
  EXPECT_EQ(ReasonOf(StartBuild(Put(Diagonal(5), true)).status()), "VALUES_NEEDED");
  v1::PreconditionerSpec spec = Spec();
  spec.mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_AUTO);
  spec.mutable_static_spai()->set_pattern_matrix("matrices/none");
  EXPECT_EQ(ReasonOf(StartBuild(a, spec).status()), "HANDLE_UNKNOWN");
  spec.mutable_static_spai()->set_pattern_matrix(Put(Diagonal(5), true).handle);
  const absl::Status mismatch = StartBuild(a, spec).status();
  EXPECT_EQ(ReasonOf(mismatch), "PATTERN_SIZE_MISMATCH");
  EXPECT_EQ(FieldOf(mismatch), "header.spec.static_spai.pattern_matrix");
  EXPECT_EQ(jobs_.size(), 0) << "no job came of any";
  Make(10, /*max_build_bytes=*/100);
  EXPECT_EQ(ReasonOf(StartBuild(a).status()), "BUILD_TOO_LARGE");
}

TEST_F(JobFactoryTest, AFullQueueLeavesNoTrace) {
  Make(/*max_queued=*/1);
  engine_.HoldBuilds();
  auto running = StartBuild(Put(Diagonal(3)));
  engine_.WaitForBuilds(1);
  auto queued = StartBuild(Put(Diagonal(4)));
  const absl::Status refused = StartBuild(Put(Diagonal(5))).status();
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");
  EXPECT_TRUE(RetryDelayOf(refused));
  EXPECT_EQ(jobs_.size(), 2);
  engine_.Release();
  EXPECT_TRUE(Built(*queued));
}

TEST_F(JobFactoryTest, AFailedBuildIsTheJobsErrorAndIsNotKept) {
  engine_.FailBuilds(kernels::Status(kernels::StatusCode::kFailedPrecondition, "ZERO_COLUMN",
                                     "column 2 is empty"));
  auto a = Put(Diagonal(4));
  auto ticket = StartBuild(a);
  AwaitEnd(ticket->job);
  EXPECT_EQ(ReasonOf(ticket->job->error()), "ZERO_COLUMN");
  EXPECT_FALSE(ticket->job->result());
  engine_.FailBuilds({});
  EXPECT_TRUE(Built(*StartBuild(a)));
}

TEST_F(JobFactoryTest, SolvesWithoutAPreconditioner) {
  auto ticket = bench_->StartSolve(Solve(Put(Diagonal(3))));
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  auto outcome = Solved(*ticket);
  EXPECT_EQ(outcome->x, (kernels::Array<double>{6, 3, 2}));
  EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(outcome->done.method(), v1::METHOD_BICGSTAB) << "resolved";
  EXPECT_EQ(outcome->done.preconditioner(), "");
  EXPECT_EQ(outcome->done.nnz_ratio(), 0);
  EXPECT_EQ(outcome->done.choice().engine(), v1::ENGINE_KIND_NONE);
  EXPECT_EQ(outcome->done.job(), ticket->job->name());
  EXPECT_EQ(ticket->job->Snapshot().outcomes_size(), 1);
}

TEST_F(JobFactoryTest, ASolveBuildsWhatItsSpecSaysAndKeepsIt) {
  auto a = Put(Diagonal(3));
  auto request = Solve(a);
  request.spec = Spec();
  auto first = bench_->StartSolve(std::move(request));
  auto outcome = Solved(*first);
  EXPECT_NE(outcome->done.preconditioner(), "");
  EXPECT_EQ(outcome->done.nnz_ratio(), 1);
  EXPECT_TRUE(outcome->done.has_quality());
  EXPECT_FALSE(outcome->done.timings().reused());
  EXPECT_EQ(StartBuild(a)->ready->handle, outcome->done.preconditioner());

  request = Solve(a);
  request.spec = Spec();
  auto second = Solved(*bench_->StartSolve(std::move(request)));
  EXPECT_EQ(second->done.preconditioner(), outcome->done.preconditioner());
  EXPECT_TRUE(second->done.timings().reused());
  EXPECT_EQ(engine_.builds, 1);
}

TEST_F(JobFactoryTest, ASolveThatAutosChoiceDoesNotSolveClimbs) {
  const auto ticket = StartSolveThatBreaks(v1::ENGINE_KIND_AUTO);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const auto solved = Solved(*ticket);
  EXPECT_EQ(solved->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(solved->x[1], 3);
  ASSERT_EQ(solved->done.rungs_size(), 2);
  EXPECT_EQ(solved->done.rungs(0).engine(), v1::ENGINE_KIND_JACOBI);
  EXPECT_EQ(solved->done.rungs(0).left(), "the fake breaks down");
  EXPECT_EQ(solved->done.rungs(0).relative_residual(), 1);
  EXPECT_EQ(solved->done.rungs(1).left(), "");
  EXPECT_EQ(solved->done.choice().engine(), solved->done.rungs(1).engine());
  EXPECT_EQ(solved->done.method(), solved->done.rungs(1).method());
  EXPECT_EQ(ticket->job->what(), solved->done.rungs(1).what()) << "the status page shows it";
  std::vector<std::string> told;
  for (const v1::JobEvent& event : ticket->job->Read(0, 100).events) {
    if (event.has_rung()) told.push_back(event.rung().what());
  }
  EXPECT_EQ(told,
            (std::vector<std::string>{solved->done.rungs(0).what(), solved->done.rungs(1).what()}));
}

TEST_F(JobFactoryTest, AutoBeginsWithWhatSolvedThePatternBefore) {
  const auto solve = [this](const Stored<Matrix>& a, v1::Learned learned = v1::LEARNED_UNSPECIFIED,
                            const std::string& tenant = "t") {
    JobFactory::SolveRequest request = Solve(a);
    request.tenant = tenant;
    request.spec = Spec(v1::ENGINE_KIND_AUTO);
    request.solve.options.method = kernels::Method::kAuto;
    if (learned != v1::LEARNED_UNSPECIFIED) request.spec->mutable_automatic()->set_learned(learned);
    return Solved(*bench_->StartSolve(std::move(request)))->done;
  };
  engine_.break_solves = 1;
  solve(Put(Diagonal(3)));                // static FSAI does it
  const auto next = Put(Diagonal(3, 2));  // other values
  const v1::SolveDone known = solve(next);
  EXPECT_EQ(known.choice().engine(), v1::ENGINE_KIND_FSAI);
  EXPECT_EQ(known.choice().reason(), "static FSAI: it solved an earlier system on this pattern");
  EXPECT_EQ(known.rungs_size(), 0);
  EXPECT_EQ(solve(next, v1::LEARNED_ON).choice().engine(), v1::ENGINE_KIND_FSAI);
  EXPECT_EQ(solve(next, v1::LEARNED_OFF).choice().engine(), v1::ENGINE_KIND_JACOBI);
  EXPECT_EQ(solve(next).choice().engine(), v1::ENGINE_KIND_FSAI) << "OFF forgets nothing";
  EXPECT_EQ(solve(Put(Diagonal(4))).choice().engine(), v1::ENGINE_KIND_JACOBI);
  EXPECT_EQ(solve(Put(Diagonal(3), false, "u"), v1::LEARNED_ON, "u").choice().engine(),
            v1::ENGINE_KIND_JACOBI)
      << "of another tenant";
  // A build begins there, too, and finds what the solve built.
  const auto ticket = StartBuild(next, Spec(v1::ENGINE_KIND_AUTO));
  ASSERT_TRUE(ticket.ok() && ticket->ready) << ticket.status();
  EXPECT_EQ(ticket->ready->handle, known.preconditioner());
  // Where it solves it no more, what does is begun with.
  engine_.break_solves = 100;
  EXPECT_EQ(solve(next).outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(solve(next).choice().reason(), "dense LU: it solved an earlier system on this pattern");
}

TEST_F(JobFactoryTest, AutoBeginsAtTheBottomWhereNothingSolvedThePattern) {
  Make(10, 0, int64_t{1} << 30, /*max_lu_n=*/0);
  const auto a = Put(Diagonal(3));
  const auto solve = [&] {
    JobFactory::SolveRequest request = Solve(a);
    request.spec = Spec(v1::ENGINE_KIND_AUTO);
    request.solve.options.method = kernels::Method::kAuto;
    return Solved(*bench_->StartSolve(std::move(request)))->done;
  };
  engine_.break_solves = 1;
  solve();  // static FSAI does it
  engine_.break_solves = 100;
  const v1::SolveDone lost = solve();
  EXPECT_NE(lost.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  ASSERT_GE(lost.rungs_size(), 3);
  EXPECT_EQ(lost.rungs(0).engine(), v1::ENGINE_KIND_FSAI);
  bool below = false;  // what was passed over is tried, too
  for (const v1::Rung& rung : lost.rungs()) below |= rung.engine() == v1::ENGINE_KIND_JACOBI;
  EXPECT_TRUE(below);
  engine_.break_solves = 0;
  EXPECT_EQ(solve().choice().engine(), v1::ENGINE_KIND_JACOBI);
}

TEST_F(JobFactoryTest, ARungThatHasNoMemorySaysSo) {
  Make(10, 0, /*ladder_bytes=*/1);
  const auto ticket = StartSolveThatBreaks(v1::ENGINE_KIND_AUTO);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const auto solved = Solved(*ticket);
  EXPECT_EQ(solved->done.outcomes(0).outcome(), v1::OUTCOME_BREAKDOWN);
  ASSERT_GE(solved->done.rungs_size(), 3);
  for (int k = 1; k < solved->done.rungs_size(); ++k) {
    EXPECT_NE(solved->done.rungs(k).left().find("no memory for it: "), std::string::npos);
  }
}

TEST_F(JobFactoryTest, ANamedEngineDoesNotClimb) {
  const auto ticket = StartSolveThatBreaks(v1::ENGINE_KIND_JACOBI);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const auto solved = Solved(*ticket);
  EXPECT_EQ(solved->done.outcomes(0).outcome(), v1::OUTCOME_BREAKDOWN);
  EXPECT_EQ(solved->done.rungs_size(), 0);
}

TEST_F(JobFactoryTest, AnOldPreconditionerServesNewValues) {
  auto ticket = StartBuild(Put(Diagonal(3)));
  auto built = Built(*ticket);
  auto request = Solve(Put(Diagonal(3, 2)));
  request.spec.reset();
  request.preconditioner = built->preconditioner;
  auto outcome = Solved(*bench_->StartSolve(std::move(request)));
  EXPECT_EQ(outcome->done.preconditioner(), built->preconditioner.handle);
  EXPECT_EQ(engine_.builds, 1);
}

TEST_F(JobFactoryTest, RefusesSolves) {
  auto a = Put(Diagonal(3));
  auto request = Solve(a);
  request.b.resize(2);
  EXPECT_EQ(ReasonOf(bench_->StartSolve(std::move(request)).status()), "RHS_LENGTH_MISMATCH");
  request = Solve(a);
  request.x0.resize(4);
  const absl::Status guess = bench_->StartSolve(std::move(request)).status();
  EXPECT_EQ(ReasonOf(guess), "RHS_LENGTH_MISMATCH");
  EXPECT_EQ(FieldOf(guess), "initial_guess");
  request = Solve(a);
  request.spec.reset();
  EXPECT_EQ(ReasonOf(bench_->StartSolve(std::move(request)).status()), "MISSING_FIELD");
  request = Solve(a);
  request.spec = Spec();
  request.solve.options.method = kernels::Method::kCg;
  const absl::Status cg = bench_->StartSolve(std::move(request)).status();
  EXPECT_EQ(ReasonOf(cg), "PRECONDITIONER_NOT_SPD");
  EXPECT_EQ(FieldOf(cg), "header.method");
  EXPECT_EQ(ReasonOf(bench_->StartSolve(Solve(Put(Diagonal(4), true))).status()), "VALUES_NEEDED");
  auto other = StartBuild(Put(Diagonal(5)));
  auto built = Built(*other);
  request = Solve(a);
  request.spec.reset();
  request.preconditioner = built->preconditioner;
  EXPECT_EQ(ReasonOf(bench_->StartSolve(std::move(request)).status()),
            "PRECONDITIONER_SIZE_MISMATCH");
}

TEST_F(JobFactoryTest, RefusesVectorsThatAreNotInTheNullSpace) {
  auto request = Solve(Put(Diagonal(3)));
  request.solve.null_space = kernels::NullSpaceChoice::kConstants;
  absl::Status status = bench_->StartSolve(std::move(request)).status();
  EXPECT_EQ(ReasonOf(status), "NOT_IN_NULL_SPACE");
  EXPECT_EQ(FieldOf(status), "null_space");
  request = Solve(Put(Diagonal(3)));
  request.solve.null_space = kernels::NullSpaceChoice::kGiven;
  request.null_vectors.assign(6, 0.0);
  status = bench_->StartSolve(std::move(request)).status();
  EXPECT_EQ(ReasonOf(status), "BAD_NULL_SPACE");
}

TEST_F(JobFactoryTest, ACancelledSolveLeavesItsIterate) {
  engine_.HoldSolves();
  auto ticket = bench_->StartSolve(Solve(Put(Diagonal(3))));
  engine_.WaitForSolves(1);
  ticket->job->RequestStop(StopCause::kCancelled);
  auto outcome = Solved(*ticket);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_CANCELLED);
  EXPECT_EQ(ticket->job->state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobFactoryTest, MaxRunIsAnOutcomeOfASolve) {
  engine_.HoldSolves();
  auto request = Solve(Put(Diagonal(3)));
  request.terms.limits.max_run = std::chrono::milliseconds(5);
  auto ticket = bench_->StartSolve(std::move(request));
  auto outcome = Solved(*ticket);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_TIME_LIMIT);
  EXPECT_EQ(ticket->job->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobFactoryTest, MaxRunIsAnErrorOfABuild) {
  engine_.HoldBuilds();
  JobFactory::Terms terms;
  terms.limits.max_run = std::chrono::milliseconds(5);
  auto ticket = StartBuild(Put(Diagonal(3)), Spec(), terms);
  AwaitEnd(ticket->job);
  EXPECT_EQ(ReasonOf(ticket->job->error()), "MAX_RUN");
}

TEST_F(JobFactoryTest, ADrainedSolveIsAnErrorToSendElsewhere) {
  engine_.HoldSolves();
  auto ticket = bench_->StartSolve(Solve(Put(Diagonal(3))));
  engine_.WaitForSolves(1);
  EXPECT_TRUE(scheduler_->Drain(RealClock().Now()));
  EXPECT_EQ(ticket->job->error().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(ticket->job->error()), "DRAINING");
}

TEST_F(JobFactoryTest, WhatAJobUsesIsNotEvicted) {
  engine_.HoldSolves();
  auto a = Put(Diagonal(3));
  const std::string handle = a.handle;
  auto ticket = bench_->StartSolve(Solve(a));
  a = {};
  engine_.WaitForSolves(1);
  ASSERT_TRUE(matrices_.Delete("t", handle).ok());
  EXPECT_GT(matrices_.stats().zombie_bytes, 0);
  engine_.Release();
  EXPECT_EQ(Solved(*ticket)->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_TRUE(scheduler_->Drain(RealClock().Now() + std::chrono::seconds(60)));
  EXPECT_EQ(matrices_.stats().zombie_bytes, 0);
}

TEST_F(JobFactoryTest, TheSolutionsBytesAreCountedUntilItIsGone) {
  ByteBudget budget("right-hand sides in flight", 1000);
  auto request = Solve(Put(Diagonal(3)));
  request.share = *budget.Take("t", 48);
  auto ticket = bench_->StartSolve(std::move(request));
  {
    auto outcome = Solved(*ticket);
    EXPECT_EQ(budget.used(), 48);
  }
  ticket->waiter.Leave();
  EXPECT_EQ(budget.used(), 48) << "nobody has it yet: kept for WatchJob";
  while (budget.used() > 0)
    jobs_.DropResults(
        1, [](const std::string&) { return true; });  // the table learns of the end a little later
  EXPECT_FALSE(ticket->job->result());

  request = Solve(Put(Diagonal(3)));
  request.share = *budget.Take("t", 48);
  auto second = bench_->StartSolve(std::move(request));
  Solved(*second);
  second->job->Delivered();
  second->waiter.Leave();
  EXPECT_EQ(budget.used(), 0);
}

TEST_F(JobFactoryTest, EstimatesAPattern) {
  auto pattern = Put(Diagonal(6), true);
  engine_.predicted_ms = 42;
  auto estimate = bench_->EstimateBuild("t", *pattern.value, Spec(v1::ENGINE_KIND_AUTO), "spec");
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->figures.predicted_ms, 42);
  EXPECT_EQ(estimate->figures.nnz_m, 6);
  EXPECT_EQ(ReasonOf(bench_->EstimateBuild("t", *pattern.value, {}, "spec").status()),
            "UNKNOWN_ENUM");
  EXPECT_EQ(jobs_.size(), 0);
}

TEST_F(JobFactoryTest, WorksOverTheRealEngine) {
  auto real = kernels::MakeCpuEngine();
  scheduler_.reset();
  EngineAdapter adapter(*real, {.threads = 1});
  SchedulerOptions options;
  Scheduler scheduler(options);
  JobFactory bench({.adapter = &adapter,
                    .matrices = &matrices_,
                    .preconditioners = &preconditioners_,
                    .scheduler = &scheduler,
                    .jobs = &jobs_});
  auto request = Solve(Put(Upper()));
  request.spec = Spec();
  request.solve.options.method = kernels::Method::kGmres;
  auto outcome = Solved(*bench.StartSolve(std::move(request)));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  // [4 1; 0 3] x = (6, 6): x = (1, 2).
  EXPECT_NEAR(outcome->x[0], 1, 1e-6);
  EXPECT_NEAR(outcome->x[1], 2, 1e-6);
}

// Builds and solves of FSAI over the real engine.
class FsaiWorkbenchTest : public JobFactoryTest {
 protected:
  static v1::PreconditionerSpec Afsai() {
    v1::PreconditionerSpec spec = Spec(v1::ENGINE_KIND_AFSAI);
    spec.mutable_fsai()->set_k_max(1);
    return spec;
  }
  v1::Preconditioner Build(const Stored<Matrix>& a, const v1::PreconditionerSpec& spec) {
    auto ticket = fsai_bench_->StartBuild(
        {.tenant = "t", .matrix = a, .spec = spec, .field = "header.spec", .terms = {}});
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (!ticket.ok()) return {};
    return ToProto(ticket->ready ? *ticket->ready : Built(*ticket)->preconditioner);
  }
  void SetUp() override {
    JobFactoryTest::SetUp();
    fsai_bench_ =
        std::make_unique<JobFactory>(JobFactory::Parts{.adapter = &cpu_adapter_,
                                                       .matrices = &matrices_,
                                                       .preconditioners = &preconditioners_,
                                                       .scheduler = &cpu_scheduler_,
                                                       .jobs = &jobs_});
  }

  std::unique_ptr<kernels::Engine> cpu_ = kernels::MakeCpuEngine();
  EngineAdapter cpu_adapter_{*cpu_, {.threads = 1}};
  Scheduler cpu_scheduler_{SchedulerOptions{}};
  std::unique_ptr<JobFactory> fsai_bench_;
};

TEST_F(FsaiWorkbenchTest, BuildsRebuildsAndGrowsAnew) {
  const auto a = Put(Banded(40)), next = Put(Banded(40, 1));
  const v1::Preconditioner first = Build(a, Afsai());
  EXPECT_TRUE(first.is_factor());
  EXPECT_EQ(first.spec().fsai().k_max(), 1);
  EXPECT_EQ(first.spec().fsai().epsilon(), 1e-3) << "resolved, with its defaults";
  EXPECT_FALSE(first.build_timings().rebuild());
  EXPECT_LT(first.quality().fsai().kaporin(), 1);
  EXPECT_EQ(Build(a, Afsai()).name(), first.name()) << "it is there";

  const v1::Preconditioner second = Build(next, Afsai());
  EXPECT_TRUE(second.build_timings().rebuild());
  EXPECT_TRUE(second.quality().fsai().pattern_reused());
  v1::PreconditionerSpec regrow = Afsai();
  regrow.mutable_fsai()->set_regrow(true);
  const v1::Preconditioner third = Build(next, regrow);
  EXPECT_NE(third.name(), second.name());
  EXPECT_FALSE(third.build_timings().rebuild());
  EXPECT_TRUE(third.spec().fsai().regrow());
  EXPECT_FALSE(third.quality().fsai().pattern_reused());
}

TEST_F(FsaiWorkbenchTest, FindsAScalingAnewForAnyEngine) {
  // Row and column 3 are far from the others. With columns reversed there is something to match.
  const auto uneven = [&](int power, bool reversed) {
    const kernels::CscMatrix banded = Banded(40);
    kernels::CscMatrix a = banded;
    a.col_ptr.resize(1);
    size_t to = 0;
    for (int64_t k = 0; k < 40; ++k) {
      const int64_t j = reversed ? 39 - k : k;
      for (int64_t p = banded.col_ptr[j]; p < banded.col_ptr[j + 1]; ++p, ++to) {
        a.row_idx[to] = banded.row_idx[p];
        a.values[to] = std::ldexp(banded.values[p], power * ((j == 3) + (a.row_idx[to] == 3)));
      }
      a.col_ptr.push_back(static_cast<int64_t>(to));
    }
    return Put(std::move(a));
  };
  const auto expect_anew = [&](v1::PreconditionerSpec spec, v1::Scaling scaling) {
    spec.set_scaling(scaling);
    const bool reversed = scaling == v1::SCALING_MATCHING;
    const auto first = uneven(10, reversed), next = uneven(11, reversed);
    EXPECT_FALSE(Build(first, spec).quality().scaling_reused());
    v1::PreconditionerSpec regrow = spec;
    regrow.set_regrow(true);
    const v1::Preconditioner anew = Build(next, regrow);
    EXPECT_EQ(anew.quality().scaling(), scaling);
    EXPECT_FALSE(anew.build_timings().rebuild());
    EXPECT_FALSE(anew.quality().scaling_reused());
    EXPECT_TRUE(anew.spec().regrow());
    EXPECT_EQ(Build(next, regrow).name(), anew.name()) << "it is there";
    const v1::Preconditioner again = Build(next, spec);
    EXPECT_NE(again.name(), anew.name());
    EXPECT_FALSE(again.spec().regrow());
    EXPECT_TRUE(again.build_timings().rebuild());
    EXPECT_FALSE(again.quality().scaling_reused()) << "the factors that are kept are its own";
    const v1::Preconditioner other = Build(uneven(12, reversed), spec);
    EXPECT_TRUE(other.build_timings().rebuild());
    EXPECT_TRUE(other.quality().scaling_reused());
  };
  expect_anew(Spec(), v1::SCALING_EQUILIBRATE);
  expect_anew(Spec(), v1::SCALING_MATCHING);
  expect_anew(Spec(v1::ENGINE_KIND_FSAI), v1::SCALING_EQUILIBRATE);
  expect_anew(Spec(v1::ENGINE_KIND_JACOBI), v1::SCALING_EQUILIBRATE);
}

// What solved A scaled is begun with, of A scaled, as often as it serves.
TEST_F(FsaiWorkbenchTest, AutoBeginsAgainWithAScaledMatrix) {
  constexpr int64_t kN = 600;
  const kernels::CscMatrix banded = Banded(kN);
  kernels::CscMatrix a = banded;
  a.col_ptr.resize(1);
  size_t to = 0;
  for (int64_t k = 0; k < kN; ++k) {
    const int64_t j = kN - 1 - k;
    for (int64_t p = banded.col_ptr[j]; p < banded.col_ptr[j + 1]; ++p, ++to) {
      a.row_idx[to] = banded.row_idx[p];
      a.values[to] = std::ldexp(banded.values[p], static_cast<int>(7 * a.row_idx[to] % 81 - 40));
    }
    a.col_ptr.push_back(static_cast<int64_t>(to));
  }
  const auto matrix = Put(std::move(a));
  std::vector<double> b(kN, 0.0);
  const kernels::CscMatrix& csc = matrix.value->csc;
  for (size_t p = 0; p < csc.values.size(); ++p) b[csc.row_idx[p]] += csc.values[p];
  for (int turn = 0; turn < 4; ++turn) {
    auto request = Solve(matrix);
    request.spec = Spec(v1::ENGINE_KIND_AUTO);
    request.solve.options.method = kernels::Method::kAuto;
    request.b.assign(b.begin(), b.end());
    const auto outcome = Solved(*fsai_bench_->StartSolve(std::move(request)));
    ASSERT_TRUE(outcome);
    const v1::SolveDone& done = outcome->done;
    EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
    if (turn == 0) {
      EXPECT_GT(done.rungs_size(), 1);
    } else {
      EXPECT_EQ(done.rungs_size(), 0) << turn << ": " << done.rungs(0).what();
      EXPECT_NE(done.quality().scaling(), v1::SCALING_NONE);
    }
  }
}

TEST_F(FsaiWorkbenchTest, WhereThereIsNothingToFindAnewItIsTheSameBuild) {
  const auto a = Put(Banded(40));
  for (const auto engine : {v1::ENGINE_KIND_FSAI, v1::ENGINE_KIND_STATIC_SPAI}) {
    v1::PreconditionerSpec regrow = Spec(engine);
    regrow.set_regrow(true);
    const v1::Preconditioner built = Build(a, regrow);
    EXPECT_FALSE(built.spec().regrow());
    EXPECT_EQ(Build(a, Spec(engine)).name(), built.name());
  }
}

TEST_F(FsaiWorkbenchTest, ABuildWithATimeBudgetIsNobodyElses) {
  const auto a = Put(Banded(40));
  v1::PreconditionerSpec timed = Afsai();
  timed.mutable_fsai()->mutable_time_budget()->set_seconds(100);
  EXPECT_NE(Build(a, timed).name(), Build(a, timed).name());
}

TEST_F(FsaiWorkbenchTest, ASolveBuildsItAndTakesCg) {
  auto request = Solve(Put(Banded(40)));
  request.spec = Afsai();
  request.solve.options.method = kernels::Method::kAuto;
  const auto outcome = Solved(*fsai_bench_->StartSolve(std::move(request)));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->done.method(), v1::METHOD_CG);
  EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(outcome->done.choice().engine(), v1::ENGINE_KIND_AFSAI);
  EXPECT_TRUE(outcome->done.quality().has_fsai());
  // The build's refusal is the solve's, here before anything is built: CG is not sound.
  auto refused = Solve(Put(Upper()));
  refused.spec = Afsai();
  refused.solve.options.method = kernels::Method::kCg;
  EXPECT_EQ(ReasonOf(fsai_bench_->StartSolve(std::move(refused)).status()), "NOT_SYMMETRIC");
  auto failed = Solve(Put(Upper()));
  failed.spec = Afsai();
  failed.solve.options.method = kernels::Method::kGmres;
  auto ticket = fsai_bench_->StartSolve(std::move(failed));
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  AwaitEnd(ticket->job);
  EXPECT_EQ(ReasonOf(ticket->job->error()), "NOT_SYMMETRIC");
}

TEST_F(FsaiWorkbenchTest, AutoServesEveryMethod) {
  for (const kernels::Method method :
       {kernels::Method::kAuto, kernels::Method::kCg, kernels::Method::kBicgstab,
        kernels::Method::kGmres, kernels::Method::kMinres, kernels::Method::kIdr}) {
    auto request = Solve(Put(Banded(40)));
    request.spec = Spec(v1::ENGINE_KIND_AUTO);
    request.solve.options.method = method;
    const auto outcome = Solved(*fsai_bench_->StartSolve(std::move(request)));
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(outcome->done.choice().reason().starts_with("Jacobi: what costs least"));
    EXPECT_EQ(outcome->done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  }
}

TEST_F(FsaiWorkbenchTest, AutoBuildsWhatSolves) {
  const auto a = Put(Banded(40));
  const v1::Preconditioner built = Build(a, Spec(v1::ENGINE_KIND_AUTO));
  EXPECT_EQ(built.spec().engine(), v1::ENGINE_KIND_JACOBI) << "it solves a small one";
  // Equal requests build nothing new; the first one is known by then.
  EXPECT_EQ(Build(a, Spec(v1::ENGINE_KIND_AUTO)).name(), built.name());
  EXPECT_EQ(Build(a, Spec(v1::ENGINE_KIND_JACOBI)).name(), built.name());
  // A rotation has no diagonal, of which no Jacobi is made.
  kernels::CscMatrix rotation = Diagonal(40);
  for (int32_t j = 0; j < 40; ++j) rotation.row_idx[j] = (j + 1) % 40;
  const auto rotated = Put(std::move(rotation));
  const v1::Preconditioner other = Build(rotated, Spec(v1::ENGINE_KIND_AUTO));
  EXPECT_EQ(other.spec().engine(), v1::ENGINE_KIND_STATIC_SPAI);
  EXPECT_NE(other.choice().reason().find("a solve with a right-hand side of its own came to it"),
            std::string::npos)
      << other.choice().reason();
}

TEST_F(FsaiWorkbenchTest, EstimatesBoundTheBuild) {
  const auto a = Put(Banded(40));
  const auto estimate = fsai_bench_->EstimateBuild("t", *a.value, Afsai(), "spec");
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->choice.engine(), v1::ENGINE_KIND_AFSAI);
  EXPECT_LE(estimate->figures.nnz_m, 40 * 2);
  const v1::Preconditioner built = Build(a, Afsai());
  EXPECT_GE(estimate->figures.nnz_m, built.nnz());
  EXPECT_GE(estimate->figures.host_bytes, built.host_bytes());
}

}  // namespace
}  // namespace spaid::server
