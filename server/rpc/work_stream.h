// The common part of build and solve streams: a header that names or brings a matrix, its chunks,
// then a job whose events are sent, then a result.
//
//   header -> (need -> chunks -> half-close -> matrix stored) -> Submit -> events, NextPartial ...
//       -> NextResult ... -> end
//
// Nothing is read while an inline matrix is looked for in the stores, or its rows are turned.
// Storing the matrix and submitting (an estimate is counted) run on executors: both may take
// O(nnz) time, and end early when the client has gone.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/spill_codecs.h"
#include "server/rpc/backend.h"
#include "server/rpc/call_metadata.h"
#include "server/rpc/job_feed.h"
#include "server/rpc/matrix_input.h"
#include "server/rpc/stream.h"

namespace spaid::server {

// Returns the error for a message that came at the wrong place.
absl::Status UnexpectedMessage(const std::string& what);

template <class Request, class Response>
class WorkStream : public BidiStream<Request, Response> {
 public:
  using Base = BidiStream<Request, Response>;
  using Header = std::decay_t<decltype(std::declval<Request>().header())>;
  using Clock = std::chrono::steady_clock;

  WorkStream(grpc::CallbackServerContext* context, std::string_view method, Backend* backend)
      : Base(context, method, &backend->streams(), &backend->metrics()), backend_(backend) {}

 protected:
  struct Started {
    std::shared_ptr<Job> job;  // null: the result is there already
    JobWaiter waiter;
  };

  // --- Implemented by derived classes; the mutex is held, except for Submit ---
  // Checks the header except for its source.
  virtual absl::Status TakeHeader(const Header& header) = 0;
  // Takes a chunk that does not belong to the matrix.
  virtual absl::Status TakeChunk(const ChunkView& chunk) = 0;
  // Returns true if more than the matrix must come before the work can start.
  virtual bool wants_chunks() const = 0;
  virtual absl::Status CheckComplete() = 0;
  // Submits the work; runs on the executor, without the mutex, while nothing else uses the input.
  virtual absl::StatusOr<Started> Submit() = 0;
  // Returns true if the result is sent while the job still makes it. Then notifications of the job
  // are handled off its computing threads.
  virtual bool wants_partial() const { return false; }
  // Fills a message with what exists of the result, while the job has no event; false: nothing.
  virtual bool NextPartial(Response*) { return false; }
  // Fills the next message of the result after the job has succeeded (or there was none); calls
  // EndLocked when the last one is out.
  virtual bool NextResult(Response* message) = 0;

  // Releases handles that the work needed; nothing else uses them any more.
  virtual void ReleaseHandles() { matrix_.reset(); }

  // --- The state that derived classes use ---
  const std::string& tenant() const { return tenant_; }
  int64_t n_locked() const { return n_; }
  double TotalMs() const { return ToMs(Clock::now() - opened_); }
  // Adds the timings of the transport to those that the job measured.
  void AddTransport(v1::Timings* timings) const {
    timings->set_upload_ms(upload_ms_);
    timings->set_bytes_up(bytes_up_);
    timings->set_total_ms(TotalMs());
  }

  kernels::StopToken stop() const { return stop_.token(); }

  Backend* const backend_;
  std::optional<Stored<Matrix>> matrix_;  // once it is there
  JobFeed feed_;

 private:
  void Start() final {
    auto caller = this->Identify(backend_->authenticator());
    if (!caller.ok()) return this->EndLocked(caller.status());
    tenant_ = std::move(caller->tenant);
    absl::Status status = backend_->CheckServing();
    if (status.ok()) status = TakeAffinity();
    if (!status.ok()) return this->EndLocked(std::move(status));
    this->ReadLocked();
  }
  absl::Status TakeAffinity() {
    ASSIGN_OR_RETURN(affinity_, AffinityOfCall(*this->context_));
    return absl::OkStatus();
  }
  bool Idle() const final { return !got_header_; }
  void Ending(const absl::Status& status) final {
    // An executor may be at it: they go with the stream.
    if (busy_ || (begun_ && !status.ok())) return;
    input_.reset();
    ReleaseHandles();
  }

