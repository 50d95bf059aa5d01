#include "server/rpc/status_mapping.h"

#include <new>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

// Message and details travel in one trailer block each; gRPC's peers accept 8 KiB of metadata in
// all.
constexpr size_t kMaxMessageBytes = 1200;

void Shorten(std::string* text) {
  if (text->size() <= kMaxMessageBytes) return;
  size_t end = kMaxMessageBytes;  // not in the middle of a character
  while (end > 0 && (static_cast<unsigned char>((*text)[end]) >> 6) == 2) --end;
  text->resize(end);
  text->append(" …");
}

grpc::Status Converted(const absl::Status& status) {
  if (ReasonOf(status).empty()) {
    Log(LogLevel::kError, "error_without_reason", {{"status", status.ToString()}});
    return Converted(MakeError(
        absl::StatusCode::kInternal, reason::kInternal,
        "the server failed in a way that it should not: " + std::string(status.message())));
  }
  // A field violation repeats the message.
  google::rpc::Status details = ToRpcStatus(status);
  if (details.message().size() > kMaxMessageBytes) {
    Shorten(details.mutable_message());
    for (google::protobuf::Any& any : *details.mutable_details()) {
      google::rpc::BadRequest bad;
      if (!any.UnpackTo(&bad)) continue;
      for (auto& violation : *bad.mutable_field_violations()) {
        Shorten(violation.mutable_description());
      }
      any.PackFrom(bad);
    }
  }
  return grpc::Status(static_cast<grpc::StatusCode>(details.code()), details.message(),
                      details.SerializeAsString());
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  try {
    return Converted(status);
  } catch (const std::bad_alloc&) {  // the reason is short enough to need no memory
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, std::string(reason::kOutOfMemory));
  }
}

}  // namespace spaid::server
