// Builds and solves as jobs: queue, events, sharing, cancellation, detachment, limits, drain.
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

v1::ArrayChunk Rhs(const std::vector<double>& b) { return ChunkOf(v1::ARRAY_KIND_RHS, 0, b); }

v1::Job GetJob(Harness& h, const std::string& name) {
  auto context = Context();
  v1::GetJobRequest request;
  request.set_name(name);
  v1::GetJobResponse response;
  const grpc::Status status = h.jobs->GetJob(context.get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.job();
}

v1::Job Cancel(Harness& h, const std::string& name) {
  auto context = Context();
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::CancelJobResponse response;
  const grpc::Status status = h.jobs->CancelJob(context.get(), request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.job();
}

TEST(Build, EventsThenTheResultThenDone) {
  Harness h;
  BuildCall call = OpenBuild(h);
  v1::BuildHeader header = BuildOf("", Jacobi());
  const Csc a = DiagonalMatrix(3, 2);
  *header.mutable_inline_matrix() = HeaderOf(a);
  header.set_stream_result(true);
  call.Head(header);
  for (const auto& chunk : ChunksOf(a)) call.Chunk(chunk);
  std::vector<v1::BuildPreconditionerResponse> events;
  const grpc::Status status = call.Done().Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(events.front().has_matrix());
  int64_t number = 0;
  bool queued = false, started = false, quality = false, finished = false;
  std::vector<double> values;
  for (const auto& event : events) {
    if (event.has_job()) {
      EXPECT_EQ(event.job().number(), ++number);
      queued |= event.job().has_queued();
      started |= event.job().has_started();
      quality |= event.job().has_quality();
      finished |= event.job().has_finished();
    } else if (event.has_result()) {
      EXPECT_TRUE(finished);
      EXPECT_EQ(event.result().nnz(), 3);
    } else if (event.has_chunk() && event.chunk().array() == v1::ARRAY_KIND_VALUES) {
      values.resize(event.chunk().data().size() / 8);
      std::memcpy(values.data(), event.chunk().data().data(), event.chunk().data().size());
    }
  }
  EXPECT_TRUE(queued && started && quality && finished);
  EXPECT_EQ(values, (std::vector<double>{1.0 / 2, 1.0 / 3, 1.0 / 4}));
  const v1::BuildDone& done = events.back().done();
  EXPECT_EQ(done.preconditioner().matrix(), events.front().matrix().name());
  EXPECT_EQ(done.timings().bytes_up(), 4 * 8 + 3 * 4 + 3 * 8);
  EXPECT_EQ(done.timings().bytes_down(), 4 * 8 + 3 * 4 + 3 * 8);
  EXPECT_FALSE(done.timings().reused());
}

TEST(Build, TheSameAgainIsReusedAndNewValuesRebuild) {
  Harness h;
  const std::string a = h.Store(DiagonalMatrix(3, 2));
  const std::string b = h.Store(DiagonalMatrix(3, 5));
  std::vector<v1::BuildDone> done;
  for (const std::string& matrix : {a, a, b}) {
    BuildCall call = OpenBuild(h);
    std::vector<v1::BuildPreconditionerResponse> events;
    ASSERT_TRUE(call.Head(BuildOf(matrix, Jacobi())).Done().Finish(&events).ok());
    done.push_back(events.back().done());
  }
  EXPECT_TRUE(done[1].timings().reused());
  EXPECT_EQ(done[1].preconditioner().name(), done[0].preconditioner().name());
  EXPECT_TRUE(done[2].timings().rebuild());
  EXPECT_EQ(h.engine.builds, 2);
  EXPECT_EQ(h.engine.plans, 1);
}

TEST(Build, IdenticalBuildsInFlightAreOneAndOutliveTheFirstCaller) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(3));
  h.engine.HoldBuilds();
  BuildCall first = OpenBuild(h);
  first.Head(BuildOf(matrix, Jacobi())).Done();
  const std::string job = JobName(first);
  BuildCall second = OpenBuild(h);
  second.Head(BuildOf(matrix, Jacobi())).Done();
  EXPECT_EQ(JobName(second), job);
  first.Cancel();
  EXPECT_EQ(first.Finish().error_code(), grpc::StatusCode::CANCELLED);
  h.engine.Release();
  std::vector<v1::BuildPreconditionerResponse> events;
  const grpc::Status status = second.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(events.back().done().timings().reused());
  EXPECT_EQ(h.engine.builds, 1);
}

