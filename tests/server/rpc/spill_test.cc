// The services over a spill folder: what was evicted, and what a restart finds. A daemon that is
// killed is one whose folder is copied as it is; a restart, a new stack on the same folder.
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/digest.h"
#include "server/rpc/kept_jobs.h"
#include "tests/server/rpc/harness.h"
#include "tests/server/store/spill_helpers.h"

namespace spaid::server {
namespace {

using std::chrono::seconds;

// [4 0 1; 2 5 0; 0 0 3] times `factor`.
Csc Small(double factor = 1) {
  Csc a{3, {0, 2, 3, 5}, {0, 1, 1, 0, 2}, {4, 2, 5, 1, 3}};
  for (double& value : a.values) value *= factor;
  return a;
}

v1::MatrixHeader Proven(const Csc& a, bool values) {
  v1::MatrixHeader header = HeaderOf(a);
  v1::MatrixDigest& digest = *header.mutable_digest();
  digest.set_pattern(PatternDigest(a.n, a.pointers, a.indices).ToBytes());
  digest.set_values(ValueDigest(a.values).ToBytes());
  digest.set_pattern_sha256(PatternSha256(a.n, a.pointers, a.indices).ToBytes());
  if (values) digest.set_values_sha256(ValueSha256(a.values).ToBytes());
  return header;
}

std::vector<v1::ArrayChunk> ValuesOf(const Csc& a) {
  return {ChunkOf(v1::ARRAY_KIND_VALUES, 0, a.values)};
}

class Spilling : public testing::Test {
 protected:
  // A new stack, over the folder as the last one left it.
  Harness& Start(int64_t matrix_store_bytes = 4 << 20) {
    Stop();
    StartAt(path_, matrix_store_bytes);
    return *h_;
  }
  void Stop() {
    h_.reset();
    folder_.reset();
  }
  // The stack that a kill at this moment would leave to start.
  Harness& StartAfterKill() {
    const std::string copy = temporary_ / ("copy" + std::to_string(++copies_));
    std::filesystem::copy(path_, copy, std::filesystem::copy_options::recursive);
    Stop();
    path_ = copy;
    StartAt(path_, 4 << 20);
    return *h_;
  }
  void StartAt(const std::string& path, int64_t matrix_store_bytes) {
    folder_ = OpenSpill(path, 1 << 30, [this](std::string_view step) {
      return fail_ && step == "index" ? ENOSPC : 0;
    });
    Harness::Options options{.backend = Harness::SmallBackend(), .trust_tenant_header = true};
    options.backend.matrix_store_bytes = matrix_store_bytes;
    options.backend.spill = folder_.get();
    h_ = std::make_unique<Harness>(std::move(options));
  }
  void Flush() { h_->backend->FlushSpill(seconds(30)); }

