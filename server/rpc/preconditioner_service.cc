#include "server/rpc/preconditioner_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/engine/partial_matrix.h"
#include "server/engine/parts.h"
#include "server/engine/resolved_build.h"
#include "server/rpc/download.h"
#include "server/rpc/kept_jobs.h"
#include "server/rpc/list_page.h"
#include "server/rpc/unary.h"
#include "server/rpc/work_stream.h"

namespace spaid::server {
namespace {

// The type of streamed values: FLOAT64 where the client did not say.
absl::StatusOr<v1::ValueType> ResultType(v1::ValueType asked, std::string field) {
  switch (asked) {
    case v1::VALUE_TYPE_UNSPECIFIED:
      return v1::VALUE_TYPE_FLOAT64;
    case v1::VALUE_TYPE_FLOAT64:
    case v1::VALUE_TYPE_FLOAT32:
      return asked;
    default:
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnknownEnum,
                       absl::StrCat(field, " is ", static_cast<int>(asked),
                                    "; send VALUE_TYPE_FLOAT64 or VALUE_TYPE_FLOAT32"))
          .Field(field);
  }
}

absl::Status CheckKnownPattern(const std::string& digest, const std::string& field) {
  if (digest.empty() || digest.size() == Digest().bytes.size()) return absl::OkStatus();
  return MakeError(
             absl::StatusCode::kInvalidArgument, reason::kBadDigest,
             absl::StrCat(field, " has ", digest.size(), " bytes; it must have 16, or be left out"))
      .Field(field);
}

// Begins to send an M over ranks. Blocks.
absl::StatusOr<std::shared_ptr<Download>> OpenDownload(
    Backend* backend, const std::shared_ptr<const Preconditioner>& stored, v1::ValueType type) {
  ASSIGN_OR_RETURN(auto from, backend->adapter().BeginOutput(*stored->kernel->over_ranks()));
  return std::make_shared<Download>(stored, std::move(from), type);
}

class BuildStream final
    : public WorkStream<v1::BuildPreconditionerRequest, v1::BuildPreconditionerResponse> {
 public:
  BuildStream(grpc::CallbackServerContext* context, Backend* backend)
      : WorkStream(context, "PreconditionerService/BuildPreconditioner", backend) {}

 private:
  absl::Status TakeHeader(const v1::BuildHeader& header) override {
    // The spec is checked now, not after an upload of a gigabyte.
    ASSIGN_OR_RETURN(const ParsedSpec parsed, ParseSpec(header.spec(), "header.spec"));
    if (header.stream_result() && kernels::TraitsOf(parsed.spec.engine).by_parts) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kPartNeeded,
                       "multigrid's M is a cycle and no matrix to be sent; leave stream_result "
                       "unset, and download its parts by the handle that comes")
          .Field("header.stream_result");
    }
    if (header.stream_result() && kernels::TraitsOf(parsed.spec.engine).ranks_alone) {
      return MatrixOverRanks(
                 "M of this engine is not sent; leave stream_result unset, and solve "
                 "with it by the handle that comes",
                 "preconditioner")
          .Field("header.stream_result");
    }
    ASSIGN_OR_RETURN(type_, ResultType(header.result_type(), "header.result_type"));
    RETURN_IF_ERROR(CheckKnownPattern(header.known_pattern(), "header.known_pattern"));
    known_pattern_ = header.known_pattern();
    ASSIGN_OR_RETURN(terms_, backend_->Terms(header, *context_));
    terms_.trace = trace();
    spec_ = header.spec();
    if (header.detach() && backend_->kept_jobs() != nullptr) kept_header_ = header;
    stream_result_ = header.stream_result();
    partial_ = stream_result_ && header.partial_result();
    return absl::OkStatus();
  }

  absl::Status TakeChunk(const ChunkView& chunk) override {
    return UnexpectedArray(chunk, "the arrays of the inline matrix");
  }
  bool wants_chunks() const override { return false; }
  absl::Status CheckComplete() override { return absl::OkStatus(); }

  absl::StatusOr<Started> Submit() override {
    if (matrix_->value->over != nullptr) partial_ = false;  // its M is not here while it is made
    ASSIGN_OR_RETURN(auto ticket, backend_->job_factory().StartBuild({.tenant = tenant(),
                                                                      .matrix = *matrix_,
                                                                      .spec = spec_,
                                                                      .field = "header.spec",
                                                                      .terms = terms_,
                                                                      .stop = stop()}));
    shared_ = ticket.shared || ticket.ready.has_value();
    if (ticket.ready) {
      result_ = std::move(ticket.ready);
      return Started{};
    }
    if (kept_header_) {
      absl::Status kept =
          backend_->kept_jobs()->KeepBuild(tenant(), ticket.job, *kept_header_, *matrix_);
      if (!kept.ok() && !ticket.shared) ticket.job->RequestStop(StopCause::kCancelled);
      RETURN_IF_ERROR(kept);
    }
    return Started{std::move(ticket.job), std::move(ticket.waiter)};
  }

  bool wants_partial() const override { return partial_; }

  bool NextPartial(v1::BuildPreconditionerResponse* message) override {
    if (!partial_) return false;
    if (download_ == nullptr) {
      auto m = std::static_pointer_cast<const PartialMatrix>(feed_.job()->partial());
      if (m == nullptr) return false;
      download_ = std::make_shared<Download>(std::move(m), type_, known_pattern_);
    }
    if (Waits()) return false;
    auto more = NextOfDownload(message);
    // A value that does not fit float32 ends the stream when M is finished and stored, not earlier.
    if (!more.ok()) partial_ = false;
    return more.ok() && *more;
  }

  bool NextResult(v1::BuildPreconditionerResponse* message) override {
    if (!result_) {
      const auto outcome = std::static_pointer_cast<const BuildOutcome>(feed_.job()->result());
      result_ = outcome->preconditioner;
    }
    if (stream_result_) {
      // That of another build, where the store had one already.
      if (download_ == nullptr || !download_->Of(result_->value->kernel)) {
        if (result_->value->kernel->over_ranks() != nullptr) return OpenSpread();
        download_ = std::make_shared<Download>(result_->value, type_, known_pattern_);
      }
      if (Waits()) return false;
      auto more = NextOfDownload(message);
      if (!more.ok()) {
        EndLocked(more.status());
        return false;
      }
      if (*more) return true;
    }
    if (std::exchange(done_, true)) return false;
    v1::BuildDone* done = message->mutable_done();
    *done->mutable_preconditioner() = ToProto(*result_);
    v1::Timings* timings = done->mutable_timings();
    if (feed_.following()) *timings = feed_.job()->timings();
    AddTransport(timings);
    if (download_ != nullptr) download_->AddTo(timings);
    timings->set_reused(timings->reused() || shared_);
    EndLocked(absl::OkStatus());
    return true;
  }

  absl::StatusOr<bool> NextOfDownload(v1::BuildPreconditionerResponse* message) {
    return download_->Next(message, &v1::BuildPreconditionerResponse::mutable_result,
                           backend_->streams().ChunkBytes(), &lent_);
  }

  bool Waits() {
    auto self = std::static_pointer_cast<BuildStream>(shared_from_this());
    return download_->Waits(backend_, tenant(), [self](const std::function<void()>& task) {
      Section section(self.get());
      task();
      self->PumpLocked();
    });
  }

  // Begins to bring an M over ranks, on an executor; false: nothing can be sent before.
  bool OpenSpread() {
    if (std::exchange(opening_, true)) return false;
    auto self = std::static_pointer_cast<BuildStream>(shared_from_this());
    const auto opened = [self](absl::StatusOr<std::shared_ptr<Download>> download) {
      Section section(self.get());
      if (!download.ok()) {
        self->EndLocked(download.status());
      } else if (!self->ended_locked()) {
        self->download_ = *std::move(download);
      }
      self->PumpLocked();
    };
    const absl::Status runs = backend_->Run(
        Backend::Pool::kRanks, tenant(),
        [self, opened, stored = result_->value] {
          opened(OpenDownload(self->backend_, stored, self->type_));
        },
        opened);
    if (!runs.ok()) EndLocked(runs);
    return false;
  }

  void ReleaseHandles() override {
    WorkStream::ReleaseHandles();
    result_.reset();
    download_.reset();
  }

  v1::PreconditionerSpec spec_;
  std::optional<v1::BuildHeader> kept_header_;  // of a job that outlives the daemon
  v1::ValueType type_ = v1::VALUE_TYPE_FLOAT64;
  std::string known_pattern_;
  JobFactory::Terms terms_;
  bool stream_result_ = false, partial_ = false, shared_ = false, done_ = false;
  bool opening_ = false;  // an M over ranks
  std::optional<Stored<Preconditioner>> result_;
  std::shared_ptr<Download> download_;
};

