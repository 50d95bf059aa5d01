// A client by hand on the wire, of grpc.health.v1 and others that Debian ships no generated one of.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

namespace spaid::testing {

// Sends `request` to the method at `path`, "/package.Service/Method", as the only message; how the
// call ended, within 30 s. `answer`: gets the bytes of the only response; may be null.
grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                 const std::string& request, std::string* answer = nullptr);

// Check(service) -> its status number (1: SERVING, 2: NOT_SERVING), or -1 where the call failed.
int Check(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);

}  // namespace spaid::testing