  v1::Matrix GetMatrix(const std::string& name, const std::string& tenant = "",
                       grpc::Status* status = nullptr) {
    auto context = Context(tenant);
    v1::GetMatrixRequest request;
    request.set_name(name);
    v1::GetMatrixResponse response;
    const grpc::Status got = h_->matrices->GetMatrix(context.get(), request, &response);
    if (status != nullptr) *status = got;
    return response.matrix();
  }
  std::string Build(const std::string& matrix) {
    BuildCall call = OpenBuild(*h_);
    std::vector<v1::BuildPreconditionerResponse> events;
    const grpc::Status status = call.Head(BuildOf(matrix, Jacobi())).Done().Finish(&events);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return status.ok() ? events.back().done().preconditioner().name() : "";
  }
  grpc::Status Solve(const v1::SolveHeader& header, std::vector<double>* x = nullptr) {
    SolveCall call = OpenSolve(*h_);
    std::vector<v1::SolveResponse> events;
    const grpc::Status status =
        call.Head(header)
            .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12}))
            .Done()
            .Finish(&events);
    for (const auto& event : events) {
      if (x == nullptr || !event.has_chunk()) continue;
      x->resize(3);
      std::memcpy(x->data(), event.chunk().data().data(), 24);
    }
    return status;
  }
  v1::SolveHeader ByHandles(const std::string& matrix, const std::string& m) {
    v1::SolveHeader header = SolveOf(matrix, None());
    header.set_preconditioner(m);
    return header;
  }
  // Asks for a solve with a right-hand side, detached; the job's name.
  std::string Detach(const v1::SolveHeader& asked) {
    v1::SolveHeader header = asked;
    header.set_detach(true);
    SolveCall call = OpenSolve(*h_);
    call.Head(header).Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12})).Done();
    const std::string job = JobName(call);
    call.Cancel();
    (void)call.Finish();
    // The daemon knows that it is gone, and sends it nothing more.
    EXPECT_TRUE(h_->backend->streams().WaitEmpty(RealClock().Now() + seconds(30)));
    return job;
  }
  v1::Job GetJob(const std::string& name, grpc::Status* status = nullptr) {
    auto context = Context();
    v1::GetJobRequest request;
    request.set_name(name);
    v1::GetJobResponse response;
    const grpc::Status got = h_->jobs->GetJob(context.get(), request, &response);
    if (status != nullptr) *status = got;
    return response.job();
  }
  std::vector<double> FetchSolution(const std::string& job) {
    auto context = Context();
    v1::WatchJobRequest request;
    request.set_name(job);
    request.set_with_solution(true);
    auto stream = h_->jobs->WatchJob(context.get(), request);
    v1::WatchJobResponse response;
    std::vector<double> x;
    while (stream->Read(&response)) {
      if (!response.has_chunk()) continue;
      x.resize(response.chunk().data().size() / 8);
      std::memcpy(x.data(), response.chunk().data().data(), response.chunk().data().size());
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return x;
  }

  TemporaryFolder temporary_;
  std::string path_ = temporary_ / "s";
  int copies_ = 0;
  std::atomic<bool> fail_{false};
  std::unique_ptr<SpillFolder> folder_;
  std::unique_ptr<Harness> h_;
};

TEST_F(Spilling, ARestartKnowsMatricesAndPreconditioners) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2)), b = h_->Store(Small());
  const std::string m = Build(a);
  const v1::Matrix before = GetMatrix(b);
  Flush();
  Start();
  EXPECT_EQ(GetMatrix(b).SerializeAsString(), before.SerializeAsString());
  EXPECT_EQ(folder_->stats().loaded, 0);  // that was the index
  auto context = Context();
  v1::ListMatricesResponse listed;
  ASSERT_TRUE(h_->matrices->ListMatrices(context.get(), {}, &listed).ok());
  ASSERT_EQ(listed.matrices_size(), 2);
  EXPECT_EQ(listed.matrices(0).name(), b);
  EXPECT_TRUE(listed.matrices(0).diagnosis().findings().empty());
  std::vector<double> x;
  const grpc::Status solved = Solve(ByHandles(a, m), &x);
  ASSERT_TRUE(solved.ok()) << solved.error_message();
  EXPECT_EQ(x, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(GetMatrix(a).host_bytes(), h_->backend->matrices().Get("default", a)->value->bytes());
  // And M is what it was: it is found by its content, too.
  EXPECT_EQ(Build(a), m);
  EXPECT_EQ(h_->engine.builds, 0);
  const auto read = h_->backend->matrices().Load("default", b);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::vector<double>(read->value->values.begin(), read->value->values.end()),
            Small().values);
  EXPECT_EQ(ToProto(*read, true).SerializeAsString(), before.SerializeAsString());
}

TEST_F(Spilling, AnotherTenantKnowsNothingAfterARestart) {
  Start();
  const std::string hers = h_->Store(Small(), "alice");
  Flush();
  Start();
  grpc::Status status;
  GetMatrix(hers, "bob", &status);
  EXPECT_RPC_ERROR(status, NOT_FOUND, "HANDLE_UNKNOWN", "there is no matrix");
  EXPECT_EQ(h_->Upload(Proven(Small(), true), {}, "bob").events[0].need().ranges_size(), 3);
  EXPECT_TRUE(h_->Upload(Proven(Small(), true), {}, "alice").events[0].has_have());
}

