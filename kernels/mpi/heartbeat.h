// Tells within seconds that a rank has died or that its host is cut off, which MPI does not: its
// calls wait for many minutes. Beside MPI, each rank r > 0 keeps one TCP connection to rank 0; both
// ends send a byte now and then, and watch for the other's.
//
//   rank 0                                            other ranks
//   auto door = Heartbeat::Door::Open();
//   ... tells all ranks door->invitation() ...        ... receives the text ...
//   auto beat = Heartbeat::Wait(*std::move(door),     auto beat = Heartbeat::Join(text, rank,
//                               ranks, {}, on_lost);                              {}, on_lost);
//   (*beat)->Leave();                                 (*beat)->Leave();
//
// A process that ends without Leave is told at once, as its kernel closes the connection (where a
// child that it forked keeps that open: after `silent`). A host that is cut off, or a process that
// is stopped, is told after `silent`.
//
// The secret of an invitation keeps out strangers and mix-ups of two daemons, not somebody who
// reads the network: it crosses it in plain text.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "kernels/base/status.h"

namespace spaid::kernels::mpi {

// The same on all ranks: one that beats less often than another expects is silent to it.
struct HeartbeatOptions {
  std::chrono::milliseconds every{1'000};    // between two bytes to each other end; at least 1 ms
  std::chrono::milliseconds silent{15'000};  // until silence is told; at least three times `every`
  std::chrono::milliseconds join{30'000};    // until all ranks have come; at least 1 ms
};

// One process's end of all its connections, with a thread that watches them. Thread-safe, but for
// the destructor.
//
// Silence of a peer is time in which this process could have heard it. Where the thread wakes up
// later than it asked to, by more than `every` (the process was stopped, the host slept or is
// overloaded), the time it lacked is not counted, and nobody is judged silent for another two
// `every`, in which peers that were stopped with this host beat again. So on a host that starves
// the thread for seconds at a time, silence is told later than after `silent`; deaths are not.
class [[gnu::visibility("default")]] Heartbeat {
 public:
  // Called once at most, on the heartbeat's thread, with a sentence that names the rank and its
  // host: "rank 2 on node7 has died (its connection was closed)", "rank 2 on node7 has been silent
  // for 15 s", or, where TCP gives up before that, "rank 2 on node7 is out of reach (Connection
  // It is empty on other ranks where rank 0 has lost one: rank 0 says so, and all end.
  // timed out)". Meanwhile this process does not beat, so that a call that takes `silent` looks
  // like silence to the others. It may call Leave; it must not destroy the heartbeat.
  using OnLost = std::function<void(const std::string& sentence)>;

  // Rank 0's listening socket, on all interfaces (IPv6 and IPv4, or IPv4 alone where there is no
  // IPv6) and a port of the kernel's choice. Strangers may connect: who does not prove the secret
  // within two seconds is closed, and those that say nothing give way to others. Thread-compatible.
  class Door {
   public:
    // UNAVAILABLE/CANNOT_LISTEN.
    static Result<Door> Open();
    Door(Door&& other) noexcept;
    Door& operator=(Door&& other) noexcept;
    ~Door();

    // Returns what the other ranks need to come in, one line of text: the port, a secret of 128
    // bits, and all addresses of this host, loopback last. Show it to nobody else.
    std::string invitation() const;

   private:
    friend class Heartbeat;
    struct [[gnu::visibility("hidden")]] Parts;
    explicit Door(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
  };

  // Rank 0: lets in ranks 1 to ranks - 1, which may have called Join before, and closes the door.
  //
  // UNAVAILABLE/RANK_MISSING names the ranks that did not come within options.join,
  // UNAVAILABLE/RANK_LOST the one that came and went before all were there. Then the others are
  // left in an orderly way, and nobody's OnLost is called. INVALID_ARGUMENT/BAD_HEARTBEAT: options
  // out of range. RESOURCE_EXHAUSTED/NO_HEARTBEAT_THREAD.
  static Result<std::unique_ptr<Heartbeat>> Wait(Door door, int ranks,
                                                 const HeartbeatOptions& options, OnLost on_lost);

  // Other ranks: comes in by the first address of the invitation at which rank 0 answers; tries
  // them in turn, two seconds each at most, for options.join.
  //
  // INVALID_ARGUMENT/BAD_INVITATION: not the text of a Door. UNAVAILABLE/NO_RANK_0: no address
  // answered; the text has each with its reason, a wrong secret being one. FAILED_PRECONDITION/
  // RANK_TAKEN: another process is this rank. INVALID_ARGUMENT/NO_SUCH_RANK, BAD_HEARTBEAT.
  // RESOURCE_EXHAUSTED/NO_HEARTBEAT_THREAD.
  static Result<std::unique_ptr<Heartbeat>> Join(const std::string& invitation, int rank,
                                                 const HeartbeatOptions& options, OnLost on_lost);

  ~Heartbeat();  // as Leave
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Tells the other ends that this one leaves, so that they stop watching it and call nothing, and
  // ends the thread; no call of OnLost begins or goes on after it returns, but for one that calls
  // Leave itself. Takes a second at most, where another end does not answer. May be called again.
  void Leave();

 private:
  class [[gnu::visibility("hidden")]] Loop;
  explicit Heartbeat(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace spaid::kernels::mpi
