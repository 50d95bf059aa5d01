// The base of every reactor: self-ownership until OnDone, one write in flight, Finish exactly once
// and never with a write in flight, the registry for drain, the cut of a stalled reader, the clock
// and the counts of calls whose request has not come.
//
// A stream is a state machine under one mutex. A derived class fills messages when it is asked to
// (`Next`: a pull, so a slow reader holds back its own stream and nothing is queued for it), says
// `EndLocked` when the last one is out, and is woken by `Pump` when there may be something new.
// Every virtual below runs with the mutex held; calls named ...Locked want it held. Objects that
// must not be destroyed under the mutex (a JobWaiter runs other people's callbacks) are handed to
// `DropLocked`.
//
//   class Watch final : public RequestStream<WatchJobRequest, WatchJobResponse> {
//     void Requested(const WatchJobRequest&) override;
//     bool Next(WatchJobResponse* m) override;
//   };
//   return Launch<Watch>(...);
//
// Every method is served as a stream of raw messages both ways: gRPC's own plain calls surface only
// when their message is complete, and nobody would count or end those that never are.
//
// gRPC keeps using a reactor until OnDone: the stream holds a reference to itself till then.
// Callbacks from elsewhere (jobs, executor) hold a weak or shared reference, and find a finished
// stream harmless.
//
// An exception of a virtual, above all the allocator's, ends its stream and not the daemon.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/base/guard.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/rpc/authentication.h"
#include "server/rpc/call_metadata.h"
#include "server/rpc/chunk_view.h"
#include "server/rpc/live_streams.h"
#include "server/rpc/rpc_scope.h"
#include "server/rpc/status_mapping.h"

namespace spaid::server {

// Exchanges messages as they are in gRPC's buffers: arrays are read from them in place (ChunkView).
using RawBidiReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

template <class Response>
class OutStream : public RawBidiReactor, public LiveStream {
 public:
  using Clock = std::chrono::steady_clock;

  // `method`: "JobService/WatchJob"; static storage. `streams` and `metrics` outlive the stream.
  OutStream(grpc::CallbackServerContext* context, std::string_view method, LiveStreams* streams,
            Metrics* metrics)
      : context_(context),
        streams_(streams),
        metrics_(metrics),
        method_(method),
        call_(streams->connections().Begin(context->peer())) {}

  // Takes the self-reference, joins the registry, runs `Start`. Called once, by Launch.
  void Open(std::shared_ptr<OutStream> self) {
    Section section(this);
    self_ = std::move(self);
    GuardLocked([this] {
      streams_->Add(self_);
      trace_ = TraceOfCall(*context_, streams_->tracer());
      if (call_.served) return Start();
      quiet_ = true;  // there are many of them
      EndLocked(MakeError(absl::StatusCode::kResourceExhausted, reason::kTooManyStreams,
                          "too many calls are open (--max-calls); try again")
                    .Retry(std::chrono::seconds(1)));
    });
    PumpLocked();
  }

  void OnWriteDone(bool ok) final {
    Section section(this);
    SetWritingLocked(false);
    if (!ok) GoneLocked();
    PumpLocked();
  }

  void OnCancel() final {
    Section section(this);
    GoneLocked();
    PumpLocked();
  }

  void OnDone() final {
    std::shared_ptr<OutStream> self;
    {
      Section section(this);
      done_ = true;
      SetWritingLocked(false);
      GuardLocked([this] { Closed(); });
      FedLocked(false);
      streams_->connections().End(*call_.connection, asked_);
      self = std::move(self_);
    }
    // `self` goes last: nothing may touch the object once it is released.
  }

  // Leaves the registry here, when all that the derived class held is gone: a drain that finds no
  // stream finds no reservation and no executor's task of one either.
  ~OutStream() override {
    if (!done_) streams_->connections().End(*call_.connection, false);  // never opened
    streams_->Remove(this);
  }

