// Errors of the daemon: absl::Status whose payloads carry what a program needs — the reason, the
// field, the index, when to try again — in the standard google.rpc messages.
//
//   if (nnz < 0) {
//     return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadSize,
//                      "nnz is -4; it must be 0 or more").Field("header.nnz");
//   }
//   ASSIGN_OR_RETURN(auto matrix, store.Get(tenant, handle));
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/reasons.h"

namespace google::rpc {
class Status;
}

namespace spaid::server {

// Collects an error; converts to absl::Status and to any absl::StatusOr<T>. Value type: each step
// hands the builder on by value, so that `error = std::move(error).Field(f)` is sound too.
class ErrorBuilder {
 public:
  ErrorBuilder(absl::StatusCode code, std::string_view reason, std::string message)
      : code_(code), reason_(reason), message_(std::move(message)) {}

  // The request field at fault, as a path from the request: "header.nnz".
  ErrorBuilder Field(std::string field) &&;
  // 0-based first bad element; also sent as metadata "index".
  ErrorBuilder Index(int64_t index) &&;
  // When trying again makes sense (RetryInfo).
  ErrorBuilder Retry(std::chrono::milliseconds delay) &&;
  // Anything else a program may want: "limit", "actual".
  ErrorBuilder Meta(std::string key, std::string value) &&;
  ErrorBuilder Meta(std::string key, int64_t value) &&;

  operator absl::Status() const { return Build(); }  // NOLINT
  template <class T>
  operator absl::StatusOr<T>() const {  // NOLINT
    return absl::StatusOr<T>(Build());
  }

 private:
  absl::Status Build() const;

  absl::StatusCode code_;
  std::string reason_, message_, field_;
  std::optional<std::chrono::milliseconds> retry_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// `reason`: one of reasons.h. `message`: for people; names field and index and says the cure.
inline ErrorBuilder MakeError(absl::StatusCode code, std::string_view reason, std::string message) {
  return ErrorBuilder(code, reason, std::move(message));
}

// Return what MakeError put in; empty if the status has none.
std::string ReasonOf(const absl::Status& status);
std::string FieldOf(const absl::Status& status);
std::string MetaOf(const absl::Status& status, std::string_view key);
std::optional<std::chrono::milliseconds> RetryDelayOf(const absl::Status& status);

// Returns the same error for another place of the request: prefixes the field with "prefix." and
// changes nothing else. OK and statuses without a field come back unchanged.
absl::Status WithFieldPrefix(const absl::Status& status, std::string_view prefix);

// Returns the same error with one more entry of metadata. OK comes back unchanged.
absl::Status WithMeta(const absl::Status& status, const std::string& key, const std::string& value);

// Returns the whole error as google.rpc.Status (code, message, details), which
// `grpc-status-details-bin` carries.
google::rpc::Status ToRpcStatus(const absl::Status& status);

namespace internal {
inline const absl::Status& AsStatus(const absl::Status& status) { return status; }
template <class T>
const absl::Status& AsStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}
}  // namespace internal

#define SPAID_CONCAT_INNER(a, b) a##b
#define SPAID_CONCAT(a, b) SPAID_CONCAT_INNER(a, b)

// Returns the error of `expr` (absl::Status or StatusOr) from the enclosing function.
#define RETURN_IF_ERROR(expr)                                   \
  do {                                                          \
    if (auto&& spaid_status = (expr); !spaid_status.ok()) {     \
      return ::spaid::server::internal::AsStatus(spaid_status); \
    }                                                           \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): `x` is F()'s value, or its error is returned.
#define ASSIGN_OR_RETURN(lhs, expr) \
  SPAID_ASSIGN_OR_RETURN_IMPL(SPAID_CONCAT(spaid_status_or_, __LINE__), lhs, expr)
#define SPAID_ASSIGN_OR_RETURN_IMPL(name, lhs, expr) \
  auto name = (expr);                                \
  if (!name.ok()) return name.status();              \
  lhs = *std::move(name)

}  // namespace spaid::server
