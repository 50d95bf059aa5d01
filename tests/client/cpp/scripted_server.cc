#include "tests/client/cpp/scripted_server.h"

#include <cstdlib>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace spaid::testing {
namespace {

grpc::Status Missing() { return {grpc::StatusCode::UNIMPLEMENTED, "no script for this call"}; }

}  // namespace

class ScriptedServer::Services final {
 public:
  explicit Services(Script given)
      : script(std::move(given)),
        matrix(script),
        preconditioner(script),
        solver(script),
        job(script),
        server(script) {}

  struct MatrixPart final : v1::MatrixService::Service {
    explicit MatrixPart(Script& s) : script(s) {}
    grpc::Status UploadMatrix(grpc::ServerContext* context,
                              grpc::ServerReaderWriter<v1::UploadMatrixResponse,
                                                       v1::UploadMatrixRequest>* stream) override {
      return script.upload ? script.upload(*context, *stream) : Missing();
    }
    grpc::Status GetMatrix(grpc::ServerContext* context, const v1::GetMatrixRequest* request,
                           v1::GetMatrixResponse* response) override {
      return script.get_matrix ? script.get_matrix(*context, *request, *response) : Missing();
    }
    grpc::Status ListMatrices(grpc::ServerContext* context, const v1::ListMatricesRequest* request,
                              v1::ListMatricesResponse* response) override {
      return script.list_matrices ? script.list_matrices(*context, *request, *response) : Missing();
    }
    grpc::Status DeleteMatrix(grpc::ServerContext* context, const v1::DeleteMatrixRequest* request,
                              v1::DeleteMatrixResponse* response) override {
      return script.delete_matrix ? script.delete_matrix(*context, *request, *response) : Missing();
    }
    Script& script;
  };
  struct PreconditionerPart final : v1::PreconditionerService::Service {
    explicit PreconditionerPart(Script& s) : script(s) {}
    grpc::Status BuildPreconditioner(
        grpc::ServerContext* context,
        grpc::ServerReaderWriter<v1::BuildPreconditionerResponse, v1::BuildPreconditionerRequest>*
            stream) override {
      return script.build ? script.build(*context, *stream) : Missing();
    }
    grpc::Status DownloadPreconditioner(
        grpc::ServerContext* context, const v1::DownloadPreconditionerRequest* request,
        grpc::ServerWriter<v1::DownloadPreconditionerResponse>* writer) override {
      return script.download ? script.download(*context, *request, *writer) : Missing();
    }
    Script& script;
  };
  struct SolverPart final : v1::SolverService::Service {
    explicit SolverPart(Script& s) : script(s) {}
    grpc::Status Solve(
        grpc::ServerContext* context,
        grpc::ServerReaderWriter<v1::SolveResponse, v1::SolveRequest>* stream) override {
      return script.solve ? script.solve(*context, *stream) : Missing();
    }
    Script& script;
  };
  struct JobPart final : v1::JobService::Service {
    explicit JobPart(Script& s) : script(s) {}
    grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                          grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
      return script.watch ? script.watch(*context, *request, *writer) : Missing();
    }
    grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                        v1::GetJobResponse* response) override {
      return script.get_job ? script.get_job(*context, *request, *response) : Missing();
    }
    grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                          v1::ListJobsResponse* response) override {
      return script.list_jobs ? script.list_jobs(*context, *request, *response) : Missing();
    }
    grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                           v1::CancelJobResponse* response) override {
      return script.cancel_job ? script.cancel_job(*context, *request, *response) : Missing();
    }
    Script& script;
  };
  struct ServerPart final : v1::ServerService::Service {
    explicit ServerPart(Script& s) : script(s) {}
    grpc::Status GetServerInfo(grpc::ServerContext* context,
                               const v1::GetServerInfoRequest* request,
                               v1::GetServerInfoResponse* response) override {
      return script.info ? script.info(*context, *request, *response) : Missing();
    }
    Script& script;
  };

  Script script;
  MatrixPart matrix;
  PreconditionerPart preconditioner;
  SolverPart solver;
  JobPart job;
  ServerPart server;
};

ScriptedServer::ScriptedServer(Script script, const std::string& listen)
    : services_(std::make_unique<Services>(std::move(script))) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&services_->matrix);
  builder.RegisterService(&services_->preconditioner);
  builder.RegisterService(&services_->solver);
  builder.RegisterService(&services_->job);
  builder.RegisterService(&services_->server);
  server_ = builder.BuildAndStart();
  address_ = "127.0.0.1:" + std::to_string(port);
}

ScriptedServer::~ScriptedServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

grpc::Status Refusal(grpc::StatusCode code, const std::string& reason, const std::string& message,
                     const std::string& field,
                     std::optional<std::chrono::milliseconds> retry_after) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("spaid");
  (*info.mutable_metadata())["index"] = "7";
  (*info.mutable_metadata())["actual"] = "9";
  status.add_details()->PackFrom(info);
  if (!field.empty()) {
    google::rpc::BadRequest bad;
    bad.add_field_violations()->set_field(field);
    status.add_details()->PackFrom(bad);
  }
  if (retry_after) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_after->count() / 1000);
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(retry_after->count() % 1000 * 1'000'000));
    status.add_details()->PackFrom(retry);
  }
  return {code, message, status.SerializeAsString()};
}

grpc::Status Evicted(const std::string& handle) {
  google::rpc::Status status;
  status.set_code(grpc::StatusCode::NOT_FOUND);
  status.set_message(handle + " gave way to others");
  google::rpc::ErrorInfo info;
  info.set_reason("HANDLE_EVICTED");
  (*info.mutable_metadata())["handle"] = handle;
  status.add_details()->PackFrom(info);
  return {grpc::StatusCode::NOT_FOUND, status.message(), status.SerializeAsString()};
}

v1::UploadMatrixResponse Need(v1::ArrayKind kind, int64_t offset, int64_t count) {
  v1::UploadMatrixResponse response;
  v1::UploadNeed::Range& range = *response.mutable_need()->add_ranges();
  range.set_array(kind);
  range.set_offset(offset);
  range.set_count(count);
  return response;
}

v1::UploadMatrixResponse Done(const std::string& name, int64_t n) {
  v1::UploadMatrixResponse response;
  response.mutable_done()->mutable_matrix()->set_name(name);
  response.mutable_done()->mutable_matrix()->set_n(n);
  response.mutable_done()->mutable_timings()->set_bytes_up(1234);
  return response;
}

const CscMatrix& Small() {
  static const CscMatrix a{.n = 3,
                           .col_ptr = {0, 2, 5, 7},
                           .row_idx = {0, 1, 0, 1, 2, 1, 2},
                           .values = {4, -1, -1, 4, -1, -1, 4}};
  return a;
}

v1::ArrayChunk NextChunk(internal::ChunkSource& source) {
  grpc::ByteBuffer message = source.Next(v1::UploadMatrixRequest::kChunkFieldNumber);
  v1::UploadMatrixRequest request;
  if (!grpc::SerializationTraits<v1::UploadMatrixRequest>::Deserialize(&message, &request).ok()) {
    std::abort();
  }
  return request.chunk();
}

}  // namespace spaid::testing
