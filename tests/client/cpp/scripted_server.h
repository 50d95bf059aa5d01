// The services of v1 on a free port of 127.0.0.1, each call answered by a function of the test.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/cpp/arrays.h"
#include "client/cpp/chunk_source.h"
#include "spaid/client.h"
#include "spaid/v1/job.grpc.pb.h"
#include "spaid/v1/matrix.grpc.pb.h"
#include "spaid/v1/preconditioner.grpc.pb.h"
#include "spaid/v1/server.grpc.pb.h"
#include "spaid/v1/solver.grpc.pb.h"

namespace spaid::testing {

template <class Request, class Response>
using Bidi =
    std::function<grpc::Status(grpc::ServerContext&, grpc::ServerReaderWriter<Response, Request>&)>;
template <class Request, class Response>
using Unary = std::function<grpc::Status(grpc::ServerContext&, const Request&, Response&)>;
template <class Request, class Response>
using Down = std::function<grpc::Status(grpc::ServerContext&, const Request&,
                                        grpc::ServerWriter<Response>&)>;

// A call without a script answers UNIMPLEMENTED. Set scripts before the first call.
struct Script {
  Bidi<v1::UploadMatrixRequest, v1::UploadMatrixResponse> upload = {};
  Unary<v1::GetMatrixRequest, v1::GetMatrixResponse> get_matrix = {};
  Unary<v1::ListMatricesRequest, v1::ListMatricesResponse> list_matrices = {};
  Unary<v1::DeleteMatrixRequest, v1::DeleteMatrixResponse> delete_matrix = {};
  Bidi<v1::BuildPreconditionerRequest, v1::BuildPreconditionerResponse> build = {};
  Down<v1::DownloadPreconditionerRequest, v1::DownloadPreconditionerResponse> download = {};
  Bidi<v1::SolveRequest, v1::SolveResponse> solve = {};
  Down<v1::WatchJobRequest, v1::WatchJobResponse> watch = {};
  Unary<v1::GetJobRequest, v1::GetJobResponse> get_job = {};
  Unary<v1::ListJobsRequest, v1::ListJobsResponse> list_jobs = {};
  Unary<v1::CancelJobRequest, v1::CancelJobResponse> cancel_job = {};
  Unary<v1::GetServerInfoRequest, v1::GetServerInfoResponse> info = {};
};

class ScriptedServer {
 public:
  explicit ScriptedServer(Script script, const std::string& listen = "127.0.0.1:0");
  ~ScriptedServer();
  const std::string& address() const { return address_; }

 private:
  class Services;
  std::unique_ptr<Services> services_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// A status with details, as the daemon makes it.
grpc::Status Refusal(grpc::StatusCode code, const std::string& reason, const std::string& message,
                     const std::string& field = "",
                     std::optional<std::chrono::milliseconds> retry_after = {});

grpc::Status Evicted(const std::string& handle);

v1::UploadMatrixResponse Need(v1::ArrayKind kind, int64_t offset, int64_t count);
v1::UploadMatrixResponse Done(const std::string& name, int64_t n);

// [ 4 -1  0 ; -1 4 -1 ; 0 -1 4 ]
const CscMatrix& Small();

// What protobuf reads out of the source's next message.
v1::ArrayChunk NextChunk(internal::ChunkSource& source);

}  // namespace spaid::testing