// It is as urgent as the most urgent of those who wait for it, from when they come to when they go.
TEST(Build, SharedItGoesByTheMostUrgentOfItsWaiters) {
  Harness h;
  h.engine.HoldBuilds();
  const auto build = [&](double first, v1::Priority priority) {
    BuildCall call = OpenBuild(h);
    v1::BuildHeader header = BuildOf(h.Store(DiagonalMatrix(3, first)), Jacobi());
    header.set_priority(priority);
    call.Head(header).Done();
    return call;
  };
  BuildCall running = build(1, v1::PRIORITY_NORMAL);
  WaitStarted(running);
  BuildCall normal = build(2, v1::PRIORITY_NORMAL);
  const std::string normal_job = JobName(normal);
  BuildCall patient = build(3, v1::PRIORITY_BULK);
  const std::string job = JobName(patient);
  EXPECT_EQ(GetJob(h, job).priority(), v1::PRIORITY_BULK);
  BuildCall urgent = build(3, v1::PRIORITY_INTERACTIVE), late = build(3, v1::PRIORITY_NORMAL);
  EXPECT_EQ(JobName(urgent), job);
  EXPECT_EQ(JobName(late), job);
  EXPECT_EQ(GetJob(h, job).priority(), v1::PRIORITY_INTERACTIVE);
  h.engine.Release();
  for (BuildCall* call : {&running, &normal, &patient, &urgent, &late}) {
    const grpc::Status status = call->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  const auto started = [&](const std::string& name) {
    const v1::Job ended = WaitEnded(h, name);
    return ended.start_time().seconds() * 1'000'000'000 + ended.start_time().nanos();
  };
  EXPECT_LT(started(job), started(normal_job));
}

TEST(Build, TheServersOwnLimitsDoNotKeepBuildsApart) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.max_queue = options.backend.max_run = std::chrono::hours(1);
  Harness h(options);
  const std::string matrix = h.Store(DiagonalMatrix(3));
  h.engine.HoldBuilds();
  BuildCall first = OpenBuild(h), second = OpenBuild(h), own = OpenBuild(h);
  first.Head(BuildOf(matrix, Jacobi())).Done();
  const std::string job = JobName(first);
  second.Head(BuildOf(matrix, Jacobi())).Done();
  EXPECT_EQ(JobName(second), job);
  v1::BuildHeader limited = BuildOf(matrix, Jacobi());
  limited.mutable_limits()->mutable_max_run()->set_seconds(60);
  own.Head(limited).Done();
  EXPECT_NE(JobName(own), job);
  h.engine.Release();
  for (BuildCall* call : {&first, &second, &own}) EXPECT_TRUE(call->Finish().ok());
}

// M takes 20 n + 8 bytes and some.
TEST(Build, WhatCouldNotBeStoredIsRefusedBeforeItIsQueued) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.preconditioner_store_bytes = 20'000;
  Harness h(options);
  const std::string matrix = h.Store(DiagonalMatrix(2000));
  BuildCall build = OpenBuild(h);
  build.Head(BuildOf(matrix, Jacobi())).Done();
  EXPECT_RPC_ERROR(build.Finish(), RESOURCE_EXHAUSTED, "BUILD_TOO_LARGE",
                   "--preconditioner-store-bytes");
  EXPECT_EQ(h.engine.builds, 0);
  EXPECT_EQ(h.backend->jobs().size(), 0);
  // A solve needs its M, not the store.
  SolveCall solve = OpenSolve(h);
  solve.Head(SolveOf(matrix, Jacobi())).Chunk(Rhs(std::vector<double>(2000, 1.0))).Done();
  std::vector<v1::SolveResponse> events;
  const grpc::Status status = solve.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::SolveDone& done = events.back().done();
  EXPECT_EQ(done.outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(done.preconditioner(), "");
  EXPECT_EQ(done.nnz_ratio(), 1);
  ASSERT_EQ(done.quality().warnings_size(), 1);
  EXPECT_NE(done.quality().warnings(0).find("was not kept"), std::string::npos);
  EXPECT_EQ(h.backend->preconditioners().stats().entries, 0);
}

