// Unary calls that answer at once: the tenant is known, the answer is in memory.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/rpc/backend.h"
#include "server/rpc/rpc_scope.h"
#include "server/rpc/status_mapping.h"

namespace spaid::server {

// Runs body(caller) -> absl::Status on this thread and finishes the call with it.
template <class Body>
grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context, std::string_view method,
                                Backend* backend, Body body) {
  RpcScope scope(method, &backend->metrics());
  const auto caller = backend->authenticator().Identify(*context);
  const absl::Status status = caller.ok() ? body(*caller) : caller.status();
  scope.Ended(status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace spaid::server