class DownloadStream final
    : public RequestStream<v1::DownloadPreconditionerRequest, v1::DownloadPreconditionerResponse> {
 public:
  DownloadStream(grpc::CallbackServerContext* context, Backend* backend)
      : RequestStream(context, "PreconditionerService/DownloadPreconditioner", &backend->streams(),
                      &backend->metrics()),
        backend_(backend) {}

 private:
  void Requested(const v1::DownloadPreconditionerRequest& request) override {
    Section section(this);
    request_ = request;
    if (absl::Status status = Find(); !status.ok()) EndLocked(std::move(status));
    PumpLocked();
  }

  absl::Status Find() {
    ASSIGN_OR_RETURN(const Caller caller, Identify(backend_->authenticator()));
    RETURN_IF_ERROR(Admit(caller.tenant));
    ASSIGN_OR_RETURN(const v1::ValueType type, ResultType(request_.value_type(), "value_type"));
    RETURN_IF_ERROR(CheckKnownPattern(request_.known_pattern(), "known_pattern"));
    ASSIGN_OR_RETURN(auto found, backend_->preconditioners().Look(caller.tenant, request_.name()));
    tenant_ = caller.tenant;
    if (found.value != nullptr) RETURN_IF_ERROR(CheckPart(*found.value, request_));
    const bool here = found.value != nullptr && found.value->kernel->over_ranks() == nullptr;
    if (here && !request_.has_part()) {
      download_ = std::make_shared<Download>(found.value, type, request_.known_pattern());
      return absl::OkStatus();
    }
    auto self = std::static_pointer_cast<DownloadStream>(shared_from_this());
    const auto pool =
        found.value != nullptr && !here ? Backend::Pool::kRanks : Backend::Pool::kStore;
    return backend_->Run(
        pool, tenant_, [self, type] { self->ReadBack(type); },
        [self](const absl::Status& error) {
          Section section(self.get());
          self->EndLocked(error);
          self->PumpLocked();
        });
  }

  // On an executor: M is in the spill folder alone, or over the ranks, or a part of it is to be
  // copied.
  void ReadBack(v1::ValueType type) {
    auto download = Make(type);
    Section section(this);
    if (!download.ok()) {
      EndLocked(download.status());
    } else if (!ended_locked()) {
      download_ = *std::move(download);
    }
    PumpLocked();
  }

  absl::StatusOr<std::shared_ptr<Download>> Make(v1::ValueType type) {
    ASSIGN_OR_RETURN(const auto m, backend_->preconditioners().Load(tenant_, request_.name()));
    RETURN_IF_ERROR(CheckPart(*m.value, request_));
    if (m.value->kernel->over_ranks() != nullptr) return OpenDownload(backend_, m.value, type);
    if (!request_.has_part()) {
      return std::make_shared<Download>(m.value, type, request_.known_pattern());
    }
    ASSIGN_OR_RETURN(auto part,
                     CopyPart(backend_->rhs_budget(), tenant_, *m.value, request_.part()));
    return std::make_shared<Download>(std::move(part), type);
  }

  bool Next(v1::DownloadPreconditionerResponse* message) override {
    if (download_ == nullptr || done_ || Waits()) return false;
    auto more = download_->Next(message, &v1::DownloadPreconditionerResponse::mutable_header,
                                backend_->streams().ChunkBytes(), &lent_);
    if (!more.ok()) {
      EndLocked(more.status());
      return false;
    }
    if (*more) return true;
    v1::Timings* timings = message->mutable_done();
    download_->AddTo(timings);
    timings->set_total_ms(timings->download_ms());
    done_ = true;
    EndLocked(absl::OkStatus());
    return true;
  }

  bool Waits() {
    auto self = std::static_pointer_cast<DownloadStream>(shared_from_this());
    return download_->Waits(backend_, tenant_, [self](const std::function<void()>& task) {
      Section section(self.get());
      task();
      self->PumpLocked();
    });
  }

  Backend* const backend_;
  v1::DownloadPreconditionerRequest request_;
  std::string tenant_;
  std::shared_ptr<Download> download_;
  bool done_ = false;
};

