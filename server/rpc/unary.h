// Serves plain calls that are answered at once, from memory, to a known caller.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "server/rpc/backend.h"
#include "server/rpc/stream.h"

namespace spaid::server {

// A plain call. An exception of its body ends the call (RequestStream).
template <class Request, class Response, class Body>
class UnaryCall final : public RequestStream<Request, Response> {
 public:
  using Base = RequestStream<Request, Response>;

  UnaryCall(grpc::CallbackServerContext* context, std::string_view method, Backend* backend,
            Body body)
      : Base(context, method, &backend->streams(), &backend->metrics()),
        backend_(backend),
        body_(std::move(body)) {}

 private:
  void Requested(const Request& request) override {
    const auto caller = this->Identify(backend_->authenticator());
    Response response;
    absl::Status status = caller.ok() ? body_(*caller, &request, &response) : caller.status();
    typename Base::Section section(this);
    if (status.ok()) response_ = std::move(response);
    answered_ = status.ok();
    this->EndLocked(std::move(status));
    this->PumpLocked();
  }

  bool Next(Response* message) override {
    if (!std::exchange(answered_, false)) return false;
    message->Swap(&response_);
    return true;
  }

  Backend* const backend_;
  Body body_;
  Response response_;
  bool answered_ = false;
};

// Runs body(caller, const Request*, Response*) -> absl::Status on the thread that took the request
// and ends the call with it.
template <class Request, class Response, class Body>
RawBidiReactor* Unary(grpc::CallbackServerContext* context, std::string_view method,
                      Backend* backend, Body body) {
  return Launch<UnaryCall<Request, Response, Body>>(context, method, backend, std::move(body));
}

}  // namespace spaid::server
