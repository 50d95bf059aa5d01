// Serves --local-socket: clients on this host register memory there, which their calls then name
// (Segments). Messages are those of proto/spaid/v1/local.proto.
//
//   ASSIGN_OR_RETURN(auto local, LocalSocket::Listen({.path = "/run/spaid/local"}, &backend));
//   ...
//   local.reset();   // before the backend
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/descriptor.h"
#include "server/base/tenant_shares.h"
#include "server/rpc/socket_file.h"
#include "spaid/v1/local.pb.h"

namespace spaid::server {

class Backend;

struct LocalSocketOptions {
  std::string path = {};                      // of the socket's file; made with mode 0660
  std::set<uid_t> uids = {};                  // users who may connect, beside the daemon's own
  std::map<uid_t, std::string> tenants = {};  // of users who send no token
  int64_t max_connections = 64;               // users share them as tenants do
  std::chrono::milliseconds hello{5'000};     // within which a connection says who it is
};

// One thread for all connections. Each may ask for one thing after the other; one that asks on
// without reading the answers, or breaks the protocol, is cut.
class LocalSocket {
 public:
  // UNAVAILABLE/CANNOT_LISTEN where somebody answers at the path already, or it cannot be made.
  // `backend` outlives the socket.
  static absl::StatusOr<std::unique_ptr<LocalSocket>> Listen(LocalSocketOptions options,
                                                             Backend* backend);
  // Hangs up on everybody, whose leases end, and removes the file.
  ~LocalSocket();
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    Descriptor socket;
    uid_t uid = 0;
    TenantShares::Account account = nullptr;
    Clock::time_point opened = {};
    bool known = false;  // has said who it is
    std::string tenant = {};
    std::set<std::string> leases = {};
  };
  struct Message;

  LocalSocket(LocalSocketOptions options, Descriptor listener, SocketFile file, Backend* backend);
  void Run();
  void Accept();
  void Close(int fd);
  void CloseSilent(Clock::time_point now);
  // Takes one message. False: the connection is to be closed.
  bool Serve(Connection& connection);
  // `*keep`: set to false where nothing more is to be taken of the connection.
  absl::StatusOr<v1::LocalReply> Answer(Connection& connection, Message& message, bool* keep);
  absl::StatusOr<v1::LocalReply> Welcome(Connection& connection, const v1::LocalHello& hello,
                                         bool* keep);
  void Refused(uid_t uid, const absl::Status& why);
  void CountConnections();

  const LocalSocketOptions options_;
  Backend* const backend_;
  Descriptor listener_;
  const SocketFile file_;
  Descriptor epoll_, stop_;
  bool paused_ = false;  // no descriptors: nobody is accepted until the next look
  TenantShares places_;  // of connections, by user
  std::map<int, Connection> connections_;
  std::thread thread_;
};

}  // namespace spaid::server