TEST_F(Spilling, ProvenContentNeedNotBeSentAgainAfterARestart) {
  Start();
  const std::string a = h_->Store(Small());
  Flush();
  Start();
  const Uploaded again = h_->Upload(Proven(Small(), true), {});
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_TRUE(again.events[0].has_have());
  EXPECT_EQ(again.matrix.name(), a);
}

TEST_F(Spilling, ValuesAloneAfterARestart) {
  Start();
  const std::string a = h_->Store(Small());
  Flush();
  for (const bool by_handle : {false, true}) {
    Start();
    const Csc drifted = Small(by_handle ? 2.5 : 1.5);
    v1::MatrixHeader header = by_handle ? HeaderOf(drifted) : Proven(drifted, false);
    if (by_handle) header.set_same_pattern_as(a);
    const Uploaded second = h_->Upload(header, ValuesOf(drifted));
    ASSERT_TRUE(second.status.ok()) << second.status.error_message();
    ASSERT_EQ(second.events[0].need().ranges_size(), 1);
    EXPECT_EQ(second.events.back().done().timings().bytes_up(), 5 * 8);
    // One pattern, in memory and in the folder.
    const auto old = h_->backend->matrices().Load("default", a);
    const auto now = h_->backend->matrices().Get("default", second.matrix.name());
    ASSERT_TRUE(old.ok() && now.ok());
    EXPECT_EQ(old->value->pattern, now->value->pattern);
    Flush();
    EXPECT_EQ(folder_->stats().files, by_handle ? 4 : 3);
  }
  // XXH3 alone is a hint.
  Start();
  v1::MatrixHeader hint = Proven(Small(9), false);
  hint.mutable_digest()->clear_pattern_sha256();
  EXPECT_TRUE(h_->Upload(hint, {}).events[0].need().pattern_known());
}

