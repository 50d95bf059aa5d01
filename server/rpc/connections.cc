#include "server/rpc/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/log.h"

namespace spaid::server {
namespace {

using Clock = Connections::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A client keeps to max_streams; those that it gave up may not be gone yet.
int64_t MaxCalls(const ConnectionLimits& limits) { return 2 * limits.max_streams + 128; }

// Calls given up before they asked for anything: so many at once, and so many a second for ever.
constexpr double kResetsAtOnce = 500, kResetsOfStrangerAtOnce = 200, kResetsPerSecond = 100;

// Bytes of a connection that gRPC has read and no call has taken. A call that has not come up yet
// on a busy machine may have sent much of its arrays.
constexpr double kUntakenOfConnection = 8 << 20, kUntakenWithoutCall = 256 << 10;
constexpr double kUntakenOfWaiting = 128 << 10, kMostUntakenOfWaiting = 8 << 20;
// More than what is allowed for a while: a few first uploads at once. Known ones have the total.
constexpr double kMostOverOfNewcomer = 16 << 20;
// A stranger's who has no call. Its window is narrow from its first 64 KiB on.
constexpr double kUntakenOfStranger = 96 << 10, kMostUntakenOfStranger = 192 << 10;
constexpr double kUntakenOfFeeding = kLookaheadBytes + (1 << 20);
constexpr double kWorthCutting = 4 << 20;
// The counting errs a little: by what goes on beside calls, and by large headers, within bounds.
constexpr double kForgivenPerSecond = 64 << 10, kForgivenOfStrangerPerSecond = 16 << 10;
constexpr double kForgivenOfCall = 4 << 10, kMostForgivenPerSecond = 2 << 20;
constexpr double kDroppablePerSecond = 16 << 20;
constexpr seconds kOverFor{2};  // a busy server is late with taking, too
constexpr milliseconds kStrangerOverFor{100}, kPerhapsOverFor{500};
// gRPC reads on and on, is behind with what came, and no call takes any of it; sooner where it is
// slow with that, for the bytes of arrays cost it next to nothing.
constexpr seconds kStuckFor{1};
constexpr milliseconds kSlowlyStuckFor{200};
constexpr uint64_t kReadSlowly = 2 << 20;  // bytes, in all that time
constexpr int kSlowReads = 8;
constexpr seconds kBrokenOffFor{5};  // then all is there that was on its way
// Windows of TCP, in bytes: of a stranger, of whom the daemon knows, and where arrays come. Small,
// since nothing that gRPC has read can be stopped; but one that is smaller than a segment, which on
// loopback is of 64 KiB, makes a sender wait for a fifth of a second each time.
constexpr int kStrangersWindow = 16 << 10, kKnownWindow = 64 << 10, kWideWindow = 4 << 20;
// The rest of a flood in gRPC is worked off before the next ones may flood: so many calls that have
// come up, and of those that have not a time by the bytes that no call took.
constexpr int64_t kClogged = 512;
constexpr milliseconds kCloggedByCut{20}, kMostCloggedByCut{200}, kMostClogged{1000};
constexpr double kCloggedMsByByte = 1e-3;

// While gRPC makes more calls than begin: a call begins when the thread that reads its connection
// is through with that, and with one that floods it never is. Each call takes 10 to 40 KB.
constexpr double kUntakenAtFlood = 64 << 10, kUntakenOfStrangerAtFlood = 32 << 10;
constexpr milliseconds kStuckAtFlood{50};
constexpr uint64_t kTakenAtFlood = 64 << 10;  // arrays: who only begins calls takes less

constexpr seconds kFreshFor{1};      // a new connection may be about to ask
constexpr seconds kIdleLeeway{30};   // gRPC closes idle connections itself, politely
constexpr seconds kIdleEnough{5};    // to give way to a newcomer
constexpr milliseconds kSearch{10};  // for one that does, not more often
constexpr size_t kCallBytes = 32;    // headers of a call that its client indexes, at the least

// "ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5" -> "1.2.3.4|5", "::1|5"; "" for others.
std::string NameOf(absl::string_view peer) {
  if (!absl::StartsWith(peer, "ipv4:") && !absl::StartsWith(peer, "ipv6:")) return "";
  peer.remove_prefix(5);
  const size_t colon = peer.rfind(':');
  if (colon == absl::string_view::npos) return "";
  absl::string_view host = peer.substr(0, colon);
  if (absl::StartsWith(host, "%5B")) host.remove_prefix(3);
  if (absl::StartsWith(host, "[")) host.remove_prefix(1);
  host = host.substr(0, host.find_first_of("%]"));  // the bracket, or the interface's name
  return absl::StrCat(host, "|", peer.substr(colon + 1));
}

struct Peer {
  std::string name, address;
  int port = 0;
  std::optional<std::array<uint8_t, 16>> bytes;
};

Peer PeerOf(const sockaddr* address) {
  Peer peer;
  peer.bytes = AddressBytes(address);
  if (!peer.bytes) return peer;
  const auto& b = *peer.bytes;
  char text[INET6_ADDRSTRLEN] = "";
  const bool v4 = std::all_of(b.begin(), b.begin() + 10, [](uint8_t x) { return x == 0; }) &&
                  b[10] == 0xff && b[11] == 0xff;
  inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? &b[12] : b.data(), text, sizeof text);
  // Both have the port at the same place.
  peer.port = ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
  peer.name = absl::StrCat(text, "|", peer.port);
  auto network = b;
  if (!v4) std::fill(network.begin() + 8, network.end(), 0);  // a /64 is one subscriber
  peer.address.assign(network.begin(), network.end());
  return peer;
}

bool IsLoopback(const std::array<uint8_t, 16>& address) {
  static const Cidr v4 = *Cidr::Parse("127.0.0.0/8"), v6 = *Cidr::Parse("::1");
  return v4.Contains(address) || v6.Contains(address);
}

}  // namespace

