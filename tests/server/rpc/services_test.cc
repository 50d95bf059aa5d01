// The plain calls: lists, gets, deletes, info, health, reflection, downloads.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "server/base/digest.h"
#include "server/base/status.h"
#include "server/rpc/chunk_source.h"
#include "server/rpc/chunk_view.h"
#include "server/rpc/status_mapping.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

TEST(Matrices, ListInPagesNewestFirstGetAndDelete) {
  Harness h;
  std::vector<std::string> names;
  for (int i = 1; i <= 3; ++i) names.push_back(h.Store(DiagonalMatrix(2, i)));
  std::vector<std::string> listed;
  v1::ListMatricesRequest request;
  request.set_page_size(2);
  do {
    auto context = Context();
    v1::ListMatricesResponse response;
    const grpc::Status status = h.matrices->ListMatrices(context.get(), request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_LE(response.matrices_size(), 2);
    for (const auto& matrix : response.matrices()) listed.push_back(matrix.name());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, (std::vector<std::string>{names[2], names[1], names[0]}));

  request.set_page_size(-1);
  auto context = Context();
  v1::ListMatricesResponse response;
  EXPECT_RPC_ERROR(h.matrices->ListMatrices(context.get(), request, &response), INVALID_ARGUMENT,
                   "BAD_PAGE_SIZE", "-1");

  v1::DeleteMatrixRequest deletion;
  deletion.set_name(names[0]);
  v1::DeleteMatrixResponse deleted;
  context = Context();
  EXPECT_TRUE(h.matrices->DeleteMatrix(context.get(), deletion, &deleted).ok());
  v1::GetMatrixRequest get;
  get.set_name(names[0]);
  v1::GetMatrixResponse got;
  context = Context();
  EXPECT_RPC_ERROR(h.matrices->GetMatrix(context.get(), get, &got), NOT_FOUND, "HANDLE_UNKNOWN",
                   names[0]);
  get.set_name(names[1]);
  context = Context();
  ASSERT_TRUE(h.matrices->GetMatrix(context.get(), get, &got).ok());
  EXPECT_EQ(got.matrix().n(), 2);
}

TEST(Preconditioners, GetListDownloadDelete) {
  Harness h;
  BuildCall call = OpenBuild(h);
  std::vector<v1::BuildPreconditionerResponse> events;
  ASSERT_TRUE(
      call.Head(BuildOf(h.Store(DiagonalMatrix(3, 2)), Jacobi())).Done().Finish(&events).ok());
  const std::string name = events.back().done().preconditioner().name();
  {
    auto context = Context();
    v1::ListPreconditionersResponse response;
    ASSERT_TRUE(h.preconditioners->ListPreconditioners(context.get(), {}, &response).ok());
    ASSERT_EQ(response.preconditioners_size(), 1);
    EXPECT_EQ(response.preconditioners(0).name(), name);
  }
  for (const v1::ValueType type : {v1::VALUE_TYPE_UNSPECIFIED, v1::VALUE_TYPE_FLOAT32}) {
    auto context = Context();
    v1::DownloadPreconditionerRequest request;
    request.set_name(name);
    request.set_value_type(type);
    auto stream = h.preconditioners->DownloadPreconditioner(context.get(), request);
    v1::DownloadPreconditionerResponse response;
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.header().nnz(), 3);
    std::string values;
    while (stream->Read(&response)) {
      if (response.chunk().array() == v1::ARRAY_KIND_VALUES) values += response.chunk().data();
    }
    ASSERT_TRUE(stream->Finish().ok());
    EXPECT_TRUE(response.has_done());
    if (type == v1::VALUE_TYPE_FLOAT32) {
      ASSERT_EQ(values.size(), 12u);
      float first = 0;
      std::memcpy(&first, values.data(), 4);
      EXPECT_EQ(first, 0.5f);
    } else {
      EXPECT_EQ(values.size(), 24u);
    }
  }
  v1::DeletePreconditionerRequest request;
  request.set_name(name);
  v1::DeletePreconditionerResponse response;
  auto context = Context();
  EXPECT_TRUE(h.preconditioners->DeletePreconditioner(context.get(), request, &response).ok());
  context = Context();
  EXPECT_RPC_ERROR(h.preconditioners->DeletePreconditioner(context.get(), request, &response),
                   NOT_FOUND, "HANDLE_UNKNOWN", name);
  context = Context();
  v1::DownloadPreconditionerRequest download;
  download.set_name(name);
  auto stream = h.preconditioners->DownloadPreconditioner(context.get(), download);
  v1::DownloadPreconditionerResponse none;
  EXPECT_FALSE(stream->Read(&none));
  EXPECT_RPC_ERROR(stream->Finish(), NOT_FOUND, "HANDLE_UNKNOWN", name);
}

TEST(EstimateBuild, RefusesWhatABuildWould) {
  Harness h;
  auto context = Context();
  v1::EstimateBuildRequest request;
  request.set_matrix(h.Store(DiagonalMatrix(3)));
  v1::EstimateBuildResponse response;
  EXPECT_FALSE(h.preconditioners->EstimateBuild(context.get(), request, &response).ok());
  *request.mutable_spec() = Jacobi();
  request.set_matrix("matrices/none");
  context = Context();
  EXPECT_RPC_ERROR(h.preconditioners->EstimateBuild(context.get(), request, &response), NOT_FOUND,
                   "HANDLE_UNKNOWN", "matrices/none");
}