// Counting takes O(nnz) time: on the executor.
class EstimateCall final
    : public RequestStream<v1::EstimateBuildRequest, v1::EstimateBuildResponse> {
 public:
  EstimateCall(grpc::CallbackServerContext* context, Backend* backend)
      : RequestStream(context, "PreconditionerService/EstimateBuild", &backend->streams(),
                      &backend->metrics()),
        backend_(backend) {}

 private:
  void Requested(const v1::EstimateBuildRequest& request) override {
    auto call = std::static_pointer_cast<EstimateCall>(shared_from_this());
    const absl::Status status = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const Caller caller, Identify(backend_->authenticator()));
      RETURN_IF_ERROR(backend_->CheckServing());
      RETURN_IF_ERROR(ParseSpec(request.spec(), "spec"));
      ASSIGN_OR_RETURN(auto matrix, backend_->matrices().Look(caller.tenant, request.matrix()));
      return backend_->Run(
          Backend::Pool::kCount, caller.tenant,
          [call, tenant = caller.tenant, matrix, request] {
            v1::EstimateBuildResponse response;
            const absl::Status counted =
                Count(call->backend_, tenant, matrix, request, call->stop_.token(), &response);
            call->End(counted, std::move(response));
          },
          [call](const absl::Status& error) { call->End(error, {}); });
    }();
    if (!status.ok()) End(status, {});
  }

  static absl::Status Count(Backend* backend, const std::string& tenant, Stored<Matrix> matrix,
                            const v1::EstimateBuildRequest& request, kernels::StopToken stop,
                            v1::EstimateBuildResponse* response) {
    if (matrix.value == nullptr) {
      ASSIGN_OR_RETURN(matrix, backend->matrices().Load(tenant, matrix.handle));
    }
    ASSIGN_OR_RETURN(const auto estimate, backend->job_factory().EstimateBuild(
                                              tenant, *matrix.value, request.spec(), "spec", stop));
    const kernels::BuildEstimate& f = estimate.figures;
    response->set_host_bytes(f.host_bytes);
    response->set_device_bytes(f.device_bytes);
    response->set_device_bytes_min(f.device_bytes_min);
    response->set_nnz(f.nnz_m);
    response->set_download_bytes(f.download_bytes);
    response->set_predicted_ms(f.predicted_ms);
    response->set_flops(f.flops);
    response->set_n1_max(f.n1_max);
    response->set_n2_max(f.n2_max);
    *response->mutable_choice() = estimate.choice;
    return absl::OkStatus();
  }

  void End(const absl::Status& status, v1::EstimateBuildResponse response) {
    Section section(this);
    response_ = std::move(response);
    answered_ = status.ok();
    EndLocked(status);
    PumpLocked();
  }
  bool Next(v1::EstimateBuildResponse* message) override {
    if (!std::exchange(answered_, false)) return false;
    message->Swap(&response_);
    return true;
  }
  // The client has gone, its deadline has passed, or the server closes.
  void Gone() override { stop_.Request(kernels::StopReason::kCancelled); }

  Backend* const backend_;
  kernels::StopSource stop_;
  v1::EstimateBuildResponse response_;
  bool answered_ = false;
};

}  // namespace