  void Tick(Clock::time_point now) final {
    Section section(this);
    if (done_) return;
    if (writing_ && !cut_ && now - write_start_ > streams_->limits().stalled_reader) {
      // Finish could not get through either: only a reset frees the stream.
      cut_ = true;
      metrics_->StalledReader();
      GuardLocked([this] {
        if (!end_ || end_->ok()) {
          end_ = MakeError(absl::StatusCode::kDeadlineExceeded, reason::kStalledReader,
                           "the client did not read for too long");
        }
      });
      GoneLocked();
      context_->TryCancel();
      return;
    }
    if (!finished_ && !gone_) {
      GuardLocked([this, now] {
        if (asked_ || now - opened_ <= streams_->limits().first_message) return Ticked(now);
        quiet_ = true;
        EndLocked(MakeError(absl::StatusCode::kDeadlineExceeded, reason::kStalledSender,
                            "the call's first message did not come in time, or not all of it"));
      });
      PumpLocked();
    }
  }

  void Cut(const absl::Status& status) final {
    Section section(this);
    if (done_ || finished_) return;
    GoneLocked();
    end_ = status;
    PumpLocked();  // with a write in flight: its end, or the server's Shutdown, comes first
  }

  void CutIdle(const absl::Status& status) final {
    Section section(this);
    if (done_ || finished_ || !Idle()) return;
    EndLocked(status);
    PumpLocked();
  }

  // There may be something to send. Any thread, mutex not held.
  void Pump() {
    Section section(this);
    PumpLocked();
  }

 protected:
  // Holds the mutex; what DropLocked was given dies after it is released.
  class Section {
   public:
    explicit Section(OutStream* stream)
        : stream_(stream),
          lock_(stream->mu_),
          lines_(stream->trace_ != nullptr ? &stream->trace_->id : nullptr) {}
    ~Section() {
      std::vector<std::shared_ptr<void>> dropped = std::move(stream_->dropped_);
      stream_->dropped_.clear();
      lock_.unlock();
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    OutStream* stream_;
    std::unique_lock<std::mutex> lock_;
    LogTrace lines_;
  };

  // The call begins: its headers are there.
  virtual void Start() = 0;
  // Fills the next message, or returns false: nothing to send now. May call EndLocked.
  virtual bool Next(Response* message) = 0;
  // The client is gone (reset, deadline, cut): give up what was for it alone. At most once; not
  // after the call was finished.
  virtual void Gone() {}
  // The client has asked for nothing yet.
  virtual bool Idle() const { return false; }
  // Every tick of the registry while the call is open.
  virtual void Ticked(Clock::time_point) {}
  // The call ends, its last message in its buffer: give up room and handles of the stores, so that
  // a client that knows of the end finds them free. Once.
  virtual void Ending(const absl::Status&) {}
  // After the last callback; drop references to other things here.
  virtual void Closed() {}
  // The end of the call is not said yet: input is read first, which nobody wants.
  virtual bool LingersLocked() { return false; }

  // The first message is there: a call that counts, and may want a place (Admit). Once.
  void AskedLocked(bool feeds = false) {
    scope_.emplace(method_, metrics_);
    asked_ = true;
    feeding_ = feeds;
    streams_->connections().Asked(*call_.connection, feeds);
    if (identified_) streams_->connections().Known(*call_.connection);
  }
  // Who calls. Errors: Authenticator::Identify's.
  absl::StatusOr<Caller> Identify(const Authenticator& authenticator) {
    auto caller = authenticator.Identify(*context_);
    identified_ = caller.ok();
    if (identified_ && asked_) streams_->connections().Known(*call_.connection);
    return caller;
  }
  bool asked_locked() const { return asked_; }
  const TracePtr& trace() const { return trace_; }
  // A piece of an array has come; the call is the job's that it made.
  void TookPieceLocked() {
    if (trace_ == nullptr) return;
    upload_end_ = std::chrono::system_clock::now();
    if (!upload_begin_) upload_begin_ = upload_end_;
  }
  void MadeJobLocked(const std::string& job) {
    if (trace_ != nullptr && trace_->sampled) job_ = job;
  }
  // Nothing more is read of the client's; `whole`: nothing more comes either.
  void FedLocked(bool whole) {
    if (std::exchange(feeding_, false)) streams_->connections().Fed(*call_.connection, whole);
  }
  void TookLocked(const grpc::ByteBuffer& message) { call_.connection->Took(message.Length()); }
  // Errors: LiveStreams::Admit's.
  absl::Status Admit(const std::string& tenant) { return streams_->Admit(this, tenant); }