Connections::Connections(ConnectionLimits limits, Metrics* metrics)
    : limits_(std::move(limits)),
      metrics_(metrics),
      alarm_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      most_(limits_.max_connections) {}

Connections::~Connections() {
  for (const auto& [fd, connection] : by_fd_) close(fd);
  close(alarm_);
}

void Connections::LimitTo(int64_t most) {
  const std::lock_guard lock(mu_);
  most_ = std::min(most_, most);
}

int64_t Connections::most() const {
  const std::lock_guard lock(mu_);
  return most_;
}

int64_t Connections::size() const {
  const std::lock_guard lock(mu_);
  return static_cast<int64_t>(by_fd_.size());
}

int64_t Connections::calls() const {
  const std::lock_guard lock(mu_);
  return calls_;
}

int64_t Connections::cut() const {
  const std::lock_guard lock(mu_);
  return cut_;
}

// The oldest stranger gives way to a newcomer, or who has had no call for long.
bool Connections::MakeRoomLocked(Clock::time_point now) {
  Connection* last = nullptr;
  if (!fresh_.empty() && now - fresh_.front()->opened >= kFreshFor) {
    last = fresh_.front();
  } else if (now - searched_ >= kSearch) {
    searched_ = now;
    last = LongestIdleLocked(now);
  }
  if (last == nullptr) return false;
  CutLocked(*last, "room");
  return true;
}

// The longest idle connection of the address that has most; null: none is idle for long enough. A
// client that still needs it makes another.
Connection* Connections::LongestIdleLocked(Clock::time_point now) const {
  Connection* found = nullptr;
  int64_t most = 0;
  for (const auto& [fd, connection] : by_fd_) {
    Connection& c = *connection;
    if (c.cut || c.own || c.calls > 0 || now - c.idle_since < kIdleEnough) continue;
    const int64_t of_peer = per_address_.at(c.address);
    if (of_peer > most || (of_peer == most && c.idle_since < found->idle_since)) {
      found = &c;
      most = of_peer;
    }
  }
  return found;
}

