// The listening sockets of the gRPC port, and the thread that accepts. gRPC 1.51's own listener
// ends for good when descriptors run out; this one waits until there are some again, and keeps to
// the bounds of Connections.
//
//   ASSIGN_OR_RETURN(auto acceptor, Acceptor::Listen("127.0.0.1:0", &connections));
//   acceptor->Start([&](int listener, int fd) { ... });     // fd is the callee's from then on
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/connections.h"

namespace spaid::server {

// As many descriptors as the system lets this process have; how many that are.
int64_t RaiseDescriptorLimit();
// Connections that so many descriptors are enough for: each takes two, and the rest of the daemon
// (files, the ops port, jobs) some.
int64_t ConnectionsFor(int64_t descriptors);

class Acceptor {
 public:
  // `address`: HOST:PORT (port 0 picks one), unix:PATH or unix-abstract:NAME. UNAVAILABLE/
  // CANNOT_LISTEN where it is taken, not ours or malformed. `connections` outlives the acceptor.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const std::string& address,
                                                          Connections* connections);
  ~Acceptor();

  // The address with the port that was picked.
  const std::string& address() const { return address_; }
  // The first of the sockets' own addresses.
  sockaddr_storage listens_on() const;

  // Accepts from now on, on a thread of its own. Once.
  void Start(std::function<void(int listener, int fd)> handle);
  // Nobody is accepted any more, and the port is free. Connections live on.
  void Stop();

 private:
  // The socket of a unix: address, as it was made.
  struct SocketFile {
    std::string path = {};  // empty: none
    dev_t device = 0;
    ino_t inode = 0;
  };
  static absl::StatusOr<int> ListenOnFile(const std::string& address, SocketFile* file);
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
