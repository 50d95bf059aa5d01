// A client of grpc.health.v1, by hand on the wire: Debian ships no generated one.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace spaid::testing {

// Check(service) -> its status number (1: SERVING, 2: NOT_SERVING), or -1 where the call failed.
int Check(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);

}  // namespace spaid::testing