TEST(Build, ADroppedStreamCancelsItsJob) {
  Harness h;
  h.engine.HoldBuilds();
  BuildCall call = OpenBuild(h);
  call.Head(BuildOf(h.Store(DiagonalMatrix(3)), Jacobi())).Done();
  const std::string job = JobName(call);
  h.engine.WaitForBuilds(1);
  call.Cancel();
  const v1::Job ended = WaitEnded(h, job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ended.error().reason(), "ABANDONED");
  EXPECT_FALSE(call.Finish().ok());
}

TEST(Build, ADetachedJobSurvivesItsStream) {
  Harness h;
  h.engine.HoldBuilds();
  BuildCall call = OpenBuild(h);
  v1::BuildHeader header = BuildOf(h.Store(DiagonalMatrix(3)), Jacobi());
  header.set_detach(true);
  call.Head(header).Done();
  const std::string job = JobName(call);
  h.engine.WaitForBuilds(1);
  call.Cancel();
  EXPECT_FALSE(call.Finish().ok());
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_EQ(GetJob(h, job).state(), v1::JOB_STATE_RUNNING);
  h.engine.Release();
  const v1::Job ended = WaitEnded(h, job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(ended.detached());
  EXPECT_EQ(ended.preconditioner().rfind("preconditioners/", 0), 0u);
}

TEST(Build, ADeadlineStopsTheJob) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(3));
  h.engine.HoldBuilds();
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + seconds(2));
  BuildCall call(std::move(context), &v1::PreconditionerService::Stub::BuildPreconditioner,
                 *h.preconditioners);
  call.Head(BuildOf(matrix, Jacobi())).Done();
  const std::string job = JobName(call);
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const v1::Job ended = WaitEnded(h, job);
  EXPECT_NE(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_NE(ended.state(), v1::JOB_STATE_RUNNING);
}

TEST(Build, MaxRunAndMaxQueueAreErrorsWithTheirReason) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(3));
  h.engine.HoldBuilds();
  v1::BuildHeader header = BuildOf(matrix, Jacobi());
  header.mutable_limits()->mutable_max_run()->set_nanos(20'000'000);
  BuildCall run = OpenBuild(h);
  run.Head(header).Done();
  EXPECT_RPC_ERROR(run.Finish(), DEADLINE_EXCEEDED, "MAX_RUN", "");

  BuildCall holder = OpenBuild(h);
  holder.Head(BuildOf(matrix, Jacobi())).Done();
  WaitStarted(holder);
  header = BuildOf(matrix, StaticSpai());
  header.mutable_spec()->mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_AUTO);
  header.mutable_limits()->mutable_max_queue()->set_nanos(20'000'000);
  BuildCall queued = OpenBuild(h);
  queued.Head(header).Done();
  EXPECT_RPC_ERROR(queued.Finish(), DEADLINE_EXCEEDED, "MAX_QUEUE", "");
  h.engine.Release();
  EXPECT_TRUE(holder.Finish().ok());
}

TEST(Build, AFullQueueSaysWhenToComeBack) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.max_queued_jobs = 1;
  Harness h(options);
  h.engine.predicted_ms = 5'000;
  h.engine.HoldBuilds();
  BuildCall running = OpenBuild(h);
  running.Head(BuildOf(h.Store(DiagonalMatrix(3, 1)), Jacobi())).Done();
  WaitStarted(running);
  BuildCall queued = OpenBuild(h);
  queued.Head(BuildOf(h.Store(DiagonalMatrix(3, 2)), Jacobi())).Done();
  const auto event =
      queued.ReadUntil([](const auto& r) { return r.has_job() && r.job().has_queued(); });
  EXPECT_GT(event.job().queued().eta_ms(), 0);
  BuildCall refused = OpenBuild(h);
  refused.Head(BuildOf(h.Store(DiagonalMatrix(3, 3)), Jacobi())).Done();
  const grpc::Status status = refused.Finish();
  EXPECT_RPC_ERROR(status, RESOURCE_EXHAUSTED, "QUEUE_FULL", "");
  ASSERT_TRUE(Decode(status).retry_ms.has_value());
  EXPECT_GT(*Decode(status).retry_ms, 1'000);
  h.engine.Release();
  EXPECT_TRUE(running.Finish().ok());
  EXPECT_TRUE(queued.Finish().ok());
  h.ExpectLives();
}