  // The call ends with `status` once `Next` has no more to send (OK), or at once (an error).
  void EndLocked(absl::Status status) {
    if (!end_) end_ = std::move(status);
  }
  bool ended_locked() const { return end_.has_value() || finished_ || gone_; }
  template <class T>
  void DropLocked(T value) {
    dropped_.push_back(std::make_shared<T>(std::move(value)));
  }

  // Runs `work`. What it throws ends the call.
  template <class Work>
  void GuardLocked(const Work& work) {
    absl::Status thrown = Guarded("the call", [&work] {
      work();
      return absl::OkStatus();
    });
    if (!thrown.ok() && (!end_ || end_->ok())) end_ = std::move(thrown);
  }

  void PumpLocked() {
    if (finished_ || writing_) return;
    if (!gone_ && !FailedLocked()) {
      bool filled = false;
      GuardLocked([this, &filled] {
        message_.Clear();
        lent_ = grpc::Slice();
        filled = Next(&message_) && Serialized();
      });
      if (filled && !FailedLocked()) {
        return end_ && !LingersLocked() ? WriteAndFinishLocked() : StartWriteLocked();
      }
    }
    if (end_.has_value()) {
      if (LingersLocked()) return;
      FinishLocked(*end_);
    } else if (gone_) {
      GuardLocked([this] {
        end_ = MakeError(absl::StatusCode::kCancelled, reason::kCancelled, "the client went away");
      });
      FinishLocked(*end_);
    }
  }

  std::mutex mu_;
  grpc::CallbackServerContext* const context_;
  // Set by Next: the data of the message's chunk (ChunkSource), where it is not in the message.
  grpc::Slice lent_;

 private:
  bool FailedLocked() const { return end_.has_value() && !end_->ok(); }

  // Moves `message_` into `outgoing_`, with `lent_` as the data of its chunk. True.
  bool Serialized() {
    bool own = false;
    outgoing_.Clear();
    if constexpr (requires { Response::kChunkFieldNumber; }) {
      if (lent_.size() > 0) {
        if (trace_ != nullptr && !download_begin_) {
          download_begin_ = std::chrono::system_clock::now();
        }
        outgoing_ = WriteChunk(Response::kChunkFieldNumber, message_.chunk(), std::move(lent_));
        own = true;
      }
    }
    // As gRPC does with a message: what is not initialised or over 2 GiB is a mistake of ours.
    if (!own && !grpc::SerializationTraits<Response>::Serialize(message_, &outgoing_, &own).ok()) {
      std::abort();
    }
    write_bytes_ = static_cast<int64_t>(outgoing_.Length());
    message_.Clear();
    return true;
  }

  void StartWriteLocked() {
    SetWritingLocked(true);
    write_start_ = Clock::now();
    StartWrite(&outgoing_);
  }

  // The last message and the status in one: half the packets of a plain call.
  void WriteAndFinishLocked() {
    message_ = Response();
    SetWritingLocked(true);
    write_start_ = Clock::now();
    EndedLocked(*end_);
    StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), ToGrpcStatus(*end_));
  }

  void FinishLocked(const absl::Status& status) {
    EndedLocked(status);
    Finish(ToGrpcStatus(trace_ != nullptr ? WithMeta(status, "trace_id", trace_->id) : status));
  }

