// Drives one bidirectional stream on the calling thread alone, through a completion queue of its
// own: reads and writes are both in flight, so a refusal is seen while an upload is still going on,
// callbacks run on the caller's thread, and no thread is made. Requests are passed serialized, so
// that arrays go into them without a protobuf between.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "client/cpp/call.h"
#include "client/cpp/errors.h"
#include "spaid/client.h"

namespace spaid::internal {

// The answer of the sending side when it is asked for the next request.
enum class Feed {
  kMessage,  // the request is filled in; more may follow
  kLast,     // the request is filled in; then no more
  kLater,    // nothing until the server has said something
  kEnd,      // no more
};

template <class Request>
grpc::ByteBuffer Serialized(const Request& request) {
  grpc::ByteBuffer buffer;
  bool own = false;
  // As gRPC does: what cannot be serialized is a mistake of ours.
  if (!grpc::SerializationTraits<Request>::Serialize(request, &buffer, &own).ok()) std::abort();
  return buffer;
}

template <class Response>
class Exchange {
 public:
  // `method`: "/spaid.v1.MatrixService/UploadMatrix".
  Exchange(grpc::ClientContext& context, const std::shared_ptr<grpc::Channel>& channel,
           const std::string& method)
      : context_(context), stream_(Stub(channel).PrepareCall(&context, method, &queue_)) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Leaves nothing in flight, also after an exception in a callback.
  ~Exchange() {
    if (in_flight_ > 0 || !finished_) context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // Runs the stream to its end. `next(request) -> Feed`, whose request is a grpc::ByteBuffer;
  // `take(response) -> std::optional<Error>`, whose error cancels the stream and is returned;
  // `written()` runs after each request has been handed to the transport. Returns nothing if the
  // server ended with OK.
  template <class Next, class Take, class Written>
  std::optional<Error> Run(const std::string& address, Next next, Take take, Written written) {
    std::optional<Error> own;  // the error that `take` found
    bool writing = false, closed = false, reading = false;

    auto pump = [&] {
      if (writing || closed || !reading) return;
      switch (next(request_)) {
        case Feed::kMessage:
          Begin(), stream_->Write(request_, Tag(kWrite));
          writing = true;
          break;
        case Feed::kLast:
          Begin(), stream_->WriteLast(request_, grpc::WriteOptions(), Tag(kWrite));
          writing = closed = true;
          break;
        case Feed::kEnd:
          Begin(), stream_->WritesDone(Tag(kClose));
          writing = closed = true;
          break;
        case Feed::kLater:
          break;
      }
    };

    Begin(), stream_->StartCall(Tag(kStart));
    while (in_flight_ > 0) {
      const auto [what, ok] = Wait();
      switch (what) {
        case kStart:
          if (!ok) break;  // the channel is broken: Finish tells
          Begin(), stream_->Read(&response_, Tag(kRead));
          reading = true;
          pump();
          break;
        case kRead:
          if (!ok) {
            reading = false;  // the server has ended; what is being written fails by itself
            break;
          }
          if (!own) own = take(response_);
          if (own) context_.TryCancel();
          Begin(), stream_->Read(&response_, Tag(kRead));
          if (!own) pump();
          break;
        case kFinish:  // begun below, after this loop
          break;
        case kWrite:
        case kClose:
          writing = false;
          if (!ok) {
            closed = true;
          } else if (!own) {
            if (what == kWrite) written();
            pump();
          }
          break;
      }
    }
    grpc::Status status;
    Begin(), stream_->Finish(&status, Tag(kFinish));
    Wait();
    finished_ = true;
    if (own) return own;
    if (!status.ok()) return FromStatus(status, address);
    return std::nullopt;
  }

 private:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, Response>;
  using Stream = grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, Response>;
  enum Operation : intptr_t { kStart = 1, kRead, kWrite, kClose, kFinish };
  struct Done {
    Operation what;
    bool ok;
  };

  static void* Tag(Operation what) { return reinterpret_cast<void*>(what); }
  void Begin() { ++in_flight_; }
  Done Wait() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);  // cannot be shut down here: only the destructor does that
    --in_flight_;
    return {static_cast<Operation>(reinterpret_cast<intptr_t>(tag)), ok};
  }

  grpc::ClientContext& context_;
  grpc::ByteBuffer
      request_;        // members, not locals of Run: a read in flight writes into one of them
  Response response_;  // until the destructor has drained the queue
  grpc::CompletionQueue queue_;
  std::unique_ptr<Stream> stream_;
  int in_flight_ = 0;
  bool finished_ = false;
};

}  // namespace spaid::internal