TEST(CancelJob, InEveryState) {
  Harness h;
  h.engine.HoldBuilds();
  BuildCall running = OpenBuild(h);
  running.Head(BuildOf(h.Store(DiagonalMatrix(3, 1)), Jacobi())).Done();
  const std::string running_job = JobName(running);
  WaitStarted(running);
  BuildCall queued = OpenBuild(h);
  queued.Head(BuildOf(h.Store(DiagonalMatrix(3, 2)), Jacobi())).Done();
  const std::string queued_job = JobName(queued);

  EXPECT_EQ(Cancel(h, queued_job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_RPC_ERROR(queued.Finish(), CANCELLED, "CANCELLED", "");
  Cancel(h, running_job);
  EXPECT_RPC_ERROR(running.Finish(), CANCELLED, "CANCELLED", "");
  EXPECT_EQ(GetJob(h, running_job).state(), v1::JOB_STATE_CANCELLED);
  // Ended: no error, nothing changes.
  EXPECT_EQ(Cancel(h, running_job).state(), v1::JOB_STATE_CANCELLED);
  h.ExpectLives();
}

TEST(CancelJob, OfASolveBringsTheBestIterate) {
  Harness h;
  h.engine.HoldSolves();
  SolveCall call = OpenSolve(h);
  call.Head(SolveOf(h.Store(DiagonalMatrix(3)), None())).Chunk(Rhs({1, 2, 3})).Done();
  const std::string job = JobName(call);
  WaitStarted(call);
  h.engine.WaitForSolves(1);
  Cancel(h, job);
  std::vector<v1::SolveResponse> events;
  const grpc::Status status = call.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(events.back().done().outcomes(0).outcome(), v1::OUTCOME_CANCELLED);
  EXPECT_EQ(events.back().done().outcomes(0).true_relative_residual(), 1);
  EXPECT_TRUE(events[events.size() - 2].has_chunk());
}

TEST(Solve, SpecBuildsOnceSeveralRightHandSides) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(2, 2));
  for (int round = 0; round < 2; ++round) {
    SolveCall call = OpenSolve(h);
    v1::SolveHeader header = SolveOf(matrix, Jacobi());
    header.set_rhs_count(2);
    call.Head(header).Chunk(Rhs({2, 3, 4, 6})).Done();
    std::vector<v1::SolveResponse> events;
    const grpc::Status status = call.Finish(&events);
    ASSERT_TRUE(status.ok()) << status.error_message();
    const v1::SolveDone& done = events.back().done();
    ASSERT_EQ(done.outcomes_size(), 2);
    EXPECT_EQ(done.nnz_ratio(), 1);
    EXPECT_EQ(done.timings().reused(), round == 1);
    EXPECT_EQ(done.timings().bytes_up(), 32);
    EXPECT_EQ(done.timings().bytes_down(), 32);
    EXPECT_FALSE(done.preconditioner().empty());
    int residuals = 0;
    for (const auto& event : events) residuals += event.job().residuals().residuals_size();
    EXPECT_EQ(residuals, 6);
  }
  EXPECT_EQ(h.engine.builds, 1);
}

TEST(Solve, OmitSolutionSendsNone) {
  Harness h;
  SolveCall call = OpenSolve(h);
  v1::SolveHeader header = SolveOf(h.Store(DiagonalMatrix(2)), None());
  header.set_omit_solution(true);
  call.Head(header).Chunk(Rhs({2, 3})).Done();
  std::vector<v1::SolveResponse> events;
  ASSERT_TRUE(call.Finish(&events).ok());
  for (const auto& event : events) EXPECT_FALSE(event.has_chunk());
  EXPECT_EQ(events.back().done().timings().bytes_down(), 0);
}

