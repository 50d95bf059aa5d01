// Converts absl::Status to grpc::Status, with the whole error in `grpc-status-details-bin`.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace spaid::server {

// Keeps the code. A very long message is shortened (trailers are limited to 8 KiB). An error
// without a reason becomes INTERNAL with one, and is logged, so that every error that leaves has a
// reason.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace spaid::server