TEST_F(Spilling, EvictionIsASlowHit) {
  Start(/*matrix_store_bytes=*/1 << 20);  // two large ones
  const std::string a = h_->Store(DiagonalMatrix(3, 2));
  Flush();
  for (int i = 0; i < 3; ++i) h_->Store(DiagonalMatrix(20'000 + i));
  EXPECT_GT(h_->backend->matrices().stats().evictions, 0);
  const std::vector<double> want{1, 2, 3};
  for (const v1::SolveHeader& header : {SolveOf(a, Jacobi()), SolveOf(a, None())}) {
    std::vector<double> x;
    const grpc::Status status = Solve(header, &x);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(x, want);
    for (int i = 3; i < 6; ++i) h_->Store(DiagonalMatrix(20'000 + i + 3 * h_->engine.solves));
  }
}

// A pattern that `need` knew is held until the values are there.
TEST_F(Spilling, APatternEvictedBetweenNeedAndValues) {
  Start(/*matrix_store_bytes=*/1 << 20);
  const std::string a = h_->Store(Small());
  Flush();
  Start(/*matrix_store_bytes=*/1 << 20);
  const Csc drifted = Small(1.5);
  UploadCall call = OpenUpload(*h_);
  v1::UploadMatrixResponse answer;
  ASSERT_TRUE(call.Head(Proven(drifted, false)).Read(&answer));
  ASSERT_EQ(answer.need().ranges_size(), 1);
  for (int i = 0; i < 3; ++i) h_->Store(DiagonalMatrix(20'000 + i));  // it is evicted
  EXPECT_EQ(h_->backend->matrices().Look("default", a)->value, nullptr);
  Flush();
  std::filesystem::remove_all(path_ + "/files");  // and cannot be read again
  call.Chunk(ValuesOf(drifted)[0]).Done();
  const auto done = call.ReadUntil([](const auto& r) { return r.has_done(); });
  EXPECT_EQ(done.done().matrix().digest().values(), ValueDigest(drifted.values).ToBytes());
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(Spilling, DamagedFilesAreAnsweredSoThatAClientHeals) {
  for (const bool of_m : {false, true}) {
    Start();
    const std::string a = h_->Store(DiagonalMatrix(3, of_m ? 7 : 2)), m = Build(a);
    Flush();
    const SpillRecordPtr record = folder_->Find("default", of_m ? m : a);
    const std::string file = path_ + "/files/" + record->blobs[1].file();
    std::string bytes = ReadWhole(file);
    bytes.back() ^= 1;
    WriteWhole(file, bytes);
    Start();
    const grpc::Status status = Solve(ByHandles(a, m));
    EXPECT_RPC_ERROR(status, NOT_FOUND, "HANDLE_EVICTED", of_m ? m : a);
    EXPECT_GE(folder_->stats().damaged, 1);
    const std::string again = h_->Store(DiagonalMatrix(3, of_m ? 7 : 2));
    EXPECT_TRUE(Solve(SolveOf(again, Jacobi())).ok());
  }
}

TEST_F(Spilling, DeletedIsDeleted) {
  Start();
  const std::string a = h_->Store(Small());
  Flush();
  Start();
  auto context = Context();
  v1::DeleteMatrixRequest request;
  request.set_name(a);
  v1::DeleteMatrixResponse response;
  EXPECT_TRUE(h_->matrices->DeleteMatrix(context.get(), request, &response).ok());
  Start();
  grpc::Status status;
  GetMatrix(a, "", &status);
  EXPECT_RPC_ERROR(status, NOT_FOUND, "HANDLE_UNKNOWN", a);
  EXPECT_EQ(folder_->stats().files, 0);
}

TEST_F(Spilling, EveryCallReadsBackWhatItNeeds) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2)), m = Build(a);
  Flush();
  {
    Start();
    auto context = Context();
    v1::EstimateBuildRequest request;
    request.set_matrix(a);
    *request.mutable_spec() = Jacobi();
    v1::EstimateBuildResponse response;
    EXPECT_TRUE(h_->preconditioners->EstimateBuild(context.get(), request, &response).ok());
  }
  for (const bool known : {false, true}) {
    Start();
    auto context = Context();
    v1::DownloadPreconditionerRequest request;
    request.set_name(m);
    const Csc diagonal = DiagonalMatrix(3);
    if (known) {
      request.set_known_pattern(PatternDigest(3, diagonal.pointers, diagonal.indices).ToBytes());
    }
    auto stream = h_->preconditioners->DownloadPreconditioner(context.get(), request);
    v1::DownloadPreconditionerResponse response;
    std::vector<double> values(3);
    bool values_only = false;
    while (stream->Read(&response)) {
      values_only |= response.has_header() && response.header().values_only();
      if (response.has_chunk() && response.chunk().array() == v1::ARRAY_KIND_VALUES) {
        std::memcpy(values.data(), response.chunk().data().data(), 24);
      }
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(values_only, known);
    EXPECT_EQ(values, (std::vector<double>{1.0 / 2, 1.0 / 3, 1.0 / 4}));
  }
  Start();
  auto context = Context();
  v1::GetPreconditionerRequest request;
  request.set_name(m);
  v1::GetPreconditionerResponse response;
  ASSERT_TRUE(h_->preconditioners->GetPreconditioner(context.get(), request, &response).ok());
  EXPECT_EQ(response.preconditioner().matrix(), a);
  EXPECT_EQ(response.preconditioner().nnz(), 3);
}

TEST_F(Spilling, ADetachedSolveIsDoneAfterAKill) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2)), m = Build(a);
  h_->engine.HoldSolves();
  const std::string running = Detach(SolveOf(a, Jacobi())), queued = Detach(ByHandles(a, m));
  h_->engine.WaitForSolves(1);
  StartAfterKill();
  for (const std::string& job : {running, queued}) {
    const v1::Job ended = WaitEnded(*h_, job);
    EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.error().message();
    EXPECT_EQ(ended.matrix(), a);
    EXPECT_EQ(FetchSolution(job), (std::vector<double>{1, 2, 3}));
  }
  Flush();
  EXPECT_TRUE(folder_->All("jobs/").empty());
}

// As long as nobody has fetched it a solution is promised.
TEST_F(Spilling, ASolutionThatNobodyFetchedIsMadeAgain) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2));
  h_->engine.HoldSolves();  // until its own stream is gone
  const std::string job = Detach(SolveOf(a, Jacobi()));
  h_->engine.Release();
  EXPECT_EQ(WaitEnded(*h_, job).state(), v1::JOB_STATE_SUCCEEDED);
  Start();
  EXPECT_EQ(FetchSolution(job), (std::vector<double>{1, 2, 3}));
  Start();
  grpc::Status status;
  GetJob(job, &status);
  EXPECT_RPC_ERROR(status, NOT_FOUND, "HANDLE_UNKNOWN", job);
}