TEST(Solve, AMatrixDeletedMeanwhileStaysInUse) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(2, 2));
  h.engine.HoldSolves();
  SolveCall call = OpenSolve(h);
  call.Head(SolveOf(matrix, None())).Chunk(Rhs({2, 3})).Done();
  WaitStarted(call);
  auto context = Context();
  v1::DeleteMatrixRequest request;
  request.set_name(matrix);
  v1::DeleteMatrixResponse response;
  ASSERT_TRUE(h.matrices->DeleteMatrix(context.get(), request, &response).ok());
  SolveCall late = OpenSolve(h);
  late.Head(SolveOf(matrix, None())).Chunk(Rhs({2, 3})).Done();
  EXPECT_RPC_ERROR(late.Finish(), NOT_FOUND, "HANDLE_UNKNOWN", matrix);
  h.engine.Release();
  std::vector<v1::SolveResponse> events;
  ASSERT_TRUE(call.Finish(&events).ok());
  EXPECT_EQ(events.back().done().outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  EXPECT_EQ(h.backend->matrices().stats().entries, 0);
}

// Ended solves of 1024 right-hand sides each, which is more than a message holds.
TEST(ListJobs, FitsAMessageWhateverTheJobs) {
  Harness h;
  v1::RhsOutcome outcome;
  outcome.set_outcome(v1::OUTCOME_MAX_ITERATIONS);
  outcome.set_detail(std::string(100, 'd'));
  std::string name;
  for (int i = 0; i < 60; ++i) {
    auto job = Job::Create(
        {.tenant = "default", .kind = v1::JOB_KIND_SOLVE, .matrix = {}, .preconditioner = {}}, {},
        RealClock());
    h.backend->jobs().Add(job);
    job->Start({"cpu"});
    std::vector<v1::RhsOutcome> outcomes(1024, outcome);
    outcomes.front().set_outcome(v1::OUTCOME_CONVERGED);
    job->SetOutcomes(std::move(outcomes));
    // Half of them with an error text that makes the list too long even so.
    job->Finish(i % 2 ? absl::InternalError(std::string(200'000, 'e')) : absl::OkStatus());
    name = job->name();
  }
  std::set<std::string> seen;
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  int pages = 0;
  do {
    auto context = Context();
    v1::ListJobsResponse response;
    const grpc::Status status = h.jobs->ListJobs(context.get(), request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (const v1::Job& job : response.jobs()) {
      ASSERT_EQ(job.outcomes_size(), 1);
      EXPECT_EQ(job.outcomes(0).outcome(), v1::OUTCOME_MAX_ITERATIONS);
      EXPECT_EQ(job.outcome_count(), 1024);
      EXPECT_TRUE(seen.insert(job.name()).second) << "twice: " << job.name();
    }
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(seen.size(), 60u);
  EXPECT_GE(pages, 3);
  EXPECT_EQ(GetJob(h, name).outcomes_size(), 1024);
}

TEST(WatchJob, ReopensFromAnEventNumberWithoutGaps) {
  Harness h;
  SolveCall call = OpenSolve(h);
  v1::SolveHeader header = SolveOf(h.Store(DiagonalMatrix(2)), None());
  header.set_detach(true);
  call.Head(header).Chunk(Rhs({2, 3})).Done();
  const std::string job = JobName(call);
  ASSERT_TRUE(call.Finish().ok());
  const int64_t count = GetJob(h, job).event_count();
  ASSERT_GE(count, 3);
  for (int64_t first = 1; first <= count + 1; ++first) {
    auto context = Context();
    v1::WatchJobRequest request;
    request.set_name(job);
    request.set_first_event(first);
    auto stream = h.jobs->WatchJob(context.get(), request);
    v1::WatchJobResponse response;
    int64_t next = first;
    while (stream->Read(&response)) EXPECT_EQ(response.event().number(), next++);
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(next, count + 1);
  }
  auto context = Context();
  v1::WatchJobRequest bad;
  bad.set_name(job);
  bad.set_first_event(-1);
  auto stream = h.jobs->WatchJob(context.get(), bad);
  v1::WatchJobResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_RPC_ERROR(stream->Finish(), INVALID_ARGUMENT, "BAD_LIMIT", "-1");
}

struct Watched {
  grpc::Status status;
  v1::Job job;
  std::optional<v1::SolutionHeader> size;
  std::vector<double> x;
};
Watched WatchWithSolution(Harness& h, const std::string& job, const std::string& tenant = "") {
  Watched watched;
  auto context = Context(tenant);
  v1::WatchJobRequest request;
  request.set_name(job);
  request.set_with_solution(true);
  auto stream = h.jobs->WatchJob(context.get(), request);
  v1::WatchJobResponse response;
  while (stream->Read(&response)) {
    if (response.event().has_finished()) watched.job = response.event().finished().job();
    if (response.has_solution()) watched.size = response.solution();
    if (response.has_chunk()) {
      EXPECT_TRUE(watched.size.has_value());
      EXPECT_EQ(response.chunk().array(), v1::ARRAY_KIND_SOLUTION);
      EXPECT_EQ(response.chunk().offset(), static_cast<int64_t>(watched.x.size()));
      EXPECT_TRUE(response.chunk().has_crc32());
      const std::string& data = response.chunk().data();
      watched.x.resize(watched.x.size() + data.size() / 8);
      std::memcpy(&*(watched.x.end() - static_cast<std::ptrdiff_t>(data.size() / 8)), data.data(),
                  data.size());
    }
  }
  watched.status = stream->Finish();
  return watched;
}

TEST(WatchJob, BringsTheSolutionOfADetachedJob) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.rhs_bytes = 200;
  Harness h(options);
  h.engine.HoldSolves();
  SolveCall call = OpenSolve(h);
  v1::SolveHeader header = SolveOf(h.Store(DiagonalMatrix(2, 2)), None());
  header.set_detach(true);
  header.set_rhs_count(2);
  call.Head(header).Chunk(Rhs({2, 3, 4, 6})).Done();
  const std::string job = JobName(call);
  call.Cancel();
  EXPECT_FALSE(call.Finish().ok());
  h.engine.Release();
  for (int time = 0; time < 2; ++time) {  // any number of times
    const Watched watched = WatchWithSolution(h, job);
    ASSERT_TRUE(watched.status.ok()) << watched.status.error_message();
    EXPECT_EQ(watched.job.state(), v1::JOB_STATE_SUCCEEDED);
    ASSERT_TRUE(watched.size.has_value());
    EXPECT_EQ(watched.size->n(), 2);
    EXPECT_EQ(watched.size->rhs_count(), 2);
    EXPECT_EQ(watched.x, (std::vector<double>{1, 1, 2, 2}));
  }
  // Events alone, as before, where nobody asks.
  EXPECT_EQ(WaitEnded(h, job).name(), job);
  EXPECT_EQ(h.backend->rhs_budget().used(), 64);
  // Its room is needed: another solve of 160 of the 200 bytes, as soon as nothing of before holds
  // it.
  header.set_rhs_count(5);
  const auto end = std::chrono::steady_clock::now() + seconds(30);
  for (bool solved = false; !solved;) {
    SolveCall other = OpenSolve(h);
    other.Head(header).Chunk(Rhs(std::vector<double>(10, 6.0))).Done();
    const grpc::Status status = other.Finish();
    solved = status.ok();
    if (!solved) {
      ASSERT_EQ(Decode(status).reason, "BUFFER_FULL") << status.error_message();
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
  }
  const Watched late = WatchWithSolution(h, job);
  EXPECT_RPC_ERROR(late.status, NOT_FOUND, "SOLUTION_GONE", "solve again");
  EXPECT_EQ(late.job.name(), job) << "its events are still there";
}

TEST(WatchJob, HasNoSolutionOfOthers) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(2, 2));
  SolveCall solve = OpenSolve(h);
  solve.Head(SolveOf(matrix, None())).Chunk(Rhs({2, 3})).Done();
  const std::string delivered = JobName(solve);
  ASSERT_TRUE(solve.Finish().ok());
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_RPC_ERROR(WatchWithSolution(h, delivered).status, NOT_FOUND, "SOLUTION_GONE", "stream");
  EXPECT_EQ(h.backend->rhs_budget().used(), 0);

  BuildCall build = OpenBuild(h);
  build.Head(BuildOf(matrix, Jacobi())).Done();
  const std::string built = JobName(build);
  ASSERT_TRUE(build.Finish().ok());
  const grpc::Status status = WatchWithSolution(h, built).status;
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "NOT_A_SOLVE", "preconditioner");
  EXPECT_EQ(Decode(status).field, "with_solution");

  h.engine.FailBuilds(kernels::Status(kernels::StatusCode::kFailedPrecondition, "ZERO_DIAGONAL",
                                      "the diagonal is zero at 2"));
  SolveCall failing = OpenSolve(h);
  failing.Head(SolveOf(h.Store(DiagonalMatrix(2, 7)), Jacobi())).Chunk(Rhs({2, 3})).Done();
  const std::string failed = JobName(failing);
  EXPECT_FALSE(failing.Finish().ok());
  const Watched watched = WatchWithSolution(h, failed);
  EXPECT_TRUE(watched.status.ok());
  EXPECT_EQ(watched.job.error().reason(), "ZERO_DIAGONAL");
  EXPECT_FALSE(watched.size.has_value());
}

// Residuals as events bring them: all of them, in order.
class History {
 public:
  void Take(const v1::JobEvent& event) {
    if (!event.has_residuals()) return;
    ++events;
    EXPECT_EQ(event.residuals().stride(), 0);
    for (const v1::Residual& residual : event.residuals().residuals()) {
      EXPECT_EQ(residual.iteration(), next++);
    }
  }
  int events = 0;
  int next = 0;  // iteration
};

TEST(Solve, ResidualsComeAtABoundedRateAndInFull) {
  constexpr int kResiduals = 90'000;
  Harness h;
  h.engine.residuals = kResiduals;
  const auto start = std::chrono::steady_clock::now();
  SolveCall call = OpenSolve(h);
  call.Head(SolveOf(h.Store(DiagonalMatrix(2)), None())).Chunk(Rhs({2, 3})).Done();
  std::vector<v1::SolveResponse> events;
  ASSERT_TRUE(call.Finish(&events).ok());
  const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
  History history;
  for (const auto& event : events) history.Take(event.job());
  EXPECT_EQ(history.next, kResiduals);
  EXPECT_GE(history.events, 2) << "the first one at once";
  EXPECT_LE(history.events, 2 + 20 * s.count());
}

TEST(WatchJob, ALateOneGetsTheHistoryThenGoesOn) {
  Harness h;
  h.engine.residuals = 5000;
  h.engine.residuals_after_hold = 2000;
  h.engine.HoldSolves();
  SolveCall call = OpenSolve(h);
  call.Head(SolveOf(h.Store(DiagonalMatrix(2)), None())).Chunk(Rhs({2, 3})).Done();
  const std::string job = JobName(call);
  h.engine.WaitForSolves(1);

  auto context = Context();
  v1::WatchJobRequest request;
  request.set_name(job);
  auto stream = h.jobs->WatchJob(context.get(), request);
  v1::WatchJobResponse response;
  History history;
  int64_t number = 1;
  // Some, before it goes on; it is what had come until then.
  while (history.next == 0 && stream->Read(&response)) {
    EXPECT_EQ(response.event().number(), number++);
    history.Take(response.event());
  }
  EXPECT_GT(history.next, 0);
  EXPECT_LE(history.next, 3000);
  EXPECT_FALSE(response.event().has_finished());
  h.engine.Release();
  while (stream->Read(&response)) {
    EXPECT_EQ(response.event().number(), number++);
    history.Take(response.event());
  }
  EXPECT_TRUE(response.event().has_finished());
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(history.next, 5000);
  EXPECT_TRUE(call.Finish().ok());

  // And one that comes after the end.
  History again;
  auto later = Context();
  stream = h.jobs->WatchJob(later.get(), request);
  while (stream->Read(&response)) again.Take(response.event());
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(again.next, 5000);
  EXPECT_EQ(again.events, history.events);
}

TEST(Solve, SaysHowMIsStoredAndWhatTheIterationsMoved) {
  Harness h;
  SolveCall call = OpenSolve(h);
  v1::SolveHeader header = SolveOf(h.Store(DiagonalMatrix(2)), StaticSpai());
  header.set_preconditioner_storage(v1::PRECISION_FP32);
  call.Head(header).Chunk(Rhs({2, 3})).Done();
  std::vector<v1::SolveResponse> events;
  const grpc::Status status = call.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::SolveDone& done = events.back().done();
  EXPECT_EQ(done.preconditioner_storage(), v1::PRECISION_FP32);
  EXPECT_EQ(done.storage_reason(), "as the fake was told");
  EXPECT_EQ(done.figures().iterations(), 3);
  EXPECT_EQ(done.figures().iterations_per_second(), 1500);
  EXPECT_EQ(done.figures().bytes_per_second(), 1e9);
  EXPECT_EQ(done.figures().copy_share(), 0.25) << "of 4 GB/s";

  SolveCall bad = OpenSolve(h);
  header.set_preconditioner_storage(static_cast<v1::Precision>(17));
  bad.Head(header).Chunk(Rhs({2, 3})).Done();
  const grpc::Status refused = bad.Finish();
  EXPECT_RPC_ERROR(refused, INVALID_ARGUMENT, "UNKNOWN_ENUM", "AUTO, FP64, FP32");
  EXPECT_EQ(Decode(refused).field, "header.preconditioner_storage");
}

TEST(WatchJob, FollowsALiveJobAndHeartbeats) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.heartbeat = milliseconds(10);
  Harness h(options);
  h.engine.HoldBuilds();
  BuildCall call = OpenBuild(h);
  call.Head(BuildOf(h.Store(DiagonalMatrix(3)), Jacobi())).Done();
  const std::string job = JobName(call);
  // On the stream that made the job, and on one that watches it.
  call.ReadUntil([](const auto& r) { return r.has_job() && r.job().has_heartbeat(); });
  auto context = Context();
  v1::WatchJobRequest request;
  request.set_name(job);
  auto stream = h.jobs->WatchJob(context.get(), request);
  v1::WatchJobResponse response;
  while (stream->Read(&response) && !response.event().has_heartbeat()) {
  }
  ASSERT_TRUE(response.event().has_heartbeat());
  EXPECT_EQ(response.event().number(), 0);
  h.engine.Release();
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(response.event().has_finished());
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(call.Finish().ok());
}

TEST(Draining, RefusesNewWorkFinishesWhatRuns) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(3));
  h.engine.HoldBuilds();
  BuildCall running = OpenBuild(h);
  running.Head(BuildOf(matrix, Jacobi())).Done();
  WaitStarted(running);
  h.backend->SetDraining();
  h.backend->Refuse();
  SolveCall solve = OpenSolve(h);
  solve.Head(SolveOf(matrix, None())).Chunk(Rhs({1, 2, 3})).Done();
  const grpc::Status status = solve.Finish();
  EXPECT_RPC_ERROR(status, UNAVAILABLE, "DRAINING", "try again");
  EXPECT_TRUE(Decode(status).retry_ms.has_value());
  EXPECT_RPC_ERROR(h.Upload(HeaderOf(DiagonalMatrix(3)), {}).status, UNAVAILABLE, "DRAINING", "");
  auto context = Context();
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(h.info->GetServerInfo(context.get(), {}, &info).ok());
  EXPECT_TRUE(info.draining());
  EXPECT_EQ(info.queue().running(), 1);
  h.engine.Release();
  EXPECT_TRUE(running.Finish().ok());
  EXPECT_TRUE(h.backend->scheduler().Drain(std::chrono::steady_clock::now() + seconds(30)));
}