  void Received(const Request& request) final {
    if (request.message_case() == Request::kSegment) {
      absl::Status status = Segment(request.segment());
      if (!status.ok()) this->EndLocked(std::move(status));
      return;
    }
    if (request.message_case() != Request::kHeader) {
      return Took(UnexpectedMessage("a message that is neither a header nor a chunk"));
    }
    Took(got_header_ ? UnexpectedMessage("a second header") : FirstHeader(request.header()));
  }

  void ReceivedChunk(const ChunkView& chunk) final {
    const bool may_turn = input_ != nullptr && input_->MayTurnAfter(chunk);
    if (got_header_ && !begun_ && !may_turn) this->ReadLocked();
    absl::Status status =
        got_header_ ? Chunk(chunk) : UnexpectedMessage("a chunk before the header");
    if (status.ok() && may_turn) status = TurnIfRows();
    Took(std::move(status));
  }

  // Turns a pattern by rows, once it is whole, before anything else is read.
  absl::Status TurnIfRows() {
    if (input_ == nullptr || !input_->turns()) return absl::OkStatus();
    return Aside([this] { return input_->Turn(stop()); }, [] { return absl::OkStatus(); });
  }

  void Took(absl::Status status) {
    if (!status.ok()) {
      LeaveJob();
      return this->EndLocked(std::move(status));
    }
    if (!busy_) this->ReadLocked();
  }

  // Runs `task` on an executor, without the mutex, while nothing is read and nobody else uses the
  // input; then, in the stream, `next`, and reads on.
  absl::Status Aside(std::function<absl::Status()> task, std::function<absl::Status()> next) {
    busy_ = true;
    auto self = std::static_pointer_cast<WorkStream>(this->shared_from_this());
    absl::Status runs = backend_->Run(
        Backend::Pool::kStore, tenant_,
        [self, task = std::move(task), next = std::move(next)] {
          absl::Status status = task();
          typename Base::Section section(self.get());
          self->busy_ = false;
          if (self->ended_locked()) {
            self->input_.reset();
            self->ReleaseHandles();
          } else {
            self->Took(status.ok() ? next() : std::move(status));
          }
          self->PumpLocked();
        },
        [self](const absl::Status& error) { self->WorkFailed(error); });
    if (!runs.ok()) busy_ = false;
    return runs;
  }

  // Asks for what the stores do not have of the inline matrix.
  absl::Status LookFor(const v1::MatrixHeader& header) {
    auto found = std::make_shared<FoundOfMatrix>();
    const bool may_have = header.wait_for_need();
    const auto find = [this, header, may_have, found](bool may_compute) -> absl::Status {
      const ContentClaim claim(header, affinity_);
      auto looked = FindOfMatrix(backend_, tenant_, header, may_have ? claim : claim.OfPattern(),
                                 kInline, may_compute, stop());
      if (!looked.ok()) return looked.status();
      *found = *std::move(looked);
      return absl::OkStatus();
    };
    const auto take = [this, header, found]() -> absl::Status {
      if (found->content) {
        matrix_ = std::move(found->content);
        tell_matrix_ = true;
        backend_->metrics().BytesSaved("content", PromisedBytes(header));
      } else {
        ASSIGN_OR_RETURN(input_, MatrixInput::Begin(backend_, tenant_, affinity_, header, kInline,
                                                    std::move(found->pattern)));
      }
      if (header.wait_for_need()) {
        need_ = input_ != nullptr ? input_->Need() : v1::UploadNeed();
      }
      return input_ == nullptr && !wants_chunks() ? Begin() : absl::OkStatus();
    };
    RETURN_IF_ERROR(find(false));
    if (found->more) return Aside([find] { return find(true); }, take);
    return take();
  }