// More estimates than there are threads, all held: an upload passes them, and each ends when its
// client has gone.
TEST(Preparation, EstimatesHoldUpNoUploadAndStopWhenNobodyWaits) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(3));
  h.engine.hold_estimates = true;
  SolveCall solve = OpenSolve(h);
  solve.Head(SolveOf(matrix, Jacobi()))
      .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{1, 2, 3}))
      .Done();
  h.engine.WaitForEstimates(1);
  auto context = Context();
  std::thread estimating([&] {
    v1::EstimateBuildRequest request;
    request.set_matrix(matrix);
    *request.mutable_spec() = Jacobi();
    v1::EstimateBuildResponse response;
    EXPECT_EQ(h.preconditioners->EstimateBuild(context.get(), request, &response).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  h.engine.WaitForEstimates(2);
  BuildCall build = OpenBuild(h);
  build.Head(BuildOf(matrix, Jacobi())).Done();

  EXPECT_NE(h.Store(DiagonalMatrix(4)), "");
  solve.Cancel();
  context->TryCancel();
  EXPECT_FALSE(solve.Finish().ok());
  estimating.join();
  h.engine.WaitForEstimates(3);  // a thread is free: the estimate was stopped
  build.Cancel();
  EXPECT_FALSE(build.Finish().ok());
  EXPECT_TRUE(
      h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  EXPECT_EQ(h.backend->jobs().size(), 0);
  h.ExpectLives();
}

TEST(Preparation, WhatItThrowsIsTheCallsError) {
  Harness h;
  const std::string matrix = h.Store(DiagonalMatrix(3));
  for (const auto& [thrown, code, reason] :
       {std::tuple("bad_alloc", grpc::StatusCode::RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"),
        std::tuple("oops", grpc::StatusCode::INTERNAL, "INTERNAL")}) {
    h.engine.ThrowFromEstimates(thrown);
    auto context = Context();
    v1::EstimateBuildRequest request;
    request.set_matrix(matrix);
    *request.mutable_spec() = Jacobi();
    v1::EstimateBuildResponse response;
    BuildCall build = OpenBuild(h);
    build.Head(BuildOf(matrix, Jacobi())).Done();
    SolveCall solve = OpenSolve(h);
    solve.Head(SolveOf(matrix, Jacobi()))
        .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{1, 2, 3}))
        .Done();
    for (const grpc::Status& status :
         {h.preconditioners->EstimateBuild(context.get(), request, &response), build.Finish(),
          solve.Finish()}) {
      EXPECT_EQ(Decode(status).code, code);
      EXPECT_EQ(Decode(status).reason, reason);
    }
  }
  h.engine.ThrowFromEstimates(std::nullopt);
  ASSERT_TRUE(
      h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  EXPECT_EQ(h.backend->rhs_budget().used(), 0);
  EXPECT_EQ(h.backend->jobs().size(), 0);
  h.ExpectLives();
}

TEST(GetServerInfo, SaysWhatIsServed) {
  Harness h;
  auto context = Context();
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(h.info->GetServerInfo(context.get(), {}, &info).ok());
  EXPECT_EQ(info.version(), "test");
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).name(), "cpu");
  EXPECT_TRUE(info.devices(0).in_use());
  EXPECT_EQ(info.limits().max_message_bytes(), 4 << 20);
  EXPECT_EQ(info.limits().max_matrix_bytes(), 1 << 20);
  EXPECT_EQ(info.limits().heartbeat_interval().seconds(), 5);
  // All but those that ranks of MPI alone build, of which there are none.
  EXPECT_EQ(info.engines_size(), v1::ENGINE_KIND_AMG);
  EXPECT_EQ(info.engines(info.engines_size() - 1), v1::ENGINE_KIND_AMG);
  EXPECT_EQ(info.tenant(), "default");
}

TEST(RpcServer, APortThatIsTakenIsRefused) {
  Harness h;
  const auto second = RpcServer::Start(
      {.address = h.server->address(), .credentials = grpc::InsecureServerCredentials()},
      h.backend.get());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()), "CANNOT_LISTEN");
  EXPECT_NE(second.status().message().find(h.server->address()), absl::string_view::npos);
  h.ExpectLives();
}

