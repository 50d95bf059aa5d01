// Peers that misbehave on the wire: they do not read, they do not send, they vanish.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "server/rpc/stream.h"
#include "tests/server/rpc/harness.h"
#include "tests/server/rpc/proxy.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A chunk and the message around it, and the small messages of others.
constexpr int64_t kMessageBound = (1 << 20) + (16 << 10);

std::string StoreInChunks(Harness& h) {
  const Csc a = DiagonalMatrix(400'000);
  UploadCall call = OpenUpload(h);
  call.Head(HeaderOf(a));
  for (int64_t k = 0; k < a.n; k += 100'000) {
    const int64_t end = k + 100'000 + (k == 300'000 ? 1 : 0);  // one pointer more at the end
    call.Chunk(ChunkOf(v1::ARRAY_KIND_POINTERS, k,
                       std::vector<int64_t>(a.pointers.begin() + k, a.pointers.begin() + end)));
    call.Chunk(
        ChunkOf(v1::ARRAY_KIND_INDICES, k,
                std::vector<int32_t>(a.indices.begin() + k, a.indices.begin() + k + 100'000)));
    call.Chunk(ChunkOf(v1::ARRAY_KIND_VALUES, k,
                       std::vector<double>(a.values.begin() + k, a.values.begin() + k + 100'000)));
  }
  std::vector<v1::UploadMatrixResponse> events;
  const grpc::Status status = call.Done().Finish(&events);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return events.back().done().matrix().name();
}

// A stored preconditioner of 8 MB: far more than any window on the way.
std::string StoreLarge(Harness& h) {
  const std::string matrix = StoreInChunks(h);
  BuildCall call = OpenBuild(h);
  std::vector<v1::BuildPreconditionerResponse> events;
  const grpc::Status status = call.Head(BuildOf(matrix, Jacobi())).Done().Finish(&events);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return events.back().done().preconditioner().name();
}

Harness::Options Large() {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.max_matrix_bytes = options.backend.matrix_store_bytes = 64 << 20;
  options.backend.preconditioner_store_bytes = 64 << 20;
  return options;
}

std::string Metric(const Harness& h, const std::string& name) {
  const std::string text = h.metrics.Serialize();
  const size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(BlackHoleReader, IsCutAndHoldsOneMessageAtTheMost) {
  Harness::Options options = Large();
  options.backend.streams.stalled_reader = milliseconds(1500);
  Harness h(options);
  const std::string name = StoreLarge(h);

  const auto channel = h.NewChannel();
  const auto stub = v1::PreconditionerService::NewStub(channel);
  auto context = Context();
  v1::DownloadPreconditionerRequest request;
  request.set_name(name);
  auto stream = stub->DownloadPreconditioner(context.get(), request);
  // It reads nothing; meanwhile others live on, and what waits for it is one message.
  while (h.backend->streams().outgoing_bytes() == 0) std::this_thread::yield();
  EXPECT_LE(h.backend->streams().outgoing_bytes(), kMessageBound);
  h.ExpectLives();
  EXPECT_LE(h.backend->streams().outgoing_bytes(), kMessageBound);
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_EQ(h.backend->streams().outgoing_bytes(), 0);
  EXPECT_EQ(Metric(h, "spaid_stalled_readers_total"), "1");

  v1::DownloadPreconditionerResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  // The result is still there.
  auto again = Context();
  auto good = stub->DownloadPreconditioner(again.get(), request);
  int64_t bytes = 0;
  while (good->Read(&response)) bytes += static_cast<int64_t>(response.chunk().data().size());
  EXPECT_TRUE(good->Finish().ok());
  EXPECT_EQ(bytes, 400'001 * 8 + 400'000 * 12);
}

TEST(BlackHoleReader, OfASolveCanFetchTheSolutionLater) {
  Harness::Options options = Large();
  options.backend.streams.stalled_reader = milliseconds(1500);
  Harness h(options);
  const std::string matrix = StoreInChunks(h);
  const std::vector<double> b(100'000, 1.0);
  SolveCall call = OpenSolve(h);
  v1::SolveHeader header = SolveOf(matrix, None());
  header.set_rhs_count(8);  // 26 MB of solution
  call.Head(header);
  for (int64_t k = 0; k < 32; ++k) call.Chunk(ChunkOf(v1::ARRAY_KIND_RHS, k * 100'000, b));
  call.Done();
  const std::string job = JobName(call);
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_FALSE(call.Finish().ok());
  EXPECT_EQ(WaitEnded(h, job).state(), v1::JOB_STATE_SUCCEEDED);
  // What was not read then can be read now.
  auto context = Context();
  v1::WatchJobRequest request;
  request.set_name(job);
  request.set_with_solution(true);
  auto stream = h.jobs->WatchJob(context.get(), request);
  v1::WatchJobResponse response;
  size_t bytes = 0;
  while (stream->Read(&response)) bytes += response.chunk().data().size();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(bytes, size_t{8} * 8 * 400'000);
}

TEST(StalledSender, IsToldAndItsRoomIsGivenBack) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.streams.stalled_sender = milliseconds(500);
  Harness h(options);
  const std::string matrix = h.Store(DiagonalMatrix(2));
  UploadCall call = OpenUpload(h);
  call.Head(HeaderOf(DiagonalMatrix(3)));
  EXPECT_RPC_ERROR(call.Finish(), DEADLINE_EXCEEDED, "STALLED_SENDER", "without long pauses");
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_EQ(h.backend->matrices().stats().reserved_bytes, 0);
  // Silence that the server itself imposes is no stall: a running solve.
  h.engine.HoldSolves();
  SolveCall solve = OpenSolve(h);
  solve.Head(SolveOf(matrix, None()))
      .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{1, 2}))
      .Done();
  WaitStarted(solve);
  const auto until = std::chrono::steady_clock::now() + milliseconds(1500);
  EXPECT_FALSE(h.backend->streams().WaitEmpty(until));
  h.engine.Release();
  EXPECT_TRUE(solve.Finish().ok());
}

// An element at a time, each well within the limit.
TEST(StalledSender, IsNotPacifiedByATrickle) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.streams.stalled_sender = milliseconds(1000);
  Harness h(options);
  const auto channel = h.NewChannel();
  const auto stub = v1::MatrixService::NewStub(channel);
  auto context = Context();
  v1::UploadMatrixRequest request;
  *request.mutable_header() = HeaderOf(DiagonalMatrix(50'000));
  auto stream = stub->UploadMatrix(context.get());
  ASSERT_TRUE(stream->Write(request));
  std::thread reader([&] {
    v1::UploadMatrixResponse response;
    while (stream->Read(&response)) {
    }
  });
  int64_t sent = 0;
  do {
    std::this_thread::sleep_for(milliseconds(20));  // what is tested: a slow sender
    *request.mutable_chunk() = ChunkOf(v1::ARRAY_KIND_POINTERS, sent, std::vector<int64_t>{sent});
    ++sent;
  } while (stream->Write(request) && sent < 500);
  reader.join();
  EXPECT_LT(sent, 500);
  EXPECT_RPC_ERROR(stream->Finish(), DEADLINE_EXCEEDED, "STALLED_SENDER", "next to nothing");
}

// Headers that announce all that fits, and nothing behind them.
TEST(Promises, ShutNobodyOut) {
  Harness h;
  v1::MatrixHeader large = HeaderOf(DiagonalMatrix(3));
  large.set_nnz(80'000);
  std::vector<UploadCall> uploads;
  for (int i = 0; i < 8; ++i) {
    uploads.push_back(OpenUpload(h));
    uploads.back().Head(large);
    v1::UploadMatrixResponse response;
    ASSERT_TRUE(uploads.back().Read(&response));
  }
  EXPECT_GT(h.backend->matrices().stats().reserved_bytes, 4 << 20) << "more than the store holds";
  const std::string matrix = h.Store(DiagonalMatrix(10'000));
  v1::SolveHeader header = SolveOf(matrix, None());
  header.set_rhs_count(400);  // 64 MB with the solution: all that there is
  SolveCall solve = OpenSolve(h);
  solve.Head(header).Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>(1000)));
  while (h.backend->rhs_budget().used() == 0) std::this_thread::yield();
  EXPECT_EQ(h.backend->rhs_budget().used(), 2 * 8000);
  h.ExpectLives();
  for (UploadCall& upload : uploads) {
    upload.Cancel();
    EXPECT_FALSE(upload.Finish().ok());
  }
  solve.Cancel();
  EXPECT_FALSE(solve.Finish().ok());
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_EQ(h.backend->rhs_budget().used(), 0);
}

TEST(Peers, AResetCancelsItsJob) {
  Harness h;
  h.engine.HoldBuilds();
  const std::string matrix = h.Store(DiagonalMatrix(3));
  std::string job;
  {
    const auto channel = h.NewChannel();
    const auto stub = v1::PreconditionerService::NewStub(channel);
    BuildCall call(Context(), &v1::PreconditionerService::Stub::BuildPreconditioner, *stub);
    call.Head(BuildOf(matrix, Jacobi()));
    job = JobName(call);
    call.Cancel();
  }
  EXPECT_EQ(WaitEnded(h, job).state(), v1::JOB_STATE_CANCELLED);
}

// No reset and no FIN: only keepalive can tell.
TEST(Peers, AVanishedConnectionCancelsItsJob) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.server.keepalive_time = milliseconds(100);
  options.server.keepalive_timeout = milliseconds(2000);
  Harness h(options);
  h.engine.HoldBuilds();
  const std::string matrix = h.Store(DiagonalMatrix(3));
  Proxy proxy(h.server->address());
  const auto channel = h.NewChannel({}, proxy.address());
  const auto stub = v1::PreconditionerService::NewStub(channel);
  BuildCall call(Context(), &v1::PreconditionerService::Stub::BuildPreconditioner, *stub);
  call.Head(BuildOf(matrix, Jacobi())).Done();
  const std::string job = JobName(call);
  WaitStarted(call);
  proxy.Freeze();
  const v1::Job ended = WaitEnded(h, job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ended.error().reason(), "ABANDONED");
  call.Cancel();
  EXPECT_FALSE(call.Finish().ok());
}

// The input was complete, but nobody said so.
TEST(Peers, AResetIsNoHalfClose) {
  Harness h;
  v1::SolveHeader header = SolveOf(h.Store(DiagonalMatrix(2)), None());
  header.set_detach(true);
  for (int i = 0; i < 50; ++i) {
    SolveCall call = OpenSolve(h);
    call.Head(header).Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{1, 2}));
    while (h.backend->rhs_budget().used() < 32) std::this_thread::yield();
    call.Cancel();
    EXPECT_FALSE(call.Finish().ok());
    ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
    ASSERT_EQ(h.backend->rhs_budget().used(), 0);
  }
  EXPECT_EQ(h.backend->jobs().size(), 0);
}

TEST(Peers, MessagesOverTheLimitAreRefused) {
  Harness h;
  UploadCall call = OpenUpload(h);
  v1::ArrayChunk chunk;
  chunk.set_array(v1::ARRAY_KIND_VALUES);
  chunk.set_data(std::string(5 << 20, 'x'));
  call.Head(HeaderOf(DiagonalMatrix(3))).Chunk(chunk).Done();
  EXPECT_FALSE(call.Finish().ok());
  h.ExpectLives();
}

TEST(Peers, TooManyStreamsAreToldToComeBack) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.streams.max_streams = 2;
  Harness h(options);
  UploadCall first = OpenUpload(h), second = OpenUpload(h);
  v1::UploadMatrixResponse response;
  for (UploadCall* call : {&first, &second}) {
    call->Head(HeaderOf(DiagonalMatrix(3)));
    ASSERT_TRUE(call->Read(&response));
  }
  h.backend->SetGauges();
  EXPECT_EQ(Metric(h, "spaid_streams_open"), "2");
  EXPECT_EQ(Metric(h, "spaid_streams_limit"), "2");
  SolveCall third = OpenSolve(h);
  third.Head(SolveOf("matrices/none", None()));
  const grpc::Status status = third.Finish();
  EXPECT_RPC_ERROR(status, RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS", "--max-streams");
  EXPECT_TRUE(Decode(status).retry_ms.has_value());
  // Plain calls are answered even so, and a place that is given back is taken.
  auto context = Context();
  v1::ListJobsResponse listed;
  EXPECT_TRUE(h.jobs->ListJobs(context.get(), {}, &listed).ok());
  first.Cancel();
  second.Cancel();
  EXPECT_FALSE(first.Finish().ok());
  EXPECT_FALSE(second.Finish().ok());
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  h.ExpectLives();
}

// Two of 16 places are for those who have less than their share.
TEST(Peers, AFloodOfStreamsLeavesPlacesForOthers) {
  Harness::Options options{.backend = Harness::SmallBackend(), .trust_tenant_header = true};
  options.backend.streams.max_streams = 16;
  Harness h(options);
  std::vector<UploadCall> flood;
  v1::UploadMatrixResponse response;
  for (int i = 0; i < 14; ++i) {
    flood.push_back(OpenUpload(h, "flood"));
    flood.back().Head(HeaderOf(DiagonalMatrix(3)));
    ASSERT_TRUE(flood.back().Read(&response)) << i;
  }
  UploadCall over = OpenUpload(h, "flood");
  over.Head(HeaderOf(DiagonalMatrix(3)));
  const grpc::Status refused = over.Finish();
  EXPECT_RPC_ERROR(refused, RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS", "less than their share");
  // Another one uploads and solves as if nothing were.
  const std::string matrix = h.Store(DiagonalMatrix(3, 2), "quiet");
  SolveCall solve = OpenSolve(h, "quiet");
  solve.Head(SolveOf(matrix, None()))
      .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 4, 6}))
      .Done();
  EXPECT_TRUE(solve.Finish().ok());
  for (UploadCall& call : flood) call.Cancel();
  for (UploadCall& call : flood) EXPECT_FALSE(call.Finish().ok());
}

TEST(Peers, ManyAtOnceUnderTheStress) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(3, 2));
  std::vector<std::thread> clients;
  std::atomic<int> converged{0};
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        SolveCall call = OpenSolve(h);
        call.Head(SolveOf(matrix, Jacobi()))
            .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 3, 4}));
        if ((i + t) % 5 == 0) {  // some vanish in the middle
          call.Cancel();
          (void)call.Finish();
          continue;
        }
        std::vector<v1::SolveResponse> events;
        const grpc::Status status = call.Done().Finish(&events);
        if (status.ok() && events.back().done().outcomes(0).outcome() == v1::OUTCOME_CONVERGED) {
          ++converged;
        } else {
          ADD_FAILURE() << status.error_message();
        }
      }
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(converged, 8 * 16);
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_EQ(h.backend->rhs_budget().used(), 0);
}

// Before a proxy that would take a status with it that comes before the client has sent all.
TEST(Streams, BehindAProxyAnEarlyEndWaitsForTheHalfClose) {
  using Stream = BidiStream<v1::SolveRequest, v1::SolveResponse>;
  Harness h;
  for (const bool proxied : {false, true}) {
    for (const bool half_closes : {false, true}) {
      auto context = Context();
      if (proxied) context->AddMetadata("x-forwarded-for", "192.0.2.1");
      SolveCall call(std::move(context), &v1::SolverService::Stub::Solve, *h.solver);
      const auto start = std::chrono::steady_clock::now();
      call.Head(SolveOf("matrices/none", None()));
      call.Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>(1000)));
      if (half_closes) call.Done();
      EXPECT_RPC_ERROR(call.Finish(), NOT_FOUND, "HANDLE_UNKNOWN", "matrices/none");
      if (proxied && !half_closes) {
        EXPECT_GE(std::chrono::steady_clock::now() - start, Stream::kLinger);
      }
    }
  }
  EXPECT_TRUE(
      h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
}

}  // namespace
}  // namespace spaid::server
