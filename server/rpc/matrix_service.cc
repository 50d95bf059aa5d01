#include "server/rpc/matrix_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/rpc/call_metadata.h"
#include "server/rpc/list_page.h"
#include "server/rpc/matrix_input.h"
#include "server/rpc/unary.h"
#include "server/rpc/work_stream.h"

namespace spaid::server {
namespace {

// header -> have | wait | need -> chunks -> half-close -> done. A header with XXH3 alone, and the
// answer wait, need, or a need that knows the pattern: perhaps a second one with SHA-256 before the
// chunks.
class UploadStream final : public BidiStream<v1::UploadMatrixRequest, v1::UploadMatrixResponse>,
                           public UploadTable::Waiter {
 public:
  UploadStream(grpc::CallbackServerContext* context, Backend* backend)
      : BidiStream(context, "MatrixService/UploadMatrix", &backend->streams(), &backend->metrics()),
        backend_(backend) {}

  // The upload that this one waited for has ended.
  void Wake() override {
    Section section(this);
    GuardLocked([this] { LookAgain(); });
    PumpLocked();
  }

 private:
  void Start() override {
    auto caller = Identify(backend_->authenticator());
    if (!caller.ok()) return EndLocked(caller.status());
    tenant_ = std::move(caller->tenant);
    absl::Status status = backend_->CheckServing();
    if (status.ok()) status = TakeAffinity();
    if (!status.ok()) return EndLocked(std::move(status));
    ReadLocked();
  }
  absl::Status TakeAffinity() {
    ASSIGN_OR_RETURN(affinity_, AffinityOfCall(*context_));
    return absl::OkStatus();
  }
  bool Idle() const override { return !got_header_; }

  void Received(const v1::UploadMatrixRequest& request) override {
    absl::Status status;
    switch (request.message_case()) {
      case v1::UploadMatrixRequest::kHeader:
        status = TakeHeader(request.header());
        if (status.ok()) status = LookLocked();
        break;
      case v1::UploadMatrixRequest::kSegment:
        status = TakeSegment(request.segment());
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
    const bool may_turn = input_->MayTurnAfter(chunk);
    if (!may_turn) ReadLocked();
    absl::Status status = TakePiece(chunk);
    if (status.ok() && may_turn) status = TurnLocked();
    if (!status.ok()) EndLocked(std::move(status));
  }

  absl::Status TakePiece(const ChunkView& chunk) override {
    if (input_->bytes_up() == 0) first_chunk_ = Clock::now();
    absl::Status status = input_->Add(chunk, shared_from_this());
    turn_.Came(chunk.bytes, Clock::now());
    return status;
  }
  absl::Status TookPieces() override { return TurnLocked(); }
  std::function<absl::Status()> BeginPassingOn() override {
    if (!input_->over_ranks() || !input_->turns()) return nullptr;
    busy_ = true;
    return [this] { return input_->Turn(stop_.token()); };
  }
  void EndPassingOn() override {
    busy_ = false;
    if (ended_locked()) input_.reset();
  }

  absl::Status TakeSegment(const v1::ArraySegment& segment) {
    if (input_ == nullptr) {
      return UnexpectedMessage("a segment before the header (or before `need`)");
    }
    ASSIGN_OR_RETURN(std::shared_ptr<SegmentReader> reader,
                     backend_->segments().Read(tenant_, segment, header_.value_type()));
    backend_->metrics().SegmentBytes("read", segment.bytes());
    input_->SenderIsIdle();
    auto self = std::static_pointer_cast<UploadStream>(shared_from_this());
    return backend_->Run(
        Backend::Pool::kStore, tenant_, [self, reader] { self->Feed(*reader); },
        [self](const absl::Status& error) { self->StoreFailed(error); });
  }

  // Turns a pattern by rows before anything else is read.
  absl::Status TurnLocked() {
    if (!input_->turns()) {
      ReadLocked();
      return absl::OkStatus();
    }
    auto self = std::static_pointer_cast<UploadStream>(shared_from_this());
    absl::Status status = backend_->Run(
        Backend::Pool::kStore, tenant_, [self] { self->Turn(); },
        [self](const absl::Status& error) { self->StoreFailed(error); });
    busy_ = status.ok();
    return status;
  }

  void Turn() {
    absl::Status status = input_->Turn(stop_.token());
    Section section(this);
    busy_ = false;
    if (ended_locked()) {
      input_.reset();
      return PumpLocked();
    }
    if (status.ok()) {
      turn_.Begins(Clock::now());  // the sender was not slow meanwhile
      ReadLocked();
    } else {
      EndLocked(std::move(status));
    }
    PumpLocked();
  }

  absl::Status TakeHeader(const v1::MatrixHeader& header) {
    const bool again = std::exchange(got_header_, true);
    if (!again) RETURN_IF_ERROR(Admit(tenant_));
    RETURN_IF_ERROR(backend_->CheckServing());
    RETURN_IF_ERROR(MatrixInput::Check(*backend_, header, "header"));
    ContentClaim claim(header, affinity_);
    if (again) {
      // The same, with SHA-256, now that it is worth while.
      const bool asks = input_ != nullptr && input_->bytes_up() == 0 && !claim_.proves_pattern() &&
                        claim.proves_pattern() && claim.key() == claim_.key() &&
                        claim.pattern_key() == claim_.pattern_key();
      if (!asks) return UnexpectedMessage("a second header");
      input_.reset();
    } else {
      opened_ = first_chunk_ = Clock::now();
    }
    header_ = header;
    claim_ = std::move(claim);
    return absl::OkStatus();
  }

  // Is the content here, is it on its way, or must it be sent? Room is reserved in the last case
  // only.
  absl::Status LookLocked() {
    auto self = std::static_pointer_cast<UploadStream>(shared_from_this());
    if (!claim_.strong()) {
      if (!claim_.key().empty() && !turn_) {
        // XXH3 alone is no proof, but a hint that it pays to make SHA-256.
        turn_ = backend_->uploads().Enter(tenant_, claim_.key(), {}, Clock::now());
        say_wait_ = !turn_ || backend_->matrices().Find(tenant_, claim_.key()).has_value() ||
                    backend_->matrices().Spilled(tenant_, claim_.key());
      }
      return FindLocked();
    }
    // A quick look, before a turn is waited for.
    ASSIGN_OR_RETURN(FoundOfMatrix found, Find(/*may_compute=*/false));
    if (found.content) return TakeLocked(std::move(found));
    if (!turn_) turn_ = backend_->uploads().Enter(tenant_, claim_.key(), self, Clock::now());
    waits_ = !turn_;
    if (waits_) {
      say_wait_ = true;
      return absl::OkStatus();
    }
    // The one before may have ended between the look and the turn.
    return FindLocked();
  }

  absl::StatusOr<FoundOfMatrix> Find(bool may_compute) {
    return FindOfMatrix(backend_, tenant_, header_, claim_, "header", may_compute, stop_.token());
  }

  // Looks for content and pattern, and where that takes long, off this thread; the turn is held, so
  // that one alone hashes for all who ask.
  absl::Status FindLocked() {
    ASSIGN_OR_RETURN(FoundOfMatrix found, Find(/*may_compute=*/false));
    if (!found.more) return TakeLocked(std::move(found));
    turn_.CameWhole();  // nobody sends while this hashes
    auto self = std::static_pointer_cast<UploadStream>(shared_from_this());
    return backend_->Run(
        Backend::Pool::kStore, tenant_, [self] { self->FindByComputing(); },
        [self](const absl::Status& error) { self->StoreFailed(error); });
  }

  void FindByComputing() {
    auto found = Find(/*may_compute=*/true);
    Section section(this);
    if (ended_locked()) return PumpLocked();
    turn_.Begins(Clock::now());
    absl::Status status = found.ok() ? TakeLocked(*std::move(found)) : found.status();
    if (!status.ok()) EndLocked(std::move(status));
    PumpLocked();
  }

  // Says what is here, and asks for the rest.
  absl::Status TakeLocked(FoundOfMatrix found) {
    if (found.content) {
      have_ = std::move(found.content);
      say_have_ = true;
      timings_.set_reused(true);
      backend_->metrics().BytesSaved("content", PromisedBytes(header_));
      DropLocked(std::move(turn_));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(input_, MatrixInput::Begin(backend_, tenant_, affinity_, header_, "header",
                                                std::move(found.pattern)));
    // Said from a copy: by the time that a slow reader takes it, all may have been sent and input_
    // be the executor's.
    need_ = input_->Need();
    need_->set_pattern_known(found.pattern_hint);
    ReadLocked();
    return absl::OkStatus();
  }

  // Looks again when the upload it waited for has ended, or is too slow.
  void LookAgain() {
    if (!std::exchange(waits_, false) || ended_locked()) return;
    if (absl::Status status = LookLocked(); !status.ok()) EndLocked(std::move(status));
  }

  void HalfClosed() override {
    if (have_) return;
    if (input_ != nullptr && input_->bytes_up() == 0 && !claim_.key().empty() &&
        !input_->CheckComplete().ok()) {
      return EndLocked(absl::OkStatus());  // it was a question; `need` has been the answer
    }
    absl::Status status = input_ == nullptr
                              ? UnexpectedMessage("the end of the input before the header")
                              : input_->CheckComplete();
    if (status.ok()) {
      turn_.CameWhole();
      auto self = std::static_pointer_cast<UploadStream>(shared_from_this());
      status = backend_->Run(
          Backend::Pool::kStore, tenant_, [self] { self->Store(); },
          [self](const absl::Status& error) { self->StoreFailed(error); });
      busy_ = status.ok();
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
    busy_ = false;
    if (stored.ok()) {
      have_ = *std::move(stored);
      timings_.set_upload_ms(ToMs(Clock::now() - first_chunk_));
      timings_.set_bytes_up(bytes_up);
      timings_.set_reused(have_->existed);
      Log(LogLevel::kInfo, "matrix_stored",
          {{"matrix", have_->handle},
           {"tenant", tenant_},
           {"n", have_->value->n()},
           {"nnz", have_->value->nnz()},
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
    busy_ = false;
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

  void Ticked(Clock::time_point now) override {
    CheckSenderLocked(now);
    if (waits_ && backend_->uploads().LeaderIsSlow(tenant_, claim_.key(), now)) LookAgain();
  }
  void Gone() override { stop_.Request(kernels::StopReason::kCancelled); }
  void Ending(const absl::Status&) override {
    have_.reset();
    if (!busy_) input_.reset();
  }
  void Closed() override { DropLocked(std::move(turn_)); }

  Backend* const backend_;
  std::string tenant_, affinity_;
  ContentClaim claim_;  // the header's
  v1::MatrixHeader header_;
  std::shared_ptr<MatrixInput> input_;
  kernels::StopSource stop_;  // stops the validation
  UploadTable::Turn turn_;
  std::optional<Stored<Matrix>> have_;
  v1::Timings timings_;
  Clock::time_point opened_{}, first_chunk_{};
  std::optional<v1::UploadNeed> need_;  // to be said
  bool waits_ = false, say_have_ = false, say_wait_ = false, got_header_ = false, done_ = false;
  bool busy_ = false;  // input_ is the executor's
};

}  // namespace

RawBidiReactor* MatrixService::UploadMatrix(grpc::CallbackServerContext* context) {
  return Launch<UploadStream>(context, backend_);
}

RawBidiReactor* MatrixService::GetMatrix(grpc::CallbackServerContext* context) {
  return Unary<v1::GetMatrixRequest, v1::GetMatrixResponse>(
      context, "MatrixService/GetMatrix", backend_,
      [this](const Caller& caller, const v1::GetMatrixRequest* request,
             v1::GetMatrixResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const auto found,
                         backend_->matrices().Look(caller.tenant, request->name()));
        *response->mutable_matrix() = ToProto(found, /*findings=*/true);
        return absl::OkStatus();
      });
}

RawBidiReactor* MatrixService::ListMatrices(grpc::CallbackServerContext* context) {
  return Unary<v1::ListMatricesRequest, v1::ListMatricesResponse>(
      context, "MatrixService/ListMatrices", backend_,
      [this](const Caller& caller, const v1::ListMatricesRequest* request,
             v1::ListMatricesResponse* response) -> absl::Status {
        ASSIGN_OR_RETURN(const PageRequest page,
                         ParsePage(absl::StrCat("matrices of ", caller.tenant),
                                   request->page_size(), request->page_token()));
        const auto listed = backend_->matrices().List(caller.tenant, page);
        FillPage(
            page, listed.items, listed.sequences, listed.next_token,
            [](const auto& item) { return ToProto(item, /*findings=*/false); },
            response->mutable_matrices(), response->mutable_next_page_token());
        return absl::OkStatus();
      });
}

RawBidiReactor* MatrixService::DeleteMatrix(grpc::CallbackServerContext* context) {
  return Unary<v1::DeleteMatrixRequest, v1::DeleteMatrixResponse>(
      context, "MatrixService/DeleteMatrix", backend_,
      [this](const Caller& caller, const v1::DeleteMatrixRequest* request,
             v1::DeleteMatrixResponse*) -> absl::Status {
        return backend_->matrices().Delete(caller.tenant, request->name());
      });
}

void MatrixService::AddTo(Methods* methods) {
  methods->Add("MatrixService/UploadMatrix", this, &MatrixService::UploadMatrix);
  methods->Add("MatrixService/GetMatrix", this, &MatrixService::GetMatrix);
  methods->Add("MatrixService/ListMatrices", this, &MatrixService::ListMatrices);
  methods->Add("MatrixService/DeleteMatrix", this, &MatrixService::DeleteMatrix);
}

}  // namespace spaid::server
