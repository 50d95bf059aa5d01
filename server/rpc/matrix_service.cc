#include "server/rpc/matrix_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/base/log.h"
#include "server/rpc/list_page.h"
#include "server/rpc/matrix_input.h"
#include "server/rpc/unary.h"
#include "server/rpc/work_stream.h"

namespace spaid::server {
namespace {

// header -> have | wait | need -> chunks -> half-close -> done.
class UploadStream final : public BidiStream<v1::UploadMatrixRequest, v1::UploadMatrixResponse>,
                           public UploadTable::Waiter {
 public:
  UploadStream(grpc::CallbackServerContext* context, Backend* backend)
      : BidiStream(context, "MatrixService/UploadMatrix", &backend->streams(), &backend->metrics()),
        backend_(backend) {}

  // The upload that this one waited for has ended.
  void Wake() override {
    Section section(this);
    if (!ended_locked()) {
      if (absl::Status status = LookLocked(); !status.ok()) EndLocked(std::move(status));
    }
    PumpLocked();
  }

 private:
  void Start() override {
    auto caller = backend_->authenticator().Identify(*context_);
    if (!caller.ok()) return EndLocked(caller.status());
    tenant_ = std::move(caller->tenant);
    if (absl::Status status = backend_->CheckServing(); !status.ok()) {
      return EndLocked(std::move(status));
    }
    ReadLocked();
  }
  bool Idle() const override { return !got_header_; }

  void Received(const v1::UploadMatrixRequest& request) override {
    absl::Status status;
    switch (request.message_case()) {
      case v1::UploadMatrixRequest::kHeader:
        if (got_header_) {
          status = UnexpectedMessage("a second header");
          break;
        }
        status = TakeHeader(request.header());
        if (status.ok()) status = LookLocked();
        break;
      default:
        status = UnexpectedMessage("a message that is neither a header nor a chunk");
    }
    if (!status.ok()) EndLocked(std::move(status));
  }

  void ReceivedChunk(const ChunkView& chunk) override {
    if (input_ == nullptr) {
      return EndLocked(UnexpectedMessage("a chunk before the header (or before `need`)"));
    }
    if (input_->bytes_up() == 0) first_chunk_ = Clock::now();
    ReadLocked();
    absl::Status status = input_->Add(chunk, shared_from_this());
    if (!status.ok()) EndLocked(std::move(status));
  }

  absl::Status TakeHeader(const v1::MatrixHeader& header) {
    got_header_ = true;
    opened_ = first_chunk_ = Clock::now();
    RETURN_IF_ERROR(backend_->CheckServing());
    RETURN_IF_ERROR(MatrixInput::Check(*backend_, header, "header"));
    header_ = header;
    content_key_ = ContentKeyOf(header);
    return absl::OkStatus();
  }

  // Is the content here, is it on its way, or must it be sent? Room is reserved in the last case
  // only.
  absl::Status LookLocked() {
    if (!content_key_.empty()) {
      if (FindLocked()) return absl::OkStatus();
      auto self = std::static_pointer_cast<UploadStream>(shared_from_this());
      turn_ = backend_->uploads().Enter(tenant_, content_key_, self);
      if (!turn_) {
        say_wait_ = true;
        return absl::OkStatus();
      }
      // The one before may have ended between the look and the turn.
      if (FindLocked()) {
        DropLocked(std::move(turn_));
        return absl::OkStatus();
      }
    }
    ASSIGN_OR_RETURN(input_, MatrixInput::Begin(backend_, tenant_, header_, "header"));
    // Said from a copy: by the time that a slow reader takes it, all may have been sent and input_
    // be the executor's.
    need_ = input_->Need();
    ReadLocked();
    return absl::OkStatus();
  }

  bool FindLocked() {
    have_ = backend_->matrices().Find(tenant_, content_key_);
    say_have_ = have_.has_value();
    timings_.set_reused(say_have_);
    return say_have_;
  }

  void HalfClosed() override {
    if (have_) return;
    absl::Status status = input_ == nullptr
                              ? UnexpectedMessage("the end of the input before the header")
                              : input_->CheckComplete();
    if (status.ok()) {
      auto self = std::static_pointer_cast<UploadStream>(shared_from_this());
      status = backend_->Run(
          Backend::Lane::kStore, tenant_, [self] { self->Store(); },
          [self](const absl::Status& error) { self->StoreFailed(error); });
    }
    if (!status.ok()) EndLocked(std::move(status));
  }

  // On the executor; nothing else touches input_ then.
  void Store() {
    UploadTable::Turn turn;  // ends last, the mutex released: wakes those who wait for this content
    {
      Section section(this);
      turn = std::move(turn_);
    }
    const int64_t bytes_up = input_->bytes_up();
    auto stored = input_->Store(stop_.token());
    Section section(this);
    input_.reset();
    if (stored.ok()) {
      have_ = *std::move(stored);
      timings_.set_upload_ms(ToMs(Clock::now() - first_chunk_));
      timings_.set_bytes_up(bytes_up);
      timings_.set_reused(have_->existed);
      Log(LogLevel::kInfo, "matrix_stored",
          {{"matrix", have_->handle},
           {"tenant", tenant_},
           {"n", have_->value->n()},
           {"nnz", have_->value->csc.nnz()},
           {"existed", have_->existed},
           {"upload_ms", timings_.upload_ms()}});
    } else {
      EndLocked(stored.status());
    }
    PumpLocked();
  }

  void StoreFailed(const absl::Status& error) {
    Section section(this);
    input_.reset();
    EndLocked(error);
    PumpLocked();
  }

  bool Next(v1::UploadMatrixResponse* message) override {
    if (std::exchange(say_wait_, false)) {
      message->mutable_wait();
      return true;
    }
    if (need_) {
      *message->mutable_need() = *std::exchange(need_, std::nullopt);
      return true;
    }
    if (!have_ || done_) return false;
    if (std::exchange(say_have_, false)) {
      *message->mutable_have() = ToProto(*have_, /*findings=*/true);
      return true;
    }
    *message->mutable_done()->mutable_matrix() = ToProto(*have_, /*findings=*/true);
    timings_.set_total_ms(ToMs(Clock::now() - opened_));
    *message->mutable_done()->mutable_timings() = timings_;
    done_ = true;
    EndLocked(absl::OkStatus());
    return true;
  }

  void Ticked(Clock::time_point now) override { CheckSenderLocked(now); }
  void Gone() override { stop_.Request(kernels::StopReason::kCancelled); }
  void Closed() override { DropLocked(std::move(turn_)); }

  Backend* const backend_;
  std::string tenant_, content_key_;
  v1::MatrixHeader header_;
  std::shared_ptr<MatrixInput> input_;
  kernels::StopSource stop_;  // of the validation
  UploadTable::Turn turn_;
  std::optional<Stored<Matrix>> have_;
  v1::Timings timings_;
  Clock::time_point opened_{}, first_chunk_{};
  std::optional<v1::UploadNeed> need_;  // to be said
  bool say_have_ = false, say_wait_ = false, got_header_ = false, done_ = false;
};

}  // namespace

RawBidiReactor* MatrixService::UploadMatrix(grpc::CallbackServerContext* context) {
  return Launch(std::make_shared<UploadStream>(context, backend_));
}

grpc::ServerUnaryReactor* MatrixService::GetMatrix(grpc::CallbackServerContext* context,
                                                   const v1::GetMatrixRequest* request,
                                                   v1::GetMatrixResponse* response) {
  return Unary(context, "MatrixService/GetMatrix", backend_,
               [&](const Caller& caller) -> absl::Status {
                 ASSIGN_OR_RETURN(const auto found,
                                  backend_->matrices().Get(caller.tenant, request->name()));
                 *response->mutable_matrix() = ToProto(found, /*findings=*/true);
                 return absl::OkStatus();
               });
}

grpc::ServerUnaryReactor* MatrixService::ListMatrices(grpc::CallbackServerContext* context,
                                                      const v1::ListMatricesRequest* request,
                                                      v1::ListMatricesResponse* response) {
  return Unary(context, "MatrixService/ListMatrices", backend_,
               [&](const Caller& caller) -> absl::Status {
                 ASSIGN_OR_RETURN(const PageRequest page,
                                  ParsePage(request->page_size(), request->page_token()));
                 const auto listed = backend_->matrices().List(caller.tenant, page);
                 FillPage(
                     listed.items, listed.sequences, listed.next_token,
                     [](const auto& item) { return ToProto(item, /*findings=*/false); },
                     response->mutable_matrices(), response->mutable_next_page_token());
                 return absl::OkStatus();
               });
}

grpc::ServerUnaryReactor* MatrixService::DeleteMatrix(grpc::CallbackServerContext* context,
                                                      const v1::DeleteMatrixRequest* request,
                                                      v1::DeleteMatrixResponse*) {
  return Unary(context, "MatrixService/DeleteMatrix", backend_,
               [&](const Caller& caller) -> absl::Status {
                 return backend_->matrices().Delete(caller.tenant, request->name());
               });
}

}  // namespace spaid::server
