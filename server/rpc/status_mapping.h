// absl::Status -> grpc::Status with the whole error in `grpc-status-details-bin`.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace spaid::server {

// Codes are the same numbers. A very long message is shortened (trailers are limited to 8 KiB); an
// error without a reason goes out as INTERNAL with one, and is logged: every error that leaves has
// a reason.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace spaid::server
