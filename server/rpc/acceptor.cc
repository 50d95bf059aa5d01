#include "server/rpc/acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/address.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

using Clock = Connections::Clock;
using std::chrono::milliseconds;

constexpr int64_t kFewDescriptors = 4096;
constexpr int64_t kOtherDescriptors = 40;  // 15 at rest, files, and the self-probe's two
constexpr milliseconds kTryAgainAfter{100};
constexpr int kAcceptsAtOnce = 64;  // then hang-ups have their turn

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return MakeError(absl::StatusCode::kUnavailable, reason::kCannotListen,
                   absl::StrCat("cannot listen on ", address, " (", why,
                                "): the port is taken, or the address is not one of this "
                                "machine; choose another --address (port 0 picks a free one)"));
}

int OpenReserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

int Bound(const sockaddr* address, socklen_t size, bool both_families) {
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  // Not SO_REUSEPORT: two daemons on one port would share its clients silently.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (address->sa_family == AF_INET6) {
    const int& only = both_families ? off : on;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  if (bind(fd, address, size) != 0 || listen(fd, SOMAXCONN) != 0) {
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
  }
  return fd;
}

void SetPort(sockaddr_storage* address, uint16_t port) {
  // Both families have it at the same place.
  reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
}

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Every address that the host's name stands for, all on one port.
absl::StatusOr<std::vector<int>> ListenOnHost(const std::string& text, HostPort host) {
  host.host = std::string(absl::StripSuffix(absl::StripPrefix(host.host, "["), "]"));
  // A wildcard stands for both families, where the machine has both.
  const bool any = host.host == "0.0.0.0" || host.host == "::";
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  for (const char* name : {any ? "::" : host.host.c_str(), any ? "0.0.0.0" : ""}) {
    if (*name == '\0') break;
    if (const int error = getaddrinfo(name, nullptr, &hints, &found); error != 0) {
      return CannotListen(text, gai_strerror(error));
    }
    std::vector<int> listeners;
    int why = 0, port = host.port;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      sockaddr_storage address{};
      std::memcpy(&address, a->ai_addr, a->ai_addrlen);
      SetPort(&address, static_cast<uint16_t>(port));
      const int fd = Bound(reinterpret_cast<sockaddr*>(&address), a->ai_addrlen, any);
      if (fd >= 0) {
        listeners.push_back(fd);
        port = PortOf(fd);
      } else if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) {
        why = errno;
      } else if (why == 0) {
        why = errno;
      }
    }
    freeaddrinfo(found);
    // One that is taken is none the less taken where another one is free.
    const bool taken = why == EADDRINUSE || why == EACCES;
    if (!listeners.empty() && !taken) return listeners;
    for (const int fd : listeners) close(fd);
    if (!any || taken) return CannotListen(text, std::strerror(why));
  }
  return CannotListen(text, "no such address");
}

// unix:PATH, unix:///PATH or unix-abstract:NAME.
absl::StatusOr<int> ListenOnUnix(const std::string& text, SocketFile* file) {
  const bool abstract = absl::StartsWith(text, "unix-abstract:");
  std::string name = text.substr(text.find(':') + 1);
  if (!abstract && absl::StartsWith(name, "//")) name = name.substr(2);
  if (name.empty() || name.size() >= sizeof sockaddr_un().sun_path) {
    return CannotListen(text, "the path is empty or too long");
  }
  if (abstract) name.insert(name.begin(), '\0');
  const int fd = ListenOnFile(name, SOCK_STREAM, std::nullopt, file);
  if (fd < 0) return CannotListen(text, std::strerror(errno));
  return fd;
}

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  const auto have = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
  if (have < kFewDescriptors) {
    Log(LogLevel::kWarning, "few_descriptors",
        {{"limit", have},
         {"connections", ConnectionsFor(have)},
         {"text", "raise the hard limit of open files (LimitNOFILE of systemd, ulimit -Hn)"}});
  }
  return have;
}

int64_t ConnectionsFor(int64_t descriptors) {
  return std::max<int64_t>(1, (descriptors - kOtherDescriptors) / 2);
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const std::string& address,
                                                           Connections* connections) {
  std::vector<int> listeners;
  SocketFile file;
  std::string picked = address;
  if (absl::StartsWith(address, "unix")) {
    ASSIGN_OR_RETURN(const int fd, ListenOnUnix(address, &file));
    listeners.push_back(fd);
  } else {
    const auto host = ParseHostPort(address);
    if (!host) return CannotListen(address, "not HOST:PORT");
    ASSIGN_OR_RETURN(listeners, ListenOnHost(address, *host));
    picked = absl::StrCat(host->host, ":", PortOf(listeners.front()));
  }
  return std::unique_ptr<Acceptor>(
      new Acceptor(std::move(picked), std::move(listeners), std::move(file), connections));
}