TEST_F(Spilling, ADetachedBuildIsDoneAfterAKill) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2)), b = h_->Store(DiagonalMatrix(3, 4));
  h_->engine.HoldBuilds();
  std::vector<std::string> jobs;
  for (const std::string& matrix : {a, b, a}) {
    v1::BuildHeader header = BuildOf(matrix, Jacobi());
    header.set_detach(true);
    BuildCall call = OpenBuild(*h_);
    call.Head(header).Done();
    jobs.push_back(JobName(call));
    call.Cancel();
    (void)call.Finish();
  }
  EXPECT_EQ(jobs[2], jobs[0]);  // one job, one promise
  EXPECT_EQ(folder_->All("jobs/").size(), 2u);
  StartAfterKill();
  for (const std::string& job : {jobs[0], jobs[1]}) {
    const v1::Job ended = WaitEnded(*h_, job);
    EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.error().message();
    EXPECT_FALSE(ended.preconditioner().empty());
  }
  Flush();
  EXPECT_TRUE(folder_->All("jobs/").empty());
  EXPECT_EQ(h_->engine.builds, 2);
}

TEST_F(Spilling, ABuildWhoseResultIsThereEndsAtOnce) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2));
  h_->engine.HoldBuilds();
  v1::BuildHeader header = BuildOf(a, Jacobi());
  header.set_detach(true);
  BuildCall call = OpenBuild(*h_);
  call.Head(header).Done();
  const std::string job = JobName(call);
  call.Cancel();
  (void)call.Finish();
  // The job's row as it is now; M comes later.
  const SpillRecord row = *folder_->Find("default", job);
  h_->engine.Release();
  const std::string m = WaitEnded(*h_, job).preconditioner();
  Flush();
  Stop();
  {
    const auto folder = OpenSpill(path_);
    ASSERT_TRUE(folder->Write(row, {}).ok());
  }
  Start();
  const v1::Job ended = WaitEnded(*h_, job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ended.preconditioner(), m);
  EXPECT_EQ(h_->engine.builds, 0);
}

TEST_F(Spilling, AJobWhoseInputsAreGoneSaysSo) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2)), b = h_->Store(DiagonalMatrix(3, 4));
  h_->engine.HoldSolves();
  const std::string lost = Detach(SolveOf(a, None())), damaged = Detach(SolveOf(b, None())),
                    missing = Detach(SolveOf(b, None()));
  auto context = Context();
  v1::DeleteMatrixRequest request;
  request.set_name(a);
  v1::DeleteMatrixResponse response;
  ASSERT_TRUE(h_->matrices->DeleteMatrix(context.get(), request, &response).ok());
  Flush();
  WriteWhole(path_ + "/files/" + folder_->Find("default", damaged)->blobs[0].file(), "x");
  std::filesystem::remove(path_ + "/files/" + folder_->Find("default", missing)->blobs[0].file());
  StartAfterKill();
  for (const std::string& job : {lost, damaged, missing}) {
    const v1::Job ended = WaitEnded(*h_, job);
    EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(ended.error().reason(), "LOST_BY_RESTART");
    EXPECT_NE(ended.error().message().find("send it again"), std::string::npos);
    EXPECT_EQ(GetJob(job).error().reason(), "LOST_BY_RESTART");
  }
  Flush();
  EXPECT_TRUE(folder_->All("jobs/").empty());
}

