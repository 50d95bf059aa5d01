// An allocator that fails on demand: what a reactor's own code throws ends its call with
// OUT_OF_MEMORY, and nothing else.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "server/base/guard.h"
#include "server/base/status.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/stream.h"
#include "tests/server/ops/health_check.h"
#include "tests/server/rpc/harness.h"

namespace {

// Allocations of this thread that fail next.
thread_local int failing = 0;
// Those of any thread from this size on fail.
std::atomic<size_t> fails_from{std::numeric_limits<size_t>::max()};

void* AllocateOrThrow(size_t bytes, size_t alignment) {
  if (failing > 0) {
    --failing;
    throw std::bad_alloc();
  }
  if (bytes >= fails_from) throw std::bad_alloc();
  void* const memory =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
          : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace spaid::server {
namespace {

class FailsFrom {
 public:
  explicit FailsFrom(size_t bytes) { fails_from = bytes; }
  ~FailsFrom() { fails_from = std::numeric_limits<size_t>::max(); }
};

// Allocates, and is not optimised away.
void Allocate() { ::operator delete(::operator new(64)); }

enum class Place {
  kNone,
  kConstructor,
  kStart,
  kReceived,
  kReceivedChunk,
  kHalfClosed,
  kNext,
  kTicked,
  kGone,
  kClosed,
};

struct Plan {
  Place place = Place::kNone;
  int failures = 1;
};

class FailingStream final : public BidiStream<v1::UploadMatrixRequest, v1::UploadMatrixResponse> {
 public:
  FailingStream(grpc::CallbackServerContext* context, LiveStreams* streams, Metrics* metrics,
                Plan plan)
      : BidiStream(context, "MatrixService/UploadMatrix", streams, metrics), plan_(plan) {
    At(Place::kConstructor);
  }

 private:
  void At(Place place) {
    if (place != plan_.place) return;
    plan_.place = Place::kNone;
    failing = plan_.failures;
    Allocate();
  }
  void Start() override {
    At(Place::kStart);
    ReadLocked();
  }
  void Received(const v1::UploadMatrixRequest&) override {
    At(Place::kReceived);
    waits_ = true;
    ReadLocked();
  }
  void ReceivedChunk(const ChunkView&) override {
    At(Place::kReceivedChunk);
    ReadLocked();
  }
  absl::Status TakePiece(const ChunkView&) override { return absl::OkStatus(); }
  void HalfClosed() override {
    At(Place::kHalfClosed);
    EndLocked(absl::OkStatus());
  }
  bool Next(v1::UploadMatrixResponse* message) override {
    if (!waits_) return false;
    At(Place::kNext);
    waits_ = false;
    message->mutable_wait();
    return true;
  }
  void Ticked(Clock::time_point) override { At(Place::kTicked); }
  void Gone() override { At(Place::kGone); }
  void Closed() override { At(Place::kClosed); }

  Plan plan_;
  bool waits_ = false;
};

class FailingService final
    : public v1::MatrixService::WithRawCallbackMethod_UploadMatrix<v1::MatrixService::Service> {
 public:
  FailingService() : streams_({.tick = std::chrono::milliseconds(10)}, &connections_) {}
  RawBidiReactor* UploadMatrix(grpc::CallbackServerContext* context) override {
    return Launch<FailingStream>(context, &streams_, &metrics_, plan);
  }
  bool NoneLeft() {
    return streams_.WaitEmpty(std::chrono::steady_clock::now() + std::chrono::minutes(1));
  }

  Plan plan;

 private:
  Metrics metrics_;
  Connections connections_{{}, &metrics_};
  LiveStreams streams_;
};

class OutOfMemory : public ::testing::Test {
 protected:
  OutOfMemory() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::MatrixService::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                           grpc::InsecureChannelCredentials()));
  }
  ~OutOfMemory() override { server_->Shutdown(); }

  // A whole call: a header, its answer, a chunk, the half-close.
  grpc::Status Run(Plan plan, bool cancel = false) {
    service_.plan = plan;
    const auto context = Context();
    auto stream = stub_->UploadMatrix(context.get());
    v1::UploadMatrixRequest request;
    request.mutable_header()->set_n(1);
    stream->Write(request);
    v1::UploadMatrixResponse response;
    if (stream->Read(&response)) {
      request.mutable_chunk()->set_data("12345678");
      stream->Write(request);
      if (plan.place == Place::kTicked) {
        while (stream->Read(&response)) {
        }
      }
      if (cancel) context->TryCancel();
      stream->WritesDone();
    }
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  }

  FailingService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::MatrixService::Stub> stub_;
};

TEST_F(OutOfMemory, InAReactorEndsItsOwnStream) {
  for (const Place place :
       {Place::kConstructor, Place::kStart, Place::kReceived, Place::kReceivedChunk,
        Place::kHalfClosed, Place::kNext, Place::kTicked}) {
    for (const int failures : {1, 2}) {  // 2: nor is there memory to say so
      SCOPED_TRACE(static_cast<int>(place));
      EXPECT_RPC_ERROR(Run({place, failures}), RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "memory");
      EXPECT_TRUE(service_.NoneLeft());
      EXPECT_TRUE(Run({}).ok());
    }
  }
}

TEST_F(OutOfMemory, WhileAStreamIsTakenDownLeavesNothingBehind) {
  for (const int failures : {1, 3, 4}) {  // 3: nor for saying that the client has gone
    EXPECT_EQ(Run({Place::kGone, failures}, /*cancel=*/true).error_code(),
              grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(service_.NoneLeft());
  }
  EXPECT_TRUE(Run({Place::kClosed}).ok());
  EXPECT_TRUE(service_.NoneLeft());
  EXPECT_TRUE(Run({}).ok());
}

TEST_F(OutOfMemory, IsSaidWithoutMemory) {
  const absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted, reason::kStoreFull, "no room; come again");
  failing = 1000;
  const grpc::Status said = ToGrpcStatus(status);
  const absl::Status thrown = Guarded("the test", [] {
    Allocate();
    return absl::OkStatus();
  });
  failing = 0;
  EXPECT_EQ(said.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(said.error_message(), "OUT_OF_MEMORY");
  EXPECT_EQ(ReasonOf(thrown), "OUT_OF_MEMORY");
}

Harness::Options RoomForLargeMatrices() {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.max_matrix_bytes = 32 << 20;
  options.backend.matrix_store_bytes = options.backend.preconditioner_store_bytes = 128 << 20;
  return options;
}

TEST(OutOfMemoryOfArrays, EndsTheUploadAndNoOther) {
  Harness h(RoomForLargeMatrices());
  const Csc small = DiagonalMatrix(100);
  auto other = OpenUpload(h);
  v1::UploadMatrixResponse response;
  ASSERT_TRUE(other.Head(HeaderOf(small)).Read(&response));

  // Pointers of 4.8 MB, in chunks whose own memory is there.
  constexpr int64_t kN = 600'000, kChunk = 8192;
  v1::MatrixHeader large = HeaderOf(small);
  large.set_n(kN);
  const std::vector<int64_t> zeros(kChunk, 0);
  const auto send = [&] {
    auto call = OpenUpload(h);
    call.Head(large);
    for (int64_t at = 0; at + kChunk <= kN; at += kChunk) {
      call.Chunk(ChunkOf(v1::ARRAY_KIND_POINTERS, at, zeros));
    }
    return call.Done().Finish();
  };
  {
    const FailsFrom fails(size_t{2} << 20);
    EXPECT_RPC_ERROR(send(), RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "pointers");
    for (const v1::ArrayChunk& chunk : ChunksOf(small)) other.Chunk(chunk);
    EXPECT_TRUE(other.Done().Finish().ok());
  }
  h.ExpectLives();
  EXPECT_RPC_ERROR(send(), INVALID_ARGUMENT, "ARRAY_INCOMPLETE", "pointers");
  EXPECT_TRUE(
      h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
  EXPECT_EQ(h.backend->matrices().stats().arrived_bytes, 0);
}

TEST(OutOfMemoryOfReflection, EndsItsCall) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.server.reflection = true;
  Harness h(options);
  // ServerReflectionRequest{file_by_name: ...}
  const std::string file = "spaid/v1/solver.proto";
  const std::string request = std::string("\x1a") + static_cast<char>(file.size()) + file;
  const auto ask = [&] {
    return spaid::testing::Ask(
        h.channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", request);
  };
  EXPECT_TRUE(ask().ok());
  {
    const FailsFrom fails(size_t{8} << 10);  // a file's description, as it is written
    EXPECT_RPC_ERROR(ask(), RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "memory");
  }
  EXPECT_TRUE(ask().ok());
}

TEST(OutOfMemoryOfMessages, EndsTheDownloadAndNoOther) {
  Harness h(RoomForLargeMatrices());
  const std::string matrix = h.Store(DiagonalMatrix(5000));
  auto build = OpenBuild(h);
  std::vector<v1::BuildPreconditionerResponse> events;
  ASSERT_TRUE(build.Head(BuildOf(matrix, Jacobi())).Done().Finish(&events).ok());
  v1::DownloadPreconditionerRequest request;
  request.set_name(events.back().done().preconditioner().name());
  const auto download = [&] {
    const auto context = Context();
    auto stream = h.preconditioners->DownloadPreconditioner(context.get(), request);
    v1::DownloadPreconditionerResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  };
  {
    const FailsFrom fails(size_t{32} << 10);  // a chunk that is filled: larger ones are lent
    EXPECT_RPC_ERROR(download(), RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "memory");
    h.ExpectLives();
  }
  EXPECT_TRUE(download().ok());
}

}  // namespace
}  // namespace spaid::server
