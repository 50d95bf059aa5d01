#include "client/cpp/errors.h"

#include <grpcpp/support/status.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "client/cpp/convert.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace spaid::internal {
namespace {

// Fills in what the details carry. False where there are none, or none that can be read.
bool Decode(const std::string& details, Error& error) {
  if (details.empty()) return false;
  google::rpc::Status status;
  if (!status.ParseFromString(details)) return false;
  bool found = false;
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    google::rpc::BadRequest bad;
    if (any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info)) {
      error.reason = info.reason();
      for (const auto& [key, value] : info.metadata()) error.metadata.emplace_back(key, value);
      std::sort(error.metadata.begin(), error.metadata.end());  // a map's order is not stable
      found = true;
    } else if (any.Is<google::rpc::RetryInfo>() && any.UnpackTo(&retry)) {
      error.retry_after = std::chrono::ceil<std::chrono::milliseconds>(Span(retry.retry_delay()));
      found = true;
    } else if (any.Is<google::rpc::BadRequest>() && any.UnpackTo(&bad)) {
      if (bad.field_violations_size() > 0) error.field = bad.field_violations(0).field();
      found = true;
    }
  }
  return found;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

Error MakeError(Code code, std::string_view reason, std::string message, std::string field) {
  Error error;
  error.code = code;
  error.reason = reason;
  error.message = std::move(message);
  error.field = std::move(field);
  return error;
}

Error ProtocolViolation(std::string_view what) {
  return MakeError(Code::kInternal, kProtocolViolation,
                   "the server broke the protocol: " + std::string(what) +
                       "; are client and server of the same version?");
}

Error FromStatus(const grpc::Status& status, std::string_view address) {
  const int raw = static_cast<int>(status.error_code());
  Error error;
  error.code = raw >= 1 && raw <= 16 ? static_cast<Code>(raw) : Code::kUnknown;
  error.message = status.error_message();
  if (Decode(status.error_details(), error)) return error;

  const std::string where(address);
  const std::string& text = status.error_message();
  switch (error.code) {
    case Code::kUnavailable:
      // gRPC has one code for both, but only before a connection stands can the cure be "start it".
      if (Contains(text, "connect") || Contains(text, "resol") ||
          Contains(text, "name resolution")) {
        error.reason = kUnreachable;
        error.message = "no spaid daemon can be reached at " + where + ": " + text +
                        "; is it running there (`spaid --address=" + where +
                        "`), and do both sides use TLS or neither?";
      } else {
        error.reason = kConnectionLost;
        error.message = "the connection to the spaid daemon at " + where + " broke: " + text +
                        "; see the daemon's log, and try again";
      }
      break;
    case Code::kUnknown:
      if (raw != static_cast<int>(Code::kUnknown)) break;
      // The daemon has a code for everything: a proxy has ended a call whose status never came.
      error.code = Code::kUnavailable;
      error.reason = kConnectionLost;
      error.message = "the call to " + where + " ended without a status" +
                      (text.empty() ? "" : " (" + text + ")") +
                      "; a proxy has lost its daemon: try again";
      break;
    case Code::kCancelled:
      // The daemon says why it cancels, and who stops a call of one's own is not told of it.
      error.code = Code::kUnavailable;
      error.reason = kConnectionLost;
      error.message = "the call to " + where + " was reset" +
                      (text.empty() ? "" : " (" + text + ")") +
                      "; its daemon, or a proxy that has lost it, went away: try again";
      break;
    case Code::kDeadlineExceeded:
      error.reason = kTimeout;
      error.message = "the call's timeout passed before the daemon at " + where +
                      " had answered; give it more time, or detach the job and watch it";
      break;
    case Code::kUnimplemented:
      error.message = "the server at " + where + " does not know this call (" + text +
                      "); is it a spaid daemon of this version?";
      break;
    case Code::kResourceExhausted:
      if (Contains(text, "larger than max")) {
        error.message = "a message was too large: " + text +
                        "; of an upload or a solve: set chunk_bytes to 1 MiB or less";
      }
      break;
    default:
      break;
  }
  if (error.message.empty()) error.message = "the server gave no reason";
  return error;
}

}  // namespace spaid::internal