TEST(StatusMapping, EveryErrorLeavesWithAReasonAndFitsItsTrailer) {
  EXPECT_RPC_ERROR(ToGrpcStatus(absl::UnknownError("oops")), INTERNAL, "INTERNAL", "oops");
  const std::string huge(100'000, 'x');
  const grpc::Status status = ToGrpcStatus(
      MakeError(absl::StatusCode::kInvalidArgument, "BAD_LABEL", huge).Field("header.label"));
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 4096u);
  EXPECT_EQ(Decode(status).reason, "BAD_LABEL");
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(ChunkSource, RefusesToNarrowWhatDoesNotFit) {
  kernels::CscMatrix m;
  m.n_rows = m.n_cols = 1;
  m.col_ptr = {0, 1};
  m.row_idx = {0};
  m.values = {1e300};
  ChunkSource source = ChunkSource::OfMatrix(nullptr, m, /*narrow=*/true);
  v1::ArrayChunk chunk;
  grpc::Slice lent;
  EXPECT_TRUE(*source.Next(&chunk, kChunkBytes, &lent));
  EXPECT_TRUE(*source.Next(&chunk, kChunkBytes, &lent));
  const auto values = source.Next(&chunk, kChunkBytes, &lent);
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(ReasonOf(values.status()), "FLOAT32_OVERFLOW");
}

TEST(ChunkSource, CutsAtAMebibyteInOrder) {
  kernels::CscMatrix m;
  constexpr int64_t kN = 300'000;
  m.n_rows = m.n_cols = kN;
  m.col_ptr.assign(kN + 1, 0);
  ChunkSource source = ChunkSource::OfMatrix(nullptr, m, false);
  v1::ArrayChunk chunk;
  grpc::Slice lent;
  int64_t next = 0;
  while (*source.Next(&chunk, kChunkBytes, &lent)) {
    EXPECT_EQ(chunk.offset(), next);
    EXPECT_LE(chunk.data().size(), size_t{1} << 20);
    EXPECT_TRUE(chunk.has_crc32());
    next += static_cast<int64_t>(chunk.data().size() / 8);
  }
  EXPECT_EQ(next, kN + 1);
  EXPECT_EQ(source.bytes_down(), (kN + 1) * 8);
}

TEST(ChunkSource, LendsWhatHasAnOwnerAndIsMuch) {
  auto x = std::make_shared<std::vector<double>>(150'000);
  for (size_t i = 0; i < x->size(); ++i) (*x)[i] = static_cast<double>(i);
  ChunkSource source = ChunkSource::OfSolution(x, *x);
  std::vector<grpc::ByteBuffer> messages;
  for (;;) {
    v1::WatchJobResponse message;
    grpc::Slice lent;
    if (!*source.Next(message.mutable_chunk(), kChunkBytes, &lent)) break;
    EXPECT_TRUE(message.chunk().data().empty());
    messages.push_back(WriteChunk(v1::WatchJobResponse::kChunkFieldNumber, message.chunk(), lent));
  }
  ASSERT_EQ(messages.size(), 2);
  source = ChunkSource();
  EXPECT_EQ(x.use_count(), 3);
  // As any client reads it.
  std::vector<double> back;
  for (grpc::ByteBuffer& bytes : messages) {
    v1::WatchJobResponse message;
    ASSERT_TRUE(
        grpc::SerializationTraits<v1::WatchJobResponse>::Deserialize(&bytes, &message).ok());
    EXPECT_EQ(message.chunk().array(), v1::ARRAY_KIND_SOLUTION);
    EXPECT_EQ(message.chunk().offset(), static_cast<int64_t>(back.size()));
    EXPECT_EQ(message.chunk().crc32(), Crc32(message.chunk().data()));
    const size_t before = back.size();
    back.resize(before + message.chunk().data().size() / 8);
    std::memcpy(&back[before], message.chunk().data().data(), message.chunk().data().size());
  }
  EXPECT_EQ(back, *x);
  messages.clear();
  EXPECT_EQ(x.use_count(), 1);
}

TEST(ChunkSource, CopiesWhatHasNoOwnerOrIsLittle) {
  auto x = std::make_shared<std::vector<double>>(150'000);
  v1::ArrayChunk chunk;
  grpc::Slice lent;
  EXPECT_TRUE(*ChunkSource::OfSolution(nullptr, *x).Next(&chunk, kChunkBytes, &lent));
  EXPECT_EQ(chunk.data().size(), kChunkBytes);
  EXPECT_TRUE(*ChunkSource::OfSolution(x, *x).Next(&chunk, 4096, &lent));
  EXPECT_EQ(chunk.data().size(), 4096);
  EXPECT_EQ(lent.size(), 0);
}

TEST(Methods, OfTheContractAreAllServed) {
  Harness h;
  const std::vector<std::string> paths = h.server->Paths();
  for (const std::string& name : RpcServer::ServiceNames()) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string path = "/" + name + "/" + service->method(i)->name();
      EXPECT_EQ(std::count(paths.begin(), paths.end(), path), 1) << path;
    }
  }
}

TEST(PlainCalls, EndWithoutTheirRequest) {
  Harness h;
  grpc::GenericStub stub(h.channel);
  grpc::CompletionQueue queue;
  for (const bool known : {true, false}) {
    auto context = Context();
    auto call =
        stub.PrepareCall(context.get(), known ? "/spaid.v1.JobService/GetJob" : "/no/such", &queue);
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    call->WritesDone(nullptr);
    queue.Next(&tag, &ok);
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    if (known) {
      EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "without its request");
    } else {
      EXPECT_RPC_ERROR(status, UNIMPLEMENTED, "UNKNOWN_METHOD", "no such method");
    }
  }
  h.ExpectLives();
}

}  // namespace
}  // namespace spaid::server
