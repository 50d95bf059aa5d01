#include "server/engine/job_factory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/server/engine/job_factory_fixture.h"

namespace spaid::server {
namespace {

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
  const auto& true_values = a.value->values;
  const auto& others = forged.value->values;
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
    EXPECT_EQ(solved->x[at], 6 / matrix.value->values[at]);
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
  // It solves it no more: the rung that does is begun with.
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

}  // namespace
}  // namespace spaid::server
