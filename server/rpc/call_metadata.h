// Reads what a call's metadata say beside who calls (authentication.h).
#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/trace.h"

namespace spaid::server {

// Returns the values of metadata `key`, in the order in which they came; they live with the call.
std::vector<absl::string_view> MetadataOf(const grpc::ServerContextBase& context, const char* key);

// Returns what handles that this call makes end in: x-spaid-affinity, or kNoAffinity where there is
// none. Errors: INVALID_ARGUMENT/BAD_AFFINITY.
absl::StatusOr<std::string> AffinityOfCall(const grpc::ServerContextBase& context);

// Returns the call's trace by its traceparent and tracestate; null: it is in none.
TracePtr TraceOfCall(const grpc::ServerContextBase& context, const Tracer& tracer);

}  // namespace spaid::server
