// Bounds the connections of the gRPC port: their number, in all and per peer, and what each may
// cost. gRPC counts none of this: calls that are reset at once, bytes of a message whose end never
// comes, and a trickling header block are invisible to the code behind it.
//
// Each connection is watched through a second descriptor of its socket, by which the kernel tells
// when gRPC has closed the connection and how many bytes came, and by which it can be cut.
//
//   auto opened = connections.Open(fd, peer);        // the acceptor
//   auto call = connections.Begin(context->peer());  // a call, from its headers to its end
//   call.connection->Took(message.Length());
//   connections.End(call.connection, true);
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/base/cidr.h"
#include "server/base/metrics.h"

namespace spaid::server {

struct ConnectionLimits {
  int64_t max_connections = 1024;           // open at once; fewer where descriptors are short
  int64_t max_per_peer = 256;               // of one IPv4 address or IPv6 /64
  int64_t max_streams = 256;                // of one connection, as HTTP/2 tells its client
  int64_t max_calls = 4096;                 // on all connections, those without a request too
  int64_t max_bytes = 256 << 20;            // received and taken by no call yet, on all connections
  std::chrono::milliseconds idle{600'000};  // a connection without a call is closed after this
  // Proxies, which like loopback have no limit per peer.
  std::vector<Cidr> trusted = {};
};

// The bytes that a stream may receive before somebody reads them.
inline constexpr int kLookaheadBytes = 4 << 20;

class Connection {
 public:
  static constexpr double kDroppable = 64 << 20;

  // Counts the bytes of a message that a call has taken. Thread-safe.
  void Took(size_t bytes) {
    constexpr size_t kFraming = 32;  // and a 32nd: frames of HTTP/2 and records of TLS
    taken_.fetch_add(bytes + bytes / 32 + kFraming, std::memory_order_relaxed);
  }
  // Adds to the bytes of messages that wait to be read by the client. Thread-safe.
  void Waits(int64_t bytes) {
    unread_.fetch_add(bytes, std::memory_order_relaxed);
    // As it is read, the client sends updates of windows, which no call takes.
    if (bytes > 0) Took(static_cast<size_t>(bytes) / 512);
  }

 private:
  friend class Connections;
  using Clock = std::chrono::steady_clock;

  std::atomic<uint64_t> taken_{0};
  std::atomic<int64_t> unread_{0};
  // Under the mutex of Connections.
  std::string name, address;  // "127.0.0.1|5678"; empty where peers have none
  int fd = -1;                // our own of the socket
  bool own = false, cut = false;
  int window = 0;                     // of TCP, as it was set; 0: not yet
  bool known = false, fresh = false;  // fresh: in the list of those that are not known
  std::list<Connection*>::iterator in_fresh;
  Clock::time_point opened{}, idle_since{}, over_since{};
  int64_t calls = 0, asked = 0;  // open ones; those of them whose request has come
  int64_t feeding = 0;           // those that wait for more than their request: arrays
  int64_t broken_off = 0;        // those that did lately, and ended before all had come
  Clock::time_point broken_off_at{};
  int64_t begun = 0;  // since the last look
  double resets = 0;  // calls given up before they asked, lately
  Clock::time_point resets_at{};
  uint64_t received = 0, counted = 0;
  // Since a call last took something, or gRPC had read all there was: so many looks saw it read.
  Clock::time_point moved{};
  uint64_t read_when_moved = 0;
  int slow_reads = 0;
  double untaken = 0;             // bytes
  double droppable = kDroppable;  // the part that calls may have held which have ended
};

// Thread-safe.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;

  // `metrics` outlives it.
  Connections(ConnectionLimits limits, Metrics* metrics);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  const ConnectionLimits& limits() const { return limits_; }
  // Allows at most `most` connections from now on.
  void LimitTo(int64_t most);
  int64_t most() const;

  // --- The acceptor's part ---
  // Registers an accepted connection and returns its second descriptor, to be watched for EPOLLHUP;
  // -1: it is refused and must be closed. `peer`: as accept gave it.
  int Open(int fd, const sockaddr* peer, Clock::time_point now);
  // Handles EPOLLHUP of a descriptor that Open returned, and closes it.
  void Closed(int watched);
  // Cuts what is over its bounds. Every kLookEvery; at once when alarm() is readable, and every
  // kLookAtFloodEvery while flooded().
  void Look(Clock::time_point now);
  static constexpr std::chrono::milliseconds kLookEvery{20}, kLookAtFloodEvery{1};
  // An eventfd that a beginning flood makes readable.
  int alarm() const { return alarm_; }
  // gRPC makes calls faster than they begin.
  bool flooded() const { return unbegun_ > kFlood; }
  static constexpr int64_t kFlood = 512;
  // A flood is not worked off yet: nobody is to be let in.
  bool clogged() const;

  // Announces the self-probe's connection, the next one from this address of ours, which has a
  // place of its own.
  void ExpectOwn(const sockaddr* address);

  // --- The calls' part ---
  struct Call {
    std::shared_ptr<Connection> connection;  // never null
    bool served = true;                      // false: there are too many; end it at once
  };
  // Counts a call that gRPC has made, and for which Begin is still to come.
  void Made();
  // Begins a call whose headers have come. `peer`: as grpc::ServerContext::peer() has it.
  Call Begin(const std::string& peer);
  // Its request has come, as far as it is needed to know what is wanted. `feeds`: arrays follow.
  void Asked(Connection& connection, bool feeds);
  // No more of them is read; `whole`: nor will any come.
  void Fed(Connection& connection, bool whole);
  // A caller asked for something who may: whoever only keeps a connection open is a stranger.
  void Known(Connection& connection);
  // It is over. `asked`: Asked was called.
  void End(Connection& connection, bool asked);

  int64_t size() const;
  int64_t calls() const;
  int64_t cut() const;  // so far
  // Received and taken by no call yet, as of the last look.
  int64_t untaken_bytes() const { return untaken_bytes_; }

 private:
  void CutLocked(Connection& connection, std::string_view why);
  void ForgetLocked(const std::shared_ptr<Connection>& connection);
  void NotFreshLocked(Connection& connection);
  bool MakeRoomLocked(Clock::time_point now);
  Connection* LongestIdleLocked(Clock::time_point now) const;
  // Nobody known has asked there, and no call of it has begun.
  static bool OnlySends(const Connection& connection);
  double AllowanceLocked(const Connection& connection) const;
  void SetWindowLocked(Connection& connection);

  const ConnectionLimits limits_;
  Metrics* const metrics_;
  const int alarm_;  // an eventfd
  std::atomic<int64_t> untaken_bytes_{0};
  mutable std::mutex mu_;
  std::string own_name_;  // the self-probe's connection, announced and not here yet
  Clock::time_point searched_{};
  int64_t most_;
  std::unordered_map<std::string, std::shared_ptr<Connection>> by_name_;
  std::unordered_map<int, std::shared_ptr<Connection>> by_fd_;
  std::unordered_map<std::string, int64_t> per_address_;
  std::list<Connection*> fresh_;  // nobody known has asked there yet; the oldest first
  // For peers without a name: those of unix: addresses.
  const std::shared_ptr<Connection> nameless_ = std::make_shared<Connection>();
  int64_t calls_ = 0, busy_ = 0;     // busy: connections with calls
  int64_t cut_ = 0, lingering_ = 0;  // connections that were cut; their calls
  Clock::time_point clogged_until_{};
  std::atomic<int64_t> unbegun_{0};  // calls that gRPC has made and that have not begun
  Clock::time_point looked_{}, flooded_since_{};
  int64_t own_open_ = 0;
};

}  // namespace spaid::server
