// The whole gRPC stack on a port of its own, over the fake engine, and a client for it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/rpc/backend.h"
#include "server/rpc/credentials.h"
#include "server/rpc/server.h"
#include "spaid/v1/job.grpc.pb.h"
#include "spaid/v1/matrix.grpc.pb.h"
#include "spaid/v1/preconditioner.grpc.pb.h"
#include "spaid/v1/server.grpc.pb.h"
#include "spaid/v1/solver.grpc.pb.h"
#include "tests/server/fake_engine.h"

namespace spaid::server {

// What a client reads from `grpc-status-details-bin`.
struct ErrorView {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string reason, message, field;
  std::optional<double> retry_ms;
  std::map<std::string, std::string> metadata;
};
ErrorView Decode(const grpc::Status& status);

// Code, reason, and a text that says what a person needs (`text` is part of it).
#define EXPECT_RPC_ERROR(status, expected_code, expected_reason, text)                 \
  do {                                                                                 \
    const ::spaid::server::ErrorView error_view = ::spaid::server::Decode(status);     \
    EXPECT_EQ(error_view.code, grpc::StatusCode::expected_code) << error_view.message; \
    EXPECT_EQ(error_view.reason, expected_reason) << error_view.message;               \
    EXPECT_NE(error_view.message.find(text), std::string::npos) << error_view.message; \
  } while (false)

// A square matrix in CSC as a client has it.
struct Csc {
  int64_t n = 0;
  std::vector<int64_t> pointers;
  std::vector<int32_t> indices;
  std::vector<double> values;
  int64_t nnz() const { return static_cast<int64_t>(indices.size()); }
};
// diag(first, first + 1, ...).
Csc DiagonalMatrix(int64_t n, double first = 1);

v1::MatrixHeader HeaderOf(const Csc& a);
template <class T>
v1::ArrayChunk ChunkOf(v1::ArrayKind kind, int64_t offset, const std::vector<T>& data) {
  v1::ArrayChunk chunk;
  chunk.set_array(kind);
  chunk.set_offset(offset);
  chunk.set_data(std::string(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)));
  return chunk;
}
// The three arrays, one chunk each.
std::vector<v1::ArrayChunk> ChunksOf(const Csc& a);

v1::PreconditionerSpec Jacobi();
v1::PreconditionerSpec StaticSpai();
v1::PreconditionerSpec None();

// One upload from start to end.
struct Uploaded {
  grpc::Status status;
  std::vector<v1::UploadMatrixResponse> events;
  v1::Matrix matrix;  // of `done`
};

class Harness {
 public:
  struct Options {
    BackendOptions backend = {};
    std::string tokens = {};  // content of a tokens file
    std::string admin_tokens = {};
    bool allow_anonymous = false;
    bool trust_tenant_header = false;
    TlsFiles tls = {};
    RpcServerOptions server = {};  // but for address and credentials
    std::vector<kernels::DeviceInfo> devices = {FakeCpu()};
  };
  static BackendOptions SmallBackend();

  Harness() : Harness(Options{.backend = SmallBackend()}) {}
  explicit Harness(Options options);
  ~Harness();

  // A connection of its own (never shared), as `tenant` where that is trusted.
  std::shared_ptr<grpc::Channel> NewChannel(grpc::ChannelArguments arguments = {},
                                            const std::string& address = "");

  Uploaded Upload(const v1::MatrixHeader& header, const std::vector<v1::ArrayChunk>& chunks,
                  const std::string& tenant = "");
  // Uploads a good matrix; its handle.
  std::string Store(const Csc& a, const std::string& tenant = "");

  // A good request, from upload to solution: the daemon lives.
  void ExpectLives();

  FakeEngine engine;
  Metrics metrics;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<RpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::MatrixService::Stub> matrices;
  std::unique_ptr<v1::PreconditionerService::Stub> preconditioners;
  std::unique_ptr<v1::SolverService::Stub> solver;
  std::unique_ptr<v1::JobService::Stub> jobs;
  std::unique_ptr<v1::ServerService::Stub> info;
};

// A context that gives up after a minute, so that a hang is a failure; for `tenant` where trusted.
std::unique_ptr<grpc::ClientContext> Context(const std::string& tenant = "");

// A build or solve, event by event.
template <class Stub, class Request, class Response>
class Call {
 public:
  using Stream = grpc::ClientReaderWriter<Request, Response>;
  Call(std::unique_ptr<grpc::ClientContext> context,
       std::unique_ptr<Stream> (Stub::*open)(grpc::ClientContext*), Stub& stub)
      : context_(std::move(context)), stream_((stub.*open)(context_.get())) {}

  template <class Header>
  Call& Head(const Header& header) {
    Request request;
    *request.mutable_header() = header;
    stream_->Write(request);
    return *this;
  }
  Call& Chunk(const v1::ArrayChunk& chunk) {
    Request request;
    *request.mutable_chunk() = chunk;
    stream_->Write(request);
    return *this;
  }
  Call& Segment(const v1::ArraySegment& segment) {
    Request request;
    *request.mutable_segment() = segment;
    stream_->Write(request);
    return *this;
  }
  Call& Done() {
    stream_->WritesDone();
    return *this;
  }
  // The next event; false at the end.
  bool Read(Response* response) { return stream_->Read(response); }
  // Reads on until an event that `wanted` likes; it is there, or the test fails.
  template <class Predicate>
  Response ReadUntil(Predicate wanted) {
    Response response;
    while (stream_->Read(&response)) {
      if (wanted(response)) return response;
    }
    ADD_FAILURE() << "the stream ended without it: " << stream_->Finish().error_message();
    return {};
  }
  void Cancel() { context_->TryCancel(); }
  // Reads to the end.
  grpc::Status Finish(std::vector<Response>* rest = nullptr) {
    Response response;
    while (stream_->Read(&response)) {
      if (rest != nullptr) rest->push_back(response);
    }
    return stream_->Finish();
  }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
};

using BuildCall = Call<v1::PreconditionerService::Stub, v1::BuildPreconditionerRequest,
                       v1::BuildPreconditionerResponse>;
using SolveCall = Call<v1::SolverService::Stub, v1::SolveRequest, v1::SolveResponse>;
using UploadCall = Call<v1::MatrixService::Stub, v1::UploadMatrixRequest, v1::UploadMatrixResponse>;

BuildCall OpenBuild(Harness& h, const std::string& tenant = "");
SolveCall OpenSolve(Harness& h, const std::string& tenant = "");
UploadCall OpenUpload(Harness& h, const std::string& tenant = "");

// Headers of good requests on a stored matrix.
v1::BuildHeader BuildOf(const std::string& matrix, const v1::PreconditionerSpec& spec);
v1::SolveHeader SolveOf(const std::string& matrix, const v1::PreconditionerSpec& spec);

// Reads until the job has a name, or runs.
template <class AnyCall>
std::string JobName(AnyCall& call) {
  const auto event =
      call.ReadUntil([](const auto& r) { return r.has_job() && r.job().has_queued(); });
  return event.job().queued().job();
}
template <class AnyCall>
void WaitStarted(AnyCall& call) {
  call.ReadUntil([](const auto& r) { return r.has_job() && r.job().has_started(); });
}
// Watches `job` to its end (waits on events, not on time).
v1::Job WaitEnded(Harness& h, const std::string& job, const std::string& tenant = "");

}  // namespace spaid::server