  absl::Status FirstHeader(const Header& header) {
    got_header_ = true;
    RETURN_IF_ERROR(this->Admit(tenant_));
    opened_ = Clock::now();
    RETURN_IF_ERROR(backend_->CheckServing());
    switch (header.source_case()) {
      case Header::kMatrix: {
        ASSIGN_OR_RETURN(matrix_, backend_->matrices().Look(tenant_, header.matrix()));
        n_ = matrix_->value != nullptr ? matrix_->value->n() : MatrixOf(*matrix_->spilled).n();
        break;
      }
      case Header::kInlineMatrix: {
        const v1::MatrixHeader& inline_matrix = header.inline_matrix();
        RETURN_IF_ERROR(MatrixInput::Check(*backend_, inline_matrix, kInline));
        n_ = inline_matrix.n();
        value_type_ = inline_matrix.value_type();
        if (inline_matrix.wait_for_need() || !inline_matrix.same_pattern_as().empty()) {
          RETURN_IF_ERROR(TakeHeader(header));
          return LookFor(inline_matrix);
        }
        ASSIGN_OR_RETURN(input_,
                         MatrixInput::Begin(backend_, tenant_, affinity_, inline_matrix, kInline));
        break;
      }
      default:
        return MakeError(absl::StatusCode::kInvalidArgument, reason::kMissingField,
                         "the header names no matrix; set `matrix` or `inline_matrix`")
            .Field("header.matrix");
    }
    RETURN_IF_ERROR(TakeHeader(header));
    if (input_ == nullptr && !wants_chunks()) return Begin();
    return absl::OkStatus();
  }

  absl::Status Chunk(const ChunkView& chunk) {
    if (begun_) return UnexpectedMessage("a chunk after the last array was complete");
    if (bytes_up_ == 0) first_chunk_ = Clock::now();
    bytes_up_ += chunk.bytes;
    if (input_ != nullptr && MatrixReceiver::Takes(chunk.array))
      return input_->Add(chunk, this->shared_from_this());
    return TakeChunk(chunk);
  }

  absl::Status TakePiece(const ChunkView& piece) final { return Chunk(piece); }
  absl::Status TookPieces() final {
    absl::Status status = TurnIfRows();
    if (status.ok() && !busy_) this->ReadLocked();
    return status;
  }

  std::function<absl::Status()> BeginPassingOn() final {
    if (input_ == nullptr || !input_->over_ranks() || !input_->turns()) return nullptr;
    busy_ = true;
    return [this] { return input_->Turn(stop()); };
  }
  void EndPassingOn() final {
    busy_ = false;
    if (!this->ended_locked()) return;
    input_.reset();
    ReleaseHandles();
  }

  absl::Status Segment(const v1::ArraySegment& segment) {
    if (!got_header_) return UnexpectedMessage("a segment before the header");
    if (begun_) return UnexpectedMessage("a segment after the last array was complete");
    ASSIGN_OR_RETURN(std::shared_ptr<SegmentReader> reader,
                     backend_->segments().Read(tenant_, segment, value_type_));
    backend_->metrics().SegmentBytes("read", segment.bytes());
    if (input_ != nullptr) input_->SenderIsIdle();
    auto self = std::static_pointer_cast<WorkStream>(this->shared_from_this());
    return backend_->Run(
        Backend::Pool::kStore, tenant_, [self, reader] { self->Feed(*reader); },
        [self](const absl::Status& error) { self->WorkFailed(error); });
  }

  void HalfClosed() final {
    if (begun_) return;
    absl::Status status = got_header_ ? absl::OkStatus()
                                      : UnexpectedMessage("the end of the input before the header");
    if (status.ok() && input_ != nullptr) status = input_->CheckComplete();
    if (status.ok()) status = CheckComplete();
    if (status.ok()) status = Begin();
    if (!status.ok()) this->EndLocked(std::move(status));
  }

  // Hands over to an executor: to store the input, or, when that is done, to submit.
  absl::Status Begin() {
    begun_ = true;
    auto self = std::static_pointer_cast<WorkStream>(this->shared_from_this());
    const auto failed = [self](const absl::Status& error) { self->WorkFailed(error); };
    if (input_ == nullptr) {
      return backend_->Run(
          Backend::Pool::kCount, tenant_, [self] { self->Work(); }, failed);
    }
    return backend_->Run(
        Backend::Pool::kStore, tenant_, [self] { self->Store(); }, failed);
  }

  void Store() {
    auto stored = input_->Store(stop_.token());
    typename Base::Section section(this);
    input_.reset();
    absl::Status status = stored.status();
    if (status.ok()) {
      matrix_ = *std::move(stored);
      tell_matrix_ = true;
      if (!this->ended_locked()) status = Begin();
    }
    if (!status.ok()) this->EndLocked(std::move(status));
    this->PumpLocked();
  }