void Connections::ExpectOwn(const sockaddr* address) {
  std::string name = PeerOf(address).name;
  const std::lock_guard lock(mu_);
  own_name_ = std::move(name);
}

int Connections::Open(int fd, const sockaddr* address, Clock::time_point now) {
  const Peer peer = PeerOf(address);
  const std::lock_guard lock(mu_);
  const bool own = !peer.name.empty() && peer.name == own_name_;
  if (own) own_name_.clear();
  const bool trusted = !peer.bytes || IsLoopback(*peer.bytes) ||
                       std::any_of(limits_.trusted.begin(), limits_.trusted.end(),
                                   [&](const Cidr& range) { return range.Contains(*peer.bytes); });
  const auto of_peer = per_address_.find(peer.address);
  const char* refused = nullptr;
  int watched = -1;
  if (!own && !trusted && of_peer != per_address_.end() &&
      of_peer->second >= limits_.max_per_peer) {
    refused = "peer";
  } else if (!own && static_cast<int64_t>(by_fd_.size()) - own_open_ >= most_ &&
             !MakeRoomLocked(now)) {
    refused = "total";
  }
  if (refused == nullptr) {
    watched = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (watched < 0) refused = "descriptors";
  }
  if (refused != nullptr) {
    metrics_->ConnectionRefused(refused);
    Log(LogLevel::kWarning, "connection_refused", {{"peer", peer.name}, {"limit", refused}});
    return -1;
  }
  auto connection = std::make_shared<Connection>();
  connection->name = peer.name;
  connection->address = peer.address;
  connection->fd = watched;
  connection->own = own;
  if (peer.bytes)
    setsockopt(watched, IPPROTO_TCP, TCP_WINDOW_CLAMP, &kStrangersWindow, sizeof(int));
  connection->opened = connection->idle_since = connection->resets_at = connection->moved = now;
  by_fd_[watched] = connection;
  // A socket that is closed, and whose end we have not seen yet, may have had the same port.
  if (!peer.name.empty()) by_name_[peer.name] = connection;
  if (own) {
    ++own_open_;
  } else {
    ++per_address_[peer.address];
    connection->fresh = true;
    connection->in_fresh = fresh_.insert(fresh_.end(), connection.get());
  }
  return watched;
}

void Connections::Closed(int watched) {
  const std::lock_guard lock(mu_);
  const auto it = by_fd_.find(watched);
  if (it == by_fd_.end()) return;
  ForgetLocked(std::shared_ptr<Connection>(it->second));
}

void Connections::ForgetLocked(const std::shared_ptr<Connection>& connection) {
  by_fd_.erase(connection->fd);
  close(std::exchange(connection->fd, -1));
  if (const auto it = by_name_.find(connection->name);
      it != by_name_.end() && it->second == connection) {
    by_name_.erase(it);
  }
  NotFreshLocked(*connection);
  if (connection->own) {
    --own_open_;
  } else if (const auto it = per_address_.find(connection->address); --it->second == 0) {
    per_address_.erase(it);
  }
}

void Connections::NotFreshLocked(Connection& connection) {
  if (std::exchange(connection.fresh, false)) fresh_.erase(connection.in_fresh);
}

void Connections::CutLocked(Connection& connection, std::string_view why) {
  if (connection.cut || connection.fd < 0) return;
  connection.cut = true;
  ++cut_;
  lingering_ += connection.calls;
  if (why != "room" && why != "idle") {
    const auto now = Clock::now();
    const milliseconds worth(
        static_cast<int64_t>(std::max(0.0, connection.untaken) * kCloggedMsByByte));
    clogged_until_ =
        std::min(std::max(now, clogged_until_) + kCloggedByCut + std::min(worth, kMostCloggedByCut),
                 now + kMostClogged);
  }
  NotFreshLocked(connection);
  // Not shutdown(2): what the kernel holds already would still be read. This drops it, too.
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  if (connect(connection.fd, &nobody, sizeof nobody) != 0) shutdown(connection.fd, SHUT_RDWR);
  metrics_->ConnectionCut(why);
  Log(LogLevel::kWarning, "connection_cut",
      {{"peer", connection.name},
       {"why", why},
       {"calls", connection.calls},
       {"untaken_bytes", static_cast<int64_t>(connection.untaken)}});
}

