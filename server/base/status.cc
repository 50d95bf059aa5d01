#include "server/base/status.h"

#include <utility>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace spaid::server {
namespace {

constexpr char kTypePrefix[] = "type.googleapis.com/";
constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kRetryInfo[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kBadRequest[] = "type.googleapis.com/google.rpc.BadRequest";

template <class Message>
std::optional<Message> Payload(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  if (!payload) return std::nullopt;
  Message message;
  if (!message.ParseFromString(std::string(*payload))) return std::nullopt;
  return message;
}

}  // namespace

ErrorBuilder ErrorBuilder::Field(std::string field) && {
  field_ = std::move(field);
  return std::move(*this);
}

ErrorBuilder ErrorBuilder::Index(int64_t index) && { return std::move(*this).Meta("index", index); }

ErrorBuilder ErrorBuilder::Retry(std::chrono::milliseconds delay) && {
  retry_ = delay;
  return std::move(*this);
}

ErrorBuilder ErrorBuilder::Meta(std::string key, std::string value) && {
  metadata_.emplace_back(std::move(key), std::move(value));
  return std::move(*this);
}

ErrorBuilder ErrorBuilder::Meta(std::string key, int64_t value) && {
  return std::move(*this).Meta(std::move(key), std::to_string(value));
}

absl::Status ErrorBuilder::Build() const {
  absl::Status status(code_, message_);
  google::rpc::ErrorInfo info;
  info.set_reason(reason_);
  info.set_domain(std::string(kErrorDomain));
  for (const auto& [key, value] : metadata_) (*info.mutable_metadata())[key] = value;
  status.SetPayload(kErrorInfo, absl::Cord(info.SerializeAsString()));
  if (!field_.empty()) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(field_);
    violation->set_description(message_);
    status.SetPayload(kBadRequest, absl::Cord(bad.SerializeAsString()));
  }
  if (retry_) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(retry_->count() / 1000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int>(retry_->count() % 1000 * 1'000'000));
    status.SetPayload(kRetryInfo, absl::Cord(retry.SerializeAsString()));
  }
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto info = Payload<google::rpc::ErrorInfo>(status, kErrorInfo);
  return info ? info->reason() : std::string();
}

std::string FieldOf(const absl::Status& status) {
  const auto bad = Payload<google::rpc::BadRequest>(status, kBadRequest);
  return bad && bad->field_violations_size() > 0 ? bad->field_violations(0).field() : std::string();
}

std::string MetaOf(const absl::Status& status, std::string_view key) {
  const auto info = Payload<google::rpc::ErrorInfo>(status, kErrorInfo);
  if (!info) return {};
  const auto it = info->metadata().find(std::string(key));
  return it == info->metadata().end() ? std::string() : it->second;
}

std::optional<std::chrono::milliseconds> RetryDelayOf(const absl::Status& status) {
  const auto retry = Payload<google::rpc::RetryInfo>(status, kRetryInfo);
  if (!retry) return std::nullopt;
  return std::chrono::milliseconds(retry->retry_delay().seconds() * 1000 +
                                   retry->retry_delay().nanos() / 1'000'000);
}

absl::Status WithFieldPrefix(const absl::Status& status, std::string_view prefix) {
  auto bad = Payload<google::rpc::BadRequest>(status, kBadRequest);
  if (!bad || prefix.empty()) return status;
  for (auto& violation : *bad->mutable_field_violations()) {
    violation.set_field(std::string(prefix) + "." + violation.field());
  }
  absl::Status result = status;
  result.SetPayload(kBadRequest, absl::Cord(bad->SerializeAsString()));
  return result;
}

absl::Status WithMeta(const absl::Status& status, const std::string& key,
                      const std::string& value) {
  auto info = Payload<google::rpc::ErrorInfo>(status, kErrorInfo);
  if (!info) return status;
  (*info->mutable_metadata())[key] = value;
  absl::Status result = status;
  result.SetPayload(kErrorInfo, absl::Cord(info->SerializeAsString()));
  return result;
}

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status result;
  result.set_code(static_cast<int>(status.code()));
  result.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    // Only what is ours is ours to send.
    if (url.rfind(kTypePrefix, 0) != 0) return;
    auto* any = result.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(payload));
  });
  return result;
}

}  // namespace spaid::server