  void EndedLocked(const absl::Status& status) {
    finished_ = true;
    GuardLocked([this, &status] { Ending(status); });
    // Without memory there is no line, and no count; the call ends all the same.
    (void)Guarded("the log of a call", [this, &status] {
      // A call that asked for nothing leaves no line, unless it is the server that ends it.
      if (!scope_ && !gone_ && !quiet_) scope_.emplace(method_, metrics_);
      if (scope_) {
        scope_->Ended(status);
      } else {
        metrics_->CallWithoutRequest(ReasonOf(status));
      }
      TellSpansLocked(status);
      return absl::OkStatus();
    });
  }

  // The call of a known caller and its transfers; the job tells of itself when it ends
  // (job_spans.h).
  void TellSpansLocked(const absl::Status& status) {
    if (trace_ == nullptr || !trace_->sampled || !scope_ || !identified_) return;
    const Tracer& tracer = streams_->tracer();
    const WallTime now = std::chrono::system_clock::now();
    if (upload_begin_) tracer.Child(trace_, "upload", *upload_begin_, *upload_end_);
    if (download_begin_) tracer.Child(trace_, "download", *download_begin_, now);
    Span call{.of = trace_,
              .name = method_,
              .begin = now - std::chrono::duration_cast<WallTime::duration>(Clock::now() - opened_),
              .end = now,
              .code = static_cast<int>(status.code()),
              .job = std::move(job_)};
    if (!status.ok()) {
      call.reason = ReasonOf(status);
      call.error = std::string(status.message());
    }
    tracer.Call(std::move(call));
  }

  void GoneLocked() {
    if (gone_ || finished_) return;
    gone_ = true;
    GuardLocked([this] { Gone(); });
  }

  void SetWritingLocked(bool writing) {
    if (writing == writing_) return;
    writing_ = writing;
    streams_->AddOutgoingBytes(writing ? write_bytes_ : -write_bytes_);
    call_.connection->Waits(writing ? write_bytes_ : -write_bytes_);
    if (!writing) metrics_->BytesSent(write_bytes_);
  }

  LiveStreams* const streams_;
  Metrics* const metrics_;
  const std::string_view method_;
  const Connections::Call call_;
  const Clock::time_point opened_ = Clock::now();
  std::optional<RpcScope> scope_;  // once it has asked
  TracePtr trace_;                 // set by Open
  std::optional<WallTime> upload_begin_, upload_end_, download_begin_;
  std::string job_;  // its name
  std::shared_ptr<OutStream> self_;
  std::vector<std::shared_ptr<void>> dropped_;
  Response message_;
  grpc::ByteBuffer outgoing_;  // `message_` on its way
  std::optional<absl::Status> end_;
  Clock::time_point write_start_ = Clock::now();
  int64_t write_bytes_ = 0;
  bool writing_ = false, finished_ = false, gone_ = false, cut_ = false, done_ = false;
  bool asked_ = false, feeding_ = false, identified_ = false, quiet_ = false;
  bool input_over_ = false;  // no more of it will come

  template <class Request, class R>
  friend class RequestStream;
  template <class Request, class R>
  friend class BidiStream;
};

// Serves methods with one request: plain calls, and those that answer it with a stream.
template <class Request, class Response>
class RequestStream : public OutStream<Response> {
 public:
  using Base = OutStream<Response>;
  using Base::Base;

  void OnReadDone(bool ok) final {
    {
      typename Base::Section section(this);
      if (this->ended_locked()) return;
      if (!ok && this->context_->IsCancelled()) {
        this->GoneLocked();  // OnCancel is on its way
      } else {
        this->GuardLocked([this, ok] { Take(ok); });
      }
      if (this->ended_locked()) return this->PumpLocked();
    }
    absl::Status thrown = Guarded("the call", [this] {
      Requested(request_);
      return absl::OkStatus();
    });
    if (thrown.ok()) return;
    typename Base::Section section(this);
    this->EndLocked(std::move(thrown));
    this->PumpLocked();
  }

 protected:
  // The request is there. The mutex is not held; gRPC keeps the object till this returns.
  virtual void Requested(const Request& request) = 0;

 private:
  void Start() final { this->StartRead(&incoming_); }
  bool Idle() const final { return !this->asked_locked(); }