bool Connections::OnlySends(const Connection& connection) {
  return !connection.known && connection.calls == 0;
}

double Connections::AllowanceLocked(const Connection& connection) const {
  const double feeding =
      static_cast<double>(connection.feeding + connection.broken_off) * kUntakenOfFeeding;
  if (flooded()) {
    return (connection.known ? kUntakenAtFlood : kUntakenOfStrangerAtFlood) + feeding;
  }
  if (OnlySends(connection)) return kUntakenOfStranger + feeding;
  const double waiting =
      kUntakenOfWaiting * static_cast<double>(connection.calls - connection.asked);
  const bool may_have_call = connection.calls > 0 || unbegun_ > 0;
  return (may_have_call ? kUntakenOfConnection : kUntakenWithoutCall) +
         std::min(waiting, kMostUntakenOfWaiting) + feeding;
}

bool Connections::clogged() const {
  const std::lock_guard lock(mu_);
  return lingering_ > kClogged || flooded() || Clock::now() < clogged_until_;
}

void Connections::Look(Clock::time_point now) {
  const std::lock_guard lock(mu_);
  const double span =
      std::min(0.1, std::chrono::duration<double>(now - std::exchange(looked_, now)).count());
  const bool flood = flooded();
  if (!flood) {
    flooded_since_ = {};
  } else if (flooded_since_ == Clock::time_point{}) {
    flooded_since_ = now;
  }
  double total = 0, all = 0, most_held = 0;  // all: with what waits to be read
  Connection* most = nullptr;
  for (const auto& [fd, owner] : by_fd_) {
    Connection& c = *owner;
    if (c.cut) continue;
    if (c.calls == 0 && now - c.idle_since > limits_.idle + kIdleLeeway) {
      CutLocked(c, "idle");
      continue;
    }
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;  // unix:
    int queued = 0;  // received, and not read by gRPC
    (void)ioctl(fd, SIOCINQ, &queued);
    const uint64_t read = info.tcpi_bytes_received - static_cast<uint64_t>(std::max(queued, 0));
    const uint64_t taken = c.taken_.load(std::memory_order_relaxed);
    if (flood ? taken - c.counted >= kTakenAtFlood : queued == 0 || taken != c.counted) {
      c.moved = now;
      c.read_when_moved = read;
      c.slow_reads = 0;
    } else if (read != c.received && ++c.slow_reads >= kSlowReads &&
               (now - c.moved > kStuckFor ||
                (now - c.moved > kSlowlyStuckFor && read - c.read_when_moved < kReadSlowly) ||
                (flood && now - std::max(c.moved, flooded_since_) > kStuckAtFlood))) {
      CutLocked(c, "stuck");
      continue;
    }
    c.untaken += static_cast<double>(static_cast<int64_t>(read - std::exchange(c.received, read))) -
                 static_cast<double>(taken - std::exchange(c.counted, taken));
    if (c.broken_off > 0 && now - c.broken_off_at > kBrokenOffFor) {
      const double dropped =
          std::min({c.untaken, c.droppable,
                    static_cast<double>(std::exchange(c.broken_off, 0)) * kUntakenOfFeeding});
      c.droppable -= dropped;
      c.untaken -= dropped;
    }
    c.droppable = std::min(c.droppable + kDroppablePerSecond * span, Connection::kDroppable);
    const auto begun = static_cast<double>(std::exchange(c.begun, 0));
    const double forgiven = c.known ? kForgivenPerSecond * span + begun * kForgivenOfCall
                                    : kForgivenOfStrangerPerSecond * span;
    c.untaken = std::max(0.0, c.untaken - std::min(forgiven, kMostForgivenPerSecond * span));
    const double allowance = AllowanceLocked(c);
    if (c.untaken <= allowance) {
      c.over_since = {};
    } else if (c.over_since == Clock::time_point{}) {
      c.over_since = now;
    }
    // A call of its own may be about to begin, if anybody's is.
    const bool only_sends = OnlySends(c), for_sure = only_sends && unbegun_ <= 0;
    const double most_over = for_sure     ? kMostUntakenOfStranger - kUntakenOfStranger
                             : only_sends ? kUntakenOfFeeding - kUntakenOfStranger
                                          : kMostOverOfNewcomer;
    if (c.untaken > allowance && (flood || (!c.known && c.untaken > allowance + most_over) ||
                                  now - c.over_since > (for_sure     ? kStrangerOverFor
                                                        : only_sends ? kPerhapsOverFor
                                                                     : kOverFor))) {
      CutLocked(c, "bytes");
      continue;
    }
    total += c.untaken;
    const double held = c.untaken + static_cast<double>(c.unread_.load(std::memory_order_relaxed));
    all += held;
    if (held > most_held) {
      most = &c;
      most_held = held;
    }
  }
  if (all > static_cast<double>(limits_.max_bytes) && most_held > kWorthCutting) {
    CutLocked(*most, "bytes");
    total -= most->untaken;
  }
  untaken_bytes_ = static_cast<int64_t>(total);
}