TEST(Draining, AStreamThatHasAskedForNothingEndsAtOnce) {
  Harness h;
  SolveCall solve = OpenSolve(h);
  UploadCall upload = OpenUpload(h);
  while (h.backend->connections().calls() < 2) std::this_thread::yield();
  h.backend->Refuse();
  EXPECT_RPC_ERROR(solve.Finish(), UNAVAILABLE, "DRAINING", "");
  EXPECT_RPC_ERROR(upload.Finish(), UNAVAILABLE, "DRAINING", "");
  // One that comes later need not say what it wants either.
  BuildCall late = OpenBuild(h);
  EXPECT_RPC_ERROR(late.Finish(), UNAVAILABLE, "DRAINING", "");
}

TEST(Draining, AtTheDeadlineEveryStreamIsTold) {
  Harness h;
  h.engine.HoldBuilds();
  BuildCall running = OpenBuild(h);
  running.Head(BuildOf(h.Store(DiagonalMatrix(3)), Jacobi())).Done();
  WaitStarted(running);
  UploadCall upload = OpenUpload(h);
  upload.Head(HeaderOf(DiagonalMatrix(4)));
  v1::UploadMatrixResponse response;
  ASSERT_TRUE(upload.Read(&response));
  h.server->Shutdown(seconds(5));
  EXPECT_RPC_ERROR(running.Finish(), UNAVAILABLE, "DRAINING", "");
  EXPECT_RPC_ERROR(upload.Finish(), UNAVAILABLE, "DRAINING", "");
  // A client may know before the server's side of the stream is gone.
  while (h.backend->streams().size() > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace spaid::server