TEST_F(Spilling, WhatWasAttachedIsGone) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2));
  h_->engine.HoldSolves();
  SolveCall call = OpenSolve(*h_);
  call.Head(SolveOf(a, None()))
      .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12}))
      .Done();
  const std::string job = JobName(call);
  StartAfterKill();
  grpc::Status status;
  GetJob(job, &status);
  EXPECT_RPC_ERROR(status, NOT_FOUND, "HANDLE_UNKNOWN", job);
}

TEST_F(Spilling, ACancelledJobStaysCancelled) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2));
  h_->engine.HoldSolves();
  const std::string job = Detach(SolveOf(a, None()));
  auto context = Context();
  v1::CancelJobRequest request;
  request.set_name(job);
  v1::CancelJobResponse response;
  ASSERT_TRUE(h_->jobs->CancelJob(context.get(), request, &response).ok());
  EXPECT_EQ(WaitEnded(*h_, job).state(), v1::JOB_STATE_CANCELLED);
  Flush();
  EXPECT_TRUE(folder_->All("jobs/").empty());
}

// A job that a drain stops is not over.
TEST_F(Spilling, ADrainedJobIsDoneByTheNextDaemon) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2));
  h_->engine.HoldSolves();
  const std::string job = Detach(SolveOf(a, None()));
  h_->engine.WaitForSolves(1);
  h_->backend->scheduler().Drain(RealClock().Now());
  EXPECT_EQ(GetJob(job).error().reason(), "DRAINING");
  Start();
  EXPECT_EQ(FetchSolution(job), (std::vector<double>{1, 2, 3}));
}

TEST_F(Spilling, WithoutDurabilityThereIsNoDetachedJob) {
  Start();
  const std::string a = h_->Store(DiagonalMatrix(3, 2));
  Flush();
  fail_ = true;
  v1::SolveHeader header = SolveOf(a, None());
  header.set_detach(true);
  EXPECT_RPC_ERROR(Solve(header), UNAVAILABLE, "NOT_DURABLE", "without detach");
  v1::BuildHeader build = BuildOf(a, Jacobi());
  build.set_detach(true);
  h_->engine.HoldBuilds();
  BuildCall call = OpenBuild(*h_);
  EXPECT_RPC_ERROR(call.Head(build).Done().Finish(), UNAVAILABLE, "NOT_DURABLE", "--spill-dir");
  EXPECT_EQ(h_->engine.solves, 0);
  fail_ = false;
  h_->engine.Release();
  std::vector<double> x;
  EXPECT_TRUE(Solve(header, &x).ok());
  EXPECT_EQ(x, (std::vector<double>{1, 2, 3}));
  Flush();
  EXPECT_TRUE(folder_->All("jobs/").empty());  // its own stream took the solution
}

TEST_F(Spilling, MetricsTell) {
  Start();
  h_->Store(Small());
  Flush();
  h_->metrics.OnScrape([this] { h_->backend->SetGauges(); });
  const std::string text = h_->metrics.Serialize();
  EXPECT_NE(text.find("spaid_spill_files 2"), std::string::npos) << text;
  EXPECT_NE(text.find("spaid_spill_records 1"), std::string::npos);
  EXPECT_NE(text.find("spaid_spill_damaged_total 0"), std::string::npos);
}

}  // namespace
}  // namespace spaid::server
