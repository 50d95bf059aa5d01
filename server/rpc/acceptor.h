// Owns the listening sockets of the gRPC port and the thread that accepts. gRPC 1.51's own listener
// ends for good when descriptors run out; this one waits until there are some again, and keeps to
// the bounds of Connections.
//
//   ASSIGN_OR_RETURN(auto acceptor, Acceptor::Listen("127.0.0.1:0", &connections));
//   acceptor->Start([&](int listener, int fd) { ... });     // fd is the callee's from then on
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/connections.h"
#include "server/rpc/socket_file.h"

namespace spaid::server {

// Raises the limit of descriptors to what the system allows this process, and returns it.
int64_t RaiseDescriptorLimit();
// Returns how many connections `descriptors` suffice for: each takes two, and the rest of the
// daemon (files, the ops port, jobs) needs some.
int64_t ConnectionsFor(int64_t descriptors);

class Acceptor {
 public:
  // Opens the sockets of `address`: HOST:PORT (port 0 picks one), unix:PATH or unix-abstract:NAME.
  // UNAVAILABLE/CANNOT_LISTEN if it is taken, not ours or malformed. `connections` outlives the
  // acceptor.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& address,
                                                          Connections* connections);
  ~Acceptor();

  // Returns the address with the port that was picked.
  const std::string& address() const { return address_; }
  // Returns the address of the first socket.
  sockaddr_storage listens_on() const;

  // Starts accepting, on a thread of its own. Call once.
  void Start(std::function<void(int listener, int fd)> handle);
  // Stops accepting and frees the port. Connections live on.
  void Stop();

 private:
  Acceptor(std::string address, std::vector<int> listeners, SocketFile file,
           Connections* connections);
  void Run();
  void Watch();
  void Accept(int listener, Connections::Clock::time_point now);
  bool AcceptOnReserve(int listener);
  void Arm(bool on);

  std::string address_;
  std::vector<int> listeners_;
  SocketFile file_;
  Connections* const connections_;
  std::function<void(int, int)> handle_;
  int epoll_, stop_, reserve_;
  bool paused_ = false;  // no descriptors, or nobody is to be let in
  std::thread thread_, watch_;
};

}  // namespace spaid::server