RawBidiReactor* PreconditionerService::BuildPreconditioner(grpc::CallbackServerContext* context) {
  return Launch<BuildStream>(context, backend_);
}

RawBidiReactor* PreconditionerService::EstimateBuild(grpc::CallbackServerContext* context) {
  return Launch<EstimateCall>(context, backend_);
}

RawBidiReactor* PreconditionerService::GetPreconditioner(grpc::CallbackServerContext* context) {
  return Unary<v1::GetPreconditionerRequest, v1::GetPreconditionerResponse>(
      context, "PreconditionerService/GetPreconditioner", backend_,
      [this](const Caller& caller, const v1::GetPreconditionerRequest* request,
             v1::GetPreconditionerResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const auto found,
                         backend_->preconditioners().Look(caller.tenant, request->name()));
        *response->mutable_preconditioner() = ToProto(found);
        return absl::OkStatus();
      });
}

RawBidiReactor* PreconditionerService::ListPreconditioners(grpc::CallbackServerContext* context) {
  return Unary<v1::ListPreconditionersRequest, v1::ListPreconditionersResponse>(
      context, "PreconditionerService/ListPreconditioners", backend_,
      [this](const Caller& caller, const v1::ListPreconditionersRequest* request,
             v1::ListPreconditionersResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const PageRequest page,
                         ParsePage(absl::StrCat("preconditioners of ", caller.tenant),
                                   request->page_size(), request->page_token()));
        const auto listed = backend_->preconditioners().List(caller.tenant, page);
        FillPage(
            page, listed.items, listed.sequences, listed.next_token,
            [](const auto& item) { return ToProto(item); }, response->mutable_preconditioners(),
            response->mutable_next_page_token());
        return absl::OkStatus();
      });
}

