// A gRPC stream with nothing in it but messages of 1 MiB: the floor of a transfer.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace spaid::e2e {

// A server in a process of its own, and a client of it. To be made before this process uses gRPC.
// Aborts where a call fails.
class BareStream {
 public:
  BareStream();
  ~BareStream();
  BareStream(const BareStream&) = delete;
  BareStream& operator=(const BareStream&) = delete;

  // Sends (receives) at least so many bytes in one call; milliseconds until the server has all of
  // them and its status is here (until the last one is here).
  double Send(int64_t bytes);
  double Receive(int64_t bytes);

 private:
  struct Client;
  pid_t pid_ = -1;
  int lifeline_ = -1;  // the server ends when it is closed
  std::string address_;
  std::unique_ptr<Client> client_;  // from the first call on
};

}  // namespace spaid::e2e