  void Work() {
    {
      typename Base::Section section(this);
      // A reset right behind complete input looks like a half-close at first, and a detached job
      // would run for nobody.
      if (this->ended_locked() || this->context_->IsCancelled()) return;
      if (bytes_up_ > 0) upload_ms_ = ToMs(Clock::now() - first_chunk_);
    }
    absl::StatusOr<Started> started = ReadBack();
    if (started.ok()) started = Submit();
    JobSubscription subscription;
    if (started.ok() && started->job != nullptr) {
      subscription = started->job->Subscribe(1, News());
    }
    typename Base::Section section(this);
    if (!started.ok()) {
      this->EndLocked(started.status());
    } else if (started->job == nullptr) {
      ready_ = true;
    } else {
      this->MadeJobLocked(started->job->name());
      feed_.Follow(started->job, {std::move(started->waiter), std::move(subscription)}, 1);
      if (this->ended_locked()) LeaveJob();
    }
    this->PumpLocked();
  }

  // A matrix that is in the spill folder alone. Nothing else uses it now.
  absl::StatusOr<Started> ReadBack() {
    if (matrix_->value == nullptr) {
      ASSIGN_OR_RETURN(matrix_, backend_->matrices().Load(tenant_, matrix_->handle));
    }
    return Started{};
  }

  // Runs on the job's threads.
  std::function<void()> News() {
    std::weak_ptr<LiveStream> weak = this->weak_from_this();
    const auto pump = [weak] {
      if (auto self = weak.lock()) std::static_pointer_cast<WorkStream>(self)->Pump();
    };
    if (!wants_partial()) return pump;
    // One at a time: what comes while it waits is seen by it. `queued` goes down first.
    return [weak, pump, queued = std::make_shared<std::atomic<bool>>(false)] {
      const auto self = std::static_pointer_cast<WorkStream>(weak.lock());
      if (self == nullptr || queued->exchange(true)) return;
      const auto task = [pump, queued] {
        queued->store(false);
        pump();
      };
      const auto failed = [](const absl::Status&) {};
      if (!self->backend_->Run(Backend::Pool::kSend, self->tenant_, task, failed).ok()) task();
    };
  }

  void WorkFailed(const absl::Status& error) {
    typename Base::Section section(this);
    busy_ = false;
    input_.reset();
    LeaveJob();
    this->EndLocked(error);
    this->PumpLocked();
  }

  bool Next(Response* message) final {
    if (need_) {
      *message->mutable_need() = *std::exchange(need_, std::nullopt);
      return true;
    }
    if (tell_matrix_) {
      tell_matrix_ = false;
      *message->mutable_matrix() = ToProto(*matrix_, /*findings=*/true);
      return true;
    }
    if (feed_.following() && !ready_) {
      if (feed_.Next(backend_->scheduler(), message->mutable_job())) return true;
      message->Clear();
      if (!feed_.ended()) return NextPartial(message);
      if (absl::Status error = feed_.job()->error();
          !error.ok() && feed_.job()->result() == nullptr) {
        this->EndLocked(std::move(error));
        return false;
      }
      ready_ = true;
    }
    return ready_ && NextResult(message);
  }

  void Ticked(Clock::time_point now) final {
    if (!begun_) this->CheckSenderLocked(now);
    feed_.Tick(now, backend_->options().heartbeat);
  }

  void Gone() final {
    stop_.Request(kernels::StopReason::kCancelled);
    LeaveJob();
  }
  void Closed() final { LeaveJob(); }
  void LeaveJob() { this->DropLocked(feed_.TakeTies()); }

  static constexpr std::string_view kInline = "header.inline_matrix";

  std::string tenant_, affinity_;
  kernels::StopSource stop_;  // stops what runs before there is a job
  std::shared_ptr<MatrixInput> input_;
  std::optional<v1::UploadNeed> need_;                     // to be said
  v1::ValueType value_type_ = v1::VALUE_TYPE_UNSPECIFIED;  // of the input
  int64_t n_ = 0, bytes_up_ = 0;
  double upload_ms_ = 0;
  Clock::time_point opened_ = Clock::now(), first_chunk_ = opened_;
  bool got_header_ = false, begun_ = false, tell_matrix_ = false, ready_ = false;
  bool busy_ = false;  // an executor uses the input, and nothing is read
};

}  // namespace spaid::server