  void Take(bool ok) {
    this->TookLocked(incoming_);
    this->AskedLocked();
    this->input_over_ = true;
    if (!ok) {
      return this->EndLocked(
          MakeError(absl::StatusCode::kInvalidArgument, reason::kUnexpectedMessage,
                    "the call ended without its request; send one message, then half-close"));
    }
    if (!grpc::SerializationTraits<Request>::Deserialize(&incoming_, &request_).ok()) {
      this->EndLocked(
          MakeError(absl::StatusCode::kInvalidArgument, reason::kUnexpectedMessage,
                    "a message that cannot be parsed; it must be of the method's request type"));
    }
  }

  grpc::ByteBuffer incoming_;
  Request request_;
};

// The reading half, of requests that are a chunk of an array or something else. One read at a time;
// the next is asked for by ReadLocked only, so a stream that is not ready for more input leaves it
// to gRPC's flow control.
template <class Request, class Response>
class BidiStream : public OutStream<Response> {
 public:
  using Base = OutStream<Response>;
  using Base::Base;
  static constexpr std::chrono::milliseconds kLinger{200};

  void OnReadDone(bool ok) final {
    typename Base::Section section(this);
    reading_ = false;
    waited_ += Base::Clock::now() - read_start_;
    if (ok) waited_bytes_ += static_cast<double>(incoming_.Length());
    if (ok) {
      this->TookLocked(incoming_);
    } else {
      this->input_over_ = true;
      this->FedLocked(true);
    }
    if (this->ended_locked()) {
      incoming_.Clear();
      return this->PumpLocked();
    }
    if (ok) {
      // Out of the way of the next one, which may be asked for before this one is done with.
      taken_.Swap(&incoming_);
      this->GuardLocked([this] {
        if (!this->asked_locked()) this->AskedLocked(true);
        Dispatch();
      });
      taken_.Clear();
    } else if (this->context_->IsCancelled()) {
      this->GoneLocked();  // OnCancel is on its way
    } else {
      this->GuardLocked([this] { HalfClosed(); });
    }
    this->PumpLocked();
  }

 protected:
  // A message that is no chunk, or one that is. Call ReadLocked for another one: as early as may
  // be, for that comes while this one is looked at.
  virtual void Received(const Request& request) = 0;
  virtual void ReceivedChunk(const ChunkView& chunk) = 0;
  // No more input will come. Where a reset was the reason, and gRPC has not noticed yet, OnCancel
  // follows at once: work that a reset shall not begin asks IsCancelled again when it is off this
  // thread.
  virtual void HalfClosed() = 0;
  // Takes a piece of an array that Feed reads. An error ends the call.
  virtual absl::Status TakePiece(const ChunkView& piece) = 0;
  // It has taken all of them: asks for the next message, now or when it can go on.
  virtual absl::Status TookPieces() {
    ReadLocked();
    return absl::OkStatus();
  }

  // Returns what has to be done with the pieces that Feed has brought before it brings the next
  // one, the mutex not held, while the end of the call leaves the input alone; null: nothing. Its
  // error ends the call. EndPassingOn follows.
  virtual std::function<absl::Status()> BeginPassingOn() { return nullptr; }
  virtual void EndPassingOn() {}

  // Gives what `reader` reads to TakePiece, then asks for the next message; until then there is no
  // read in flight. `reader` has `absl::StatusOr<bool> Next(ChunkView*)`, false at its end. Runs on
  // an executor, the mutex not held. The end of the call, which is looked for at each piece, waits
  // for the copy of one at most.
  template <class Reader>
  void Feed(Reader& reader) {
    for (bool more = true; more;) {
      ChunkView piece;
      const absl::StatusOr<bool> read = reader.Next(&piece);
      std::function<absl::Status()> aside;
      {
        typename Base::Section section(this);
        if (this->ended_locked()) return this->PumpLocked();
        more = false;
        this->GuardLocked([&] {
          absl::Status status = read.status();
          if (status.ok()) status = *read ? TakePiece(piece) : TookPieces();
          this->TookPieceLocked();
          if (!status.ok()) return this->EndLocked(std::move(status));
          more = *read;
          if (more) aside = BeginPassingOn();
        });
        if (!more) this->PumpLocked();
      }
      if (!aside) continue;
      absl::Status status = aside();
      typename Base::Section section(this);
      EndPassingOn();
      if (!status.ok() && !this->ended_locked()) this->EndLocked(std::move(status));
      if (this->ended_locked()) return this->PumpLocked();
    }
  }

