#include "kernels/mpi/heartbeat.h"

#include <sys/eventfd.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/mpi/heartbeat_wire.h"

namespace spaid::kernels::mpi {
namespace {

using std::chrono::milliseconds;
using wire::Fd;
using wire::Got;
using wire::Time;

constexpr milliseconds kGoodbye{1'000};  // until the others have closed, too
constexpr milliseconds kRetry{50};       // after all addresses have failed; after a failed accept
constexpr size_t kMostPending = 64;
// For so long a connection that has said nothing yet does not give way to others.
constexpr milliseconds kYields{200};

std::string Seconds(milliseconds time) {
  std::ostringstream text;
  text << static_cast<double>(time.count()) / 1000 << " s";
  return text.str();
}

std::string Named(int rank, const std::string& host) {
  return "rank " + std::to_string(rank) + " on " + host;
}

Status CheckOptions(const HeartbeatOptions& options) {
  const auto bad = [](const char* field, const std::string& text) {
    return Status(StatusCode::kInvalidArgument, "BAD_HEARTBEAT", text).At(field);
  };
  // A day, so that sums of them do not overflow.
  constexpr milliseconds kLeast{1}, kMost{86'400'000};
  if (options.every < kLeast || options.every > kMost) {
    return bad("every", "the time between two heartbeats must be 1 ms to a day");
  }
  if (options.silent < 3 * options.every || options.silent > kMost) {
    return bad("silent",
               "the time until silence is told must be at least three times the time between two "
               "heartbeats, and a day at most");
  }
  if (options.join < kLeast || options.join > kMost) {
    return bad("join", "the time for all ranks to join must be 1 ms to a day");
  }
  return {};
}

// A connection of a rank that is in.
struct Peer {
  Fd fd;
  int rank = 0;
  std::string host;
  Time heard;
};

// A connection at the door. `rank` is 0 until it has proved the secret.
struct Pending {
  Fd fd;
  Time since, until;
  std::string hello;
  int rank = 0;
  std::string host;
};

}  // namespace

struct Heartbeat::Door::Parts {
  wire::Listener listener;
  wire::Secret secret = {};
};

// All that happens on the heartbeat's thread, which alone uses what has no mutex.
class Heartbeat::Loop {
 public:
  Loop(const HeartbeatOptions& options, OnLost on_lost)
      : options_(options),
        on_lost_(std::move(on_lost)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Loop() { Leave(); }

  // Before Start: lets in ranks 1 to ranks - 1.
  void Gather(std::unique_ptr<Door::Parts> door, int ranks) {
    door_ = std::move(door);
    came_.assign(static_cast<size_t>(ranks), false);
    came_[0] = true;
    gathered_ = false;
    join_until_ = Clock::now() + options_.join;
  }

  // Before Start: rank 0, of those that joined.
  void Watch(Fd fd, int rank, std::string host) {
    peers_.push_back({std::move(fd), rank, std::move(host), Clock::now()});
  }

  Status Start() {
    if (!wake_.open()) return NoThread(wire::ErrorText(errno));
    // Signals are for the program's other threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status;
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error& error) {
      status = NoThread(error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
  }

  // Waits until all ranks have come, or will not.
  Status AwaitGathered() {
    std::unique_lock<std::mutex> lock(mutex_);
    gathered_changed_.wait(lock, [this] { return gathered_; });
    return gather_status_;
  }

  void Leave() {
    leaving_ = true;
    const uint64_t one = 1;
    // A full counter wakes as well.
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
    if (watcher_.load() == std::this_thread::get_id()) return;  // from OnLost
    const std::lock_guard<std::mutex> lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  static Status NoThread(const std::string& why) {
    return Status(
        StatusCode::kResourceExhausted, "NO_HEARTBEAT_THREAD",
        "the thread that watches the other ranks could not be started: " + why +
            "; raise the limits of threads and descriptors, or wait until there are some");
  }

  void Run() {
    watcher_ = std::this_thread::get_id();
    Time before = next_beat_ = Clock::now();
    if (door_) SeeWhoCame(before);  // one rank alone waits for nobody
    while (!leaving_) {
      const std::optional<Time> wake_at = NextEvent();
      const Time asked = Clock::now();
      Poll(wake_at ? wire::PollMs(asked, *wake_at) : -1);
      const Time now = Clock::now();
      if (wake_at) {
        PardonOwnSleep(now - before - std::max(*wake_at - asked, Clock::duration(0)), now);
      }
      before = now;
      ReadPending(now);
      if (door_ && pollfds_[1].revents != 0) Accept(now);
      ReadPeers(now);
      JudgeSilence(now);
      if (now >= next_beat_) {
        for (const Peer& peer : peers_) wire::Send(peer.fd.get(), {&wire::kBeat, 1});
        next_beat_ = now + options_.every;
      }
      if (door_) SeeWhoCame(now);
    }
    Goodbye();
  }

  // Nothing where there is nobody to wait for any more.
  std::optional<Time> NextEvent() const {
    std::optional<Time> next;
    const auto at = [&](Time time) { next = next ? std::min(*next, time) : time; };
    if (!peers_.empty()) at(next_beat_);
    for (const Peer& peer : peers_) {
      if (!lost_) at(std::max(peer.heard + options_.silent, judge_from_));
    }
    if (!door_) return next;
    const Time now = Clock::now();
    at(join_until_);
    for (const Pending& pending : pending_) {
      at(pending.until);
      // Then the door is open again.
      if (pending.rank == 0 && pending.since + kYields > now) at(pending.since + kYields);
    }
    if (accept_from_ > now) at(accept_from_);
    return next;
  }

  void Poll(int ms) {
    pollfds_.assign({{wake_.get(), POLLIN, 0}});
    if (door_) {
      const Time now = Clock::now();
      const bool accept = now >= accept_from_ &&
                          (pending_.size() < kMostPending || Yielding(now) != pending_.end());
      pollfds_.push_back({accept ? door_->listener.fd.get() : -1, POLLIN, 0});
      for (const Pending& pending : pending_) pollfds_.push_back({pending.fd.get(), POLLIN, 0});
    }
    first_peer_ = pollfds_.size();
    for (const Peer& peer : peers_) pollfds_.push_back({peer.fd.get(), POLLIN, 0});
    if (poll(pollfds_.data(), pollfds_.size(), ms) < 0) {
      for (pollfd& waits : pollfds_) waits.revents = 0;  // interrupted, or the kernel lacks memory
    }
  }

  // `late`: how much more time has passed since the last turn than this thread asked to sleep.
  void PardonOwnSleep(Clock::duration late, Time now) {
    if (late <= options_.every) return;
    judge_from_ = now + 2 * options_.every;
    join_until_ += late;
    for (Peer& peer : peers_) peer.heard += late;
    for (Pending& pending : pending_) pending.until += late;
  }

  // --- the door

  // The oldest connection that has said nothing for long enough to give way.
  std::vector<Pending>::iterator Yielding(Time now) {
    return std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
      return pending.rank == 0 && now >= pending.since + kYields;
    });
  }

  void Accept(Time now) {
    while (pending_.size() < kMostPending || Yielding(now) != pending_.end()) {
      Fd fd(accept4(door_->listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.open()) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // No descriptors, or no memory: a stranger's may serve a rank.
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
          const auto oldest = Yielding(now);
          if (oldest != pending_.end()) pending_.erase(oldest);
          accept_from_ = now + kRetry;
        }
        return;
      }
      if (pending_.size() >= kMostPending) pending_.erase(Yielding(now));
      wire::SendAtOnce(fd.get());
      pending_.push_back({std::move(fd), now, now + wire::kHandshake, {}, 0, {}});
    }
  }