void Connections::Made() {
  if (++unbegun_ != kFlood + 1) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(alarm_, &one, sizeof one);
}

Connections::Call Connections::Begin(const std::string& peer) {
  --unbegun_;
  const std::string name = NameOf(peer);
  const std::lock_guard lock(mu_);
  const auto it = name.empty() ? by_name_.end() : by_name_.find(name);
  Call call{.connection = it == by_name_.end() ? nameless_ : it->second};
  Connection& c = *call.connection;
  c.Took(kCallBytes);
  ++c.begun;
  if (c.calls++ == 0) ++busy_;
  ++calls_;
  if (c.cut) ++lingering_;
  call.served = !c.cut;
  if (&c != nameless_.get() && c.calls > MaxCalls(limits_)) {
    CutLocked(c, "resets");
    call.served = false;
  }
  if (calls_ > limits_.max_calls && c.calls > limits_.max_calls / busy_) {
    // Even to refuse takes memory until gRPC is through with it.
    if (calls_ > 2 * limits_.max_calls) CutLocked(c, "calls");
    call.served = false;
  }
  return call;
}

void Connections::Asked(Connection& connection, bool feeds) {
  const std::lock_guard lock(mu_);
  ++connection.asked;
  if (!feeds) return;
  ++connection.feeding;
  SetWindowLocked(connection);
}

void Connections::Fed(Connection& connection, bool whole) {
  const std::lock_guard lock(mu_);
  --connection.feeding;
  SetWindowLocked(connection);
  if (whole) return;
  ++connection.broken_off;
  connection.broken_off_at = Clock::now();
}

void Connections::Known(Connection& connection) {
  const std::lock_guard lock(mu_);
  if (std::exchange(connection.known, true)) return;
  NotFreshLocked(connection);
  SetWindowLocked(connection);
}

void Connections::SetWindowLocked(Connection& connection) {
  const int window = !connection.known         ? kStrangersWindow
                     : connection.feeding == 0 ? kKnownWindow
                                               : kWideWindow;
  if (connection.fd < 0 || connection.cut || connection.window == window) return;
  connection.window = window;
  setsockopt(connection.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &window, sizeof window);
}

void Connections::End(Connection& connection, bool asked) {
  const std::lock_guard lock(mu_);
  --calls_;
  if (connection.cut) --lingering_;
  if (--connection.calls == 0) {
    --busy_;
    connection.idle_since = Clock::now();
  }
  if (asked) {
    --connection.asked;
    return;
  }
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - connection.resets_at).count();
  connection.resets = std::max(0.0, connection.resets - since * kResetsPerSecond) + 1;
  connection.resets_at = now;
  if (connection.resets > (connection.known ? kResetsAtOnce : kResetsOfStrangerAtOnce)) {
    CutLocked(connection, "resets");
  }
}

}  // namespace spaid::server