RawBidiReactor* PreconditionerService::DeletePreconditioner(grpc::CallbackServerContext* context) {
  return Unary<v1::DeletePreconditionerRequest, v1::DeletePreconditionerResponse>(
      context, "PreconditionerService/DeletePreconditioner", backend_,
      [this](const Caller& caller, const v1::DeletePreconditionerRequest* request,
             v1::DeletePreconditionerResponse*) -> absl::Status {
        return backend_->preconditioners().Delete(caller.tenant, request->name());
      });
}

RawBidiReactor* PreconditionerService::DownloadPreconditioner(
    grpc::CallbackServerContext* context) {
  return Launch<DownloadStream>(context, backend_);
}

void PreconditionerService::AddTo(Methods* methods) {
  methods->Add("PreconditionerService/BuildPreconditioner", this,
               &PreconditionerService::BuildPreconditioner);
  methods->Add("PreconditionerService/EstimateBuild", this, &PreconditionerService::EstimateBuild);
  methods->Add("PreconditionerService/GetPreconditioner", this,
               &PreconditionerService::GetPreconditioner);
  methods->Add("PreconditionerService/ListPreconditioners", this,
               &PreconditionerService::ListPreconditioners);
  methods->Add("PreconditionerService/DeletePreconditioner", this,
               &PreconditionerService::DeletePreconditioner);
  methods->Add("PreconditionerService/DownloadPreconditioner", this,
               &PreconditionerService::DownloadPreconditioner);
}

}  // namespace spaid::server