Acceptor::Acceptor(std::string address, std::vector<int> listeners, SocketFile file,
                   Connections* connections)
    : address_(std::move(address)),
      listeners_(std::move(listeners)),
      file_(std::move(file)),
      connections_(connections),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      reserve_(OpenReserve()) {}

sockaddr_storage Acceptor::listens_on() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listeners_.front(), reinterpret_cast<sockaddr*>(&address), &size);
  return address;
}

Acceptor::~Acceptor() {
  Stop();
  for (const int fd : {epoll_, stop_, reserve_}) {
    if (fd >= 0) close(fd);
  }
}

void Acceptor::Start(std::function<void(int, int)> handle) {
  handle_ = std::move(handle);
  epoll_event event{.events = EPOLLIN, .data = {.fd = stop_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, stop_, &event);
  for (const int fd : listeners_) {
    event.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  thread_ = std::thread([this] { Run(); });
  watch_ = std::thread([this] { Watch(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof one);
    thread_.join();
    watch_.join();
  }
  RemoveSocketFile(std::exchange(file_, {}));
  for (const int fd : std::exchange(listeners_, {})) close(fd);
}

void Acceptor::Arm(bool on) {
  for (const int fd : listeners_) {
    epoll_event event{.events = on ? static_cast<uint32_t>(EPOLLIN) : 0, .data = {.fd = fd}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
  }
  paused_ = !on;
}

void Acceptor::Run() {
  auto next_try = Clock::now() + kTryAgainAfter;
  epoll_event events[64];
  for (;;) {
    const auto wait = paused_ ? Connections::kLookEvery : kTryAgainAfter;
    const int count = epoll_wait(epoll_, events, std::size(events), static_cast<int>(wait.count()));
    const auto now = Clock::now();
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_) return;
      if (std::find(listeners_.begin(), listeners_.end(), fd) != listeners_.end()) {
        Accept(fd, now);
      } else if (events[i].events & EPOLLHUP) {
        // First: the socket outlives our descriptor of it, and so would its place in the set.
        epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
        connections_->Closed(fd);
      }
    }
    if (now >= next_try) {
      next_try = now + kTryAgainAfter;
      if (reserve_ < 0) reserve_ = OpenReserve();
    }
    if (paused_ && reserve_ >= 0 && !connections_->clogged()) Arm(true);
  }
}

// Looks at what connections cost, and cuts. Before all others, where the system lets it: under a
// flood it is what ends it.
void Acceptor::Watch() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -10);
  pollfd events[] = {{.fd = stop_, .events = POLLIN, .revents = 0},
                     {.fd = connections_->alarm(), .events = POLLIN, .revents = 0}};
  for (;;) {
    const auto wait =
        connections_->flooded() ? Connections::kLookAtFloodEvery : Connections::kLookEvery;
    poll(events, std::size(events), static_cast<int>(wait.count()));
    if (events[0].revents != 0) return;
    uint64_t alarms = 0;
    if (events[1].revents != 0) (void)!read(events[1].fd, &alarms, sizeof alarms);
    connections_->Look(Clock::now());
  }
}

// Takes the first of the queue by the descriptor that is kept for it, and hangs up.
bool Acceptor::AcceptOnReserve(int listener) {
  if (reserve_ < 0) return false;
  close(std::exchange(reserve_, -1));
  const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) close(fd);
  reserve_ = OpenReserve();
  return fd >= 0;
}

void Acceptor::Accept(int listener, Clock::time_point now) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (connections_->clogged()) return Arm(false);
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int fd =
        accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        Log(LogLevel::kWarning, "no_descriptors", {{"error", std::strerror(errno)}});
        if (!AcceptOnReserve(listener)) return Arm(false);  // until the next look
      }
      continue;  // that one is gone
    }
    const int watched = connections_->Open(fd, reinterpret_cast<sockaddr*>(&peer), now);
    if (watched < 0) {
      close(fd);
      continue;
    }
    epoll_event event{.events = EPOLLET, .data = {.fd = watched}};  // hang-ups always come
    epoll_ctl(epoll_, EPOLL_CTL_ADD, watched, &event);
    handle_(listener, fd);
  }
}

}  // namespace spaid::server