  void ReadLocked() {
    if (reading_ || this->input_over_ || this->ended_locked()) return;
    reading_ = true;
    read_start_ = Base::Clock::now();
    this->StartRead(&incoming_);
  }
  // Ends the call where the sender has left us waiting longer than allowed: at once, or in pieces
  // with next to nothing between them.
  void CheckSenderLocked(typename Base::Clock::time_point now) {
    const auto limit = this->streams_->limits().stalled_sender;
    if (!reading_ || waited_ + (now - read_start_) <= limit) return;
    const bool trickle =
        waited_bytes_ < kMinSenderRate * std::chrono::duration<double>(limit).count();
    waited_bytes_ = 0;
    waited_ = -(now - read_start_);  // the next span begins here
    if (!trickle && now - read_start_ <= limit) return;
    this->EndLocked(MakeError(absl::StatusCode::kDeadlineExceeded, reason::kStalledSender,
                              "nothing, or next to nothing, came for too long in the middle of "
                              "the input; send the chunks without long pauses, then half-close"));
  }

 private:
  // HAProxy (2.6, its issue 1219) resets a call towards the client when the server has ended it and
  // the client has not, and may so take the status with it: before a proxy the end waits for the
  // half-close, which most clients have sent long ago, or for a moment.
  bool LingersLocked() final {
    if (!proxied_ || this->input_over_ || this->gone_) return false;
    const auto now = Base::Clock::now();
    if (!linger_start_) linger_start_ = now;
    if (now - *linger_start_ > kLinger) return false;
    if (!reading_) {
      reading_ = true;
      read_start_ = now;
      this->StartRead(&incoming_);
    }
    return true;
  }

  void Dispatch() {
    if (ReadChunk(&taken_, Request::kChunkFieldNumber, &chunk_)) {
      ReceivedChunk(chunk_);
      return this->TookPieceLocked();
    }
    if (!grpc::SerializationTraits<Request>::Deserialize(&taken_, &request_).ok()) {
      return this->EndLocked(
          MakeError(absl::StatusCode::kInvalidArgument, reason::kUnexpectedMessage,
                    "a message that cannot be parsed; it must be of the method's request type"));
    }
    if (request_.has_chunk()) return ReceivedChunk(request_.chunk());
    Received(request_);
  }

  grpc::ByteBuffer incoming_, taken_;
  ChunkView chunk_;  // of taken_
  Request request_;
  const bool proxied_ = !MetadataOf(*this->context_, "x-forwarded-for").empty();
  std::optional<typename Base::Clock::time_point> linger_start_;
  bool reading_ = false;
  typename Base::Clock::time_point read_start_{};
  typename Base::Clock::duration waited_{0};  // in this span, without the read in flight
  double waited_bytes_ = 0;                   // that came in this span
};

// Ends a call with `status`: the reactor where there is no memory for the stream.
class Refusal final : public RawBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

// Makes the stream and hands it to gRPC.
template <class Stream, class... Arguments>
RawBidiReactor* Launch(Arguments&&... arguments) {
  std::shared_ptr<Stream> stream;
  const absl::Status made = Guarded("the call", [&] {
    stream = std::make_shared<Stream>(std::forward<Arguments>(arguments)...);
    return absl::OkStatus();
  });
  if (!made.ok()) return new (std::nothrow) Refusal(made);
  Stream* reactor = stream.get();
  reactor->Open(std::move(stream));
  return reactor;
}

}  // namespace spaid::server