  // In the order of their coming, so that a rank's first connection is in before its second asks.
  void ReadPending(Time now) {
    for (size_t i = 0; i < pending_.size();) {
      if (ReadOne(pending_[i], now) && now < pending_[i].until) {
        ++i;
      } else {
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  // False where the connection is done with at the door.
  bool ReadOne(Pending& pending, Time now) {
    for (;;) {
      char bytes[wire::kHelloHead + wire::kLongestHost];
      const size_t wanted = pending.rank > 0 ? 1 : HelloSize(pending.hello) - pending.hello.size();
      const wire::Received received = wire::Receive(pending.fd.get(), bytes, wanted);
      if (received.got == Got::kNothing) return true;
      if (received.got != Got::kBytes) return false;
      if (pending.rank > 0) {
        // A process that gave up before it was answered never sends this.
        const auto rank = static_cast<size_t>(pending.rank);
        if (bytes[0] != wire::kBeat || came_[rank]) return false;
        came_[rank] = true;
        peers_.push_back({std::move(pending.fd), pending.rank, std::move(pending.host), now});
        return false;
      }
      pending.hello.append(bytes, received.bytes);
      if (pending.hello.size() >= wire::kHelloHead && !Trusted(pending.hello)) return false;
      if (pending.hello.size() == HelloSize(pending.hello) && !Answer(pending)) return false;
    }
  }

  static size_t HelloSize(const std::string& hello) {
    if (hello.size() < wire::kHelloHead) return wire::kHelloHead;
    return wire::kHelloHead + static_cast<uint8_t>(hello[wire::kHelloHead - 1]);
  }

  bool Trusted(const std::string& hello) const {
    return hello.starts_with(wire::kHello) &&
           HelloSize(hello) <= wire::kHelloHead + wire::kLongestHost &&
           wire::SameSecret(door_->secret, std::string_view(hello).substr(wire::kHello.size(),
                                                                          sizeof(wire::Secret)));
  }

  bool Answer(Pending& pending) {
    uint32_t rank = 0;
    for (size_t i = 0; i < 4; ++i) {
      rank = rank << 8 |
             static_cast<uint8_t>(pending.hello[wire::kHello.size() + sizeof(wire::Secret) + i]);
    }
    const bool exists = rank > 0 && rank < came_.size();
    const char letter = !exists ? wire::kNoSuchRank : came_[rank] ? wire::kTaken : wire::kWelcome;
    const bool sent = wire::Send(pending.fd.get(),
                                 std::string(wire::kAnswer) + letter + wire::WithLength(own_host_));
    if (letter != wire::kWelcome) return false;
    pending.rank = static_cast<int>(rank);
    pending.until = join_until_ + wire::kHandshake;  // whoever has proved itself has time
    pending.host = wire::Printable(pending.hello.substr(wire::kHelloHead));
    return sent;
  }

  void SeeWhoCame(Time now) {
    std::string missing;
    int64_t count = 0;
    for (size_t rank = 1; rank < came_.size(); ++rank) {
      if (came_[rank]) continue;
      if (++count <= 20) missing += (count > 1 ? ", " : "") + std::to_string(rank);
    }
    if (count == 0) {
      EndGathering({});
    } else if (now >= join_until_) {
      if (count > 20) missing += " and " + std::to_string(count - 20) + " more";
      EndGathering(Status(
          StatusCode::kUnavailable, "RANK_MISSING",
          (count == 1 ? "rank " : "ranks ") + missing + " of " + std::to_string(came_.size()) +
              " did not reach rank 0 on " + own_host_ + " within " + Seconds(options_.join) +
              "; look whether they run, and let their hosts reach this one by TCP on any port"));
    }
  }

  void EndGathering(Status status) {
    if (!status.ok()) {
      leaving_ = true;
      // They may take themselves for joined already.
      for (Pending& pending : pending_) {
        if (pending.rank > 0) peers_.push_back({std::move(pending.fd), pending.rank, {}, {}});
      }
    }
    pending_.clear();
    door_.reset();
    const std::lock_guard<std::mutex> lock(mutex_);
    gather_status_ = std::move(status);
    gathered_ = true;
    gathered_changed_.notify_all();
  }

  // --- those that are in

  void ReadPeers(Time now) {
    // Those of this turn's poll alone: others came in since.
    const size_t polled = pollfds_.size() - first_peer_;
    std::vector<size_t> gone;
    for (size_t i = 0; i < polled; ++i) {
      if (pollfds_[first_peer_ + i].revents != 0 && !ReadPeer(peers_[i], now)) gone.push_back(i);
    }
    Forget(gone);
  }

  void Forget(const std::vector<size_t>& gone) {
    for (size_t i = gone.size(); i-- > 0;) {
      peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(gone[i]));
    }
  }

  // False where the peer is gone. All bytes that came before its end count before the end.
  bool ReadPeer(Peer& peer, Time now) {
    char bytes[256];
    for (int pieces = 0; pieces < 16; ++pieces) {  // the rest in the next turn
      const wire::Received received = wire::Receive(peer.fd.get(), bytes, sizeof(bytes));
      switch (received.got) {
        case Got::kNothing:
          return true;
        case Got::kClosed:
          Lost(peer, "has died (its connection was closed)");
          return false;
        case Got::kBroken:
          Lost(peer, "is out of reach (" + wire::ErrorText(received.error) + ")");
          return false;
        case Got::kBytes:
          break;
      }
      peer.heard = now;
      for (const char byte : std::string_view(bytes, received.bytes)) {
        if (byte == wire::kBeat) continue;
        if (byte == wire::kEnd && peer.rank == 0) {
          if (!lost_ && !leaving_ && on_lost_) on_lost_("");
          lost_ = true;
        } else if (byte != wire::kLeave) {
          Lost(peer, "has sent what is no heartbeat");
        } else if (door_) {
          Lost(peer, "has left before all ranks were there");
        }
        return false;
      }
    }
    return true;
  }

  void JudgeSilence(Time now) {
    if (lost_ || now < judge_from_) return;
    std::vector<size_t> gone;
    for (size_t i = 0; i < peers_.size() && gone.empty(); ++i) {
      if (now - peers_[i].heard < options_.silent) continue;
      Lost(peers_[i], "has been silent for " + Seconds(options_.silent));
      gone.push_back(i);
    }
    Forget(gone);
  }

  void Lost(const Peer& peer, const std::string& how) {
    if (lost_ || leaving_) return;
    lost_ = true;
    const std::string sentence = Named(peer.rank, peer.host) + " " + how;
    if (door_) {
      EndGathering(Status(StatusCode::kUnavailable, "RANK_LOST", sentence));
    } else if (on_lost_) {
      // Who waits for the lost one ends now, too: rank 0 says why, for all.
      for (const Peer& other : peers_) wire::Send(other.fd.get(), {&wire::kEnd, 1});
      on_lost_(sentence);
    }
  }

  // Tells all, and waits a little until they have closed, too: closed with bytes that nobody has
  // read, a connection may end before the other side reads what was sent last.
  void Goodbye() {
    for (const Peer& peer : peers_) {
      wire::Send(peer.fd.get(), {&wire::kLeave, 1});
      shutdown(peer.fd.get(), SHUT_WR);
    }
    const Time until = Clock::now() + kGoodbye;
    while (!peers_.empty() && Clock::now() < until) {
      std::vector<pollfd> waits;
      for (const Peer& peer : peers_) waits.push_back({peer.fd.get(), POLLIN, 0});
      if (poll(waits.data(), waits.size(), wire::PollMs(Clock::now(), until)) <= 0) continue;
      std::erase_if(peers_, [](const Peer& peer) {
        char bytes[256];
        const Got got = wire::Receive(peer.fd.get(), bytes, sizeof(bytes)).got;
        return got == Got::kClosed || got == Got::kBroken;
      });
    }
    peers_.clear();
  }

  const HeartbeatOptions options_;
  const OnLost on_lost_;
  const std::string own_host_ = wire::HostName();
  const Fd wake_;
  std::atomic<bool> leaving_ = false;

  std::vector<Peer> peers_;
  std::vector<pollfd> pollfds_;  // wake_, where there is a door it and pending_, peers_
  size_t first_peer_ = 0;        // of pollfds_
  Time next_beat_, judge_from_;
  bool lost_ = false;

  std::unique_ptr<Door::Parts> door_;  // null where all have come
  std::vector<Pending> pending_;       // by age
  std::vector<bool> came_;             // [rank]
  Time join_until_, accept_from_;

  std::mutex mutex_;
  std::condition_variable gathered_changed_;
  bool gathered_ = true;  // guarded by mutex_, as the next
  Status gather_status_;

  std::atomic<std::thread::id> watcher_;
  std::mutex join_mutex_;  // of thread_
  std::thread thread_;
};

Heartbeat::Door::Door(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Heartbeat::Door::Door(Door&& other) noexcept = default;
Heartbeat::Door& Heartbeat::Door::operator=(Door&& other) noexcept = default;
Heartbeat::Door::~Door() = default;

Result<Heartbeat::Door> Heartbeat::Door::Open() {
  auto parts = std::make_unique<Parts>();
  parts->listener = wire::Listen();
  if (!parts->listener.fd.open()) {
    return Status(
        StatusCode::kUnavailable, "CANNOT_LISTEN",
        "rank 0 cannot listen for the heartbeat of the other ranks: " + wire::ErrorText(errno) +
            "; let it open TCP sockets, and raise the limit of descriptors");
  }
  parts->secret = wire::NewSecret();
  return Door(std::move(parts));
}

std::string Heartbeat::Door::invitation() const {
  return wire::InvitationText(parts_->listener, parts_->secret);
}

Heartbeat::Heartbeat(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Heartbeat::~Heartbeat() = default;
void Heartbeat::Leave() { loop_->Leave(); }

Result<std::unique_ptr<Heartbeat>> Heartbeat::Wait(Door door, int ranks,
                                                   const HeartbeatOptions& options,
                                                   OnLost on_lost) {
  assert(door.parts_ != nullptr && ranks >= 1);
  if (Status status = CheckOptions(options); !status.ok()) return status;
  auto loop = std::make_unique<Loop>(options, std::move(on_lost));
  loop->Gather(std::move(door.parts_), ranks);
  if (Status status = loop->Start(); !status.ok()) return status;
  if (Status status = loop->AwaitGathered(); !status.ok()) return status;
  return std::unique_ptr<Heartbeat>(new Heartbeat(std::move(loop)));
}

Result<std::unique_ptr<Heartbeat>> Heartbeat::Join(const std::string& invitation, int rank,
                                                   const HeartbeatOptions& options,
                                                   OnLost on_lost) {
  assert(rank >= 1);
  if (Status status = CheckOptions(options); !status.ok()) return status;
  const std::optional<wire::Invitation> to = wire::Parse(invitation);
  if (!to) {
    return Status(StatusCode::kInvalidArgument, "BAD_INVITATION",
                  "the invitation to the heartbeat is not what rank 0 wrote; give this rank the "
                  "text of rank 0's door, unchanged, and run one build on all ranks")
        .At("invitation");
  }
  const std::string hello = wire::HelloOf(to->secret, rank);
  const Time until = Clock::now() + options.join;
  const auto count = to->addresses.size();
  // Each is tried at least once.
  const Clock::duration each =
      std::min<Clock::duration>(wire::kHandshake, Clock::duration(options.join) / count);
  std::vector<std::string> failures(count, "not tried");
  for (;;) {
    for (size_t i = 0; i < count && Clock::now() < until; ++i) {
      wire::Try result =
          wire::TryAddress(to->addresses[i], hello, std::min(until, Clock::now() + each));
      if (result.answer == wire::kWelcome) {
        auto loop = std::make_unique<Loop>(options, std::move(on_lost));
        loop->Watch(std::move(result.fd), 0, std::move(result.host));
        if (Status status = loop->Start(); !status.ok()) return status;
        return std::unique_ptr<Heartbeat>(new Heartbeat(std::move(loop)));
      }
      if (result.answer == wire::kTaken) {
        return Status(StatusCode::kFailedPrecondition, "RANK_TAKEN",
                      "rank 0 on " + result.host + " has another process as rank " +
                          std::to_string(rank) + "; give each process a rank of its own");
      }
      if (result.answer != 0) {
        return Status(StatusCode::kInvalidArgument, "NO_SUCH_RANK",
                      "rank 0 on " + result.host + " waits for no rank " + std::to_string(rank) +
                          "; give all ranks the same number of ranks")
            .At("rank");
      }
      failures[i] = std::move(result.failure);
    }
    if (Clock::now() >= until) break;
    wire::Pause(std::min(until, Clock::now() + kRetry));
  }
  std::string text = Named(rank, wire::HostName()) + " did not reach rank 0 within " +
                     Seconds(options.join) +
                     "; let hosts reach each other by TCP on any port. Tried were ";
  for (size_t i = 0; i < count; ++i) {
    text += (i > 0 ? "; " : "") + to->addresses[i].text + " (" + failures[i] + ")";
  }
  return Status(StatusCode::kUnavailable, "NO_RANK_0", std::move(text));
}

}  // namespace spaid::kernels::mpi
