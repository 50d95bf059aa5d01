#include "server/ops/http_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace spaid::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kText[] = "text/plain; charset=utf-8";
// After an answer, for what the client still sends to arrive before the connection goes: bytes that
// meet a closed socket would take the answer away from it.
constexpr std::chrono::milliseconds kLinger{1000};
constexpr size_t kMaxDiscarded = 2 << 20;
// Without a descriptor for the next connection, the listener rests.
constexpr std::chrono::milliseconds kRest{100};

// A descriptor, closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

const char* Phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

HttpResponse Refusal(int status, const char* text) {
  return {.status = status, .type = kText, .body = text};
}

// A page holds no script, and a browser is to run none, fetch nothing for it, and show it in no
// other page.
constexpr char kSafeHeaders[] =
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n"
    "Connection: close\r\n";

std::string Serialize(const HttpResponse& response, bool with_body) {
  return absl::StrCat("HTTP/1.1 ", response.status, " ", Phrase(response.status), "\r\n",
                      kSafeHeaders, "Content-Type: ", response.type,
                      "\r\nContent-Length: ", response.body.size(), "\r\n", response.headers,
                      "\r\n", with_body ? response.body : std::string());
}

struct Connection {
  // It asks; its page is being made; takes it; has all of it, and may still send.
  enum class Phase { kReading, kWaiting, kWriting, kLingering };
  Descriptor fd;
  Phase phase = Phase::kReading;
  Clock::time_point until;
  int64_t id = 0;
  std::string bytes;     // the head so far; then the rest of the answer
  size_t discarded = 0;  // bytes after the head
  bool head_only = false;
};

}  // namespace

class HttpServer::Loop {
 public:
  Loop(Descriptor listener, int port, HttpOptions options, Pages pages)
      : port_(port), options_(options), pages_(std::move(pages)), listener_(std::move(listener)) {}

  absl::Status Start() {
    wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (wake_.get() < 0 || spare_.get() < 0) return absl::UnavailableError(std::strerror(errno));
    poller_ = std::thread([this] { Run(); });
    maker_ = std::thread([this] { Make(); });
    return absl::OkStatus();
  }

  ~Loop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    asked_.notify_all();
    Wake();
    if (poller_.joinable()) poller_.join();
    if (maker_.joinable()) maker_.join();
  }

  int port() const { return port_; }

  HttpFigures figures() const {
    return {.open = open_.load(),
            .limit = options_.max_connections,
            .crowded_out = crowded_out_.load(),
            .timed_out = timed_out_.load(),
            .too_large = too_large_.load()};
  }

 private:
  struct Asked {
    int64_t id = 0;
    HttpRequest request;
  };
  struct Made {
    int64_t id = 0;
    HttpResponse response;
  };

  void Wake() {
    const uint64_t one = 1;
    // Fails only where it is full of wakes.
    if (write(wake_.get(), &one, sizeof(one)) < 0) return;
  }

  // The maker: pages in the order of their requests.
  void Make() {
    std::unique_lock lock(mutex_);
    while (true) {
      asked_.wait(lock, [this] { return stop_ || !to_make_.empty(); });
      if (stop_) return;
      Asked asked = std::move(to_make_.front());
      to_make_.pop_front();
      lock.unlock();
      Made made{asked.id, pages_.make(asked.request)};
      lock.lock();
      made_.push_back(std::move(made));
      Wake();
    }
  }

  // The poller: everything below.
  void Run() {
    std::vector<pollfd> fds;
    while (true) {
      fds.clear();
      fds.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
      const bool resting = Clock::now() < resting_until_;
      fds.push_back({.fd = resting ? -1 : listener_.get(), .events = POLLIN, .revents = 0});
      for (const Connection& c : connections_) fds.push_back(Wanted(c));
      if (poll(fds.data(), fds.size(), PollTimeout()) < 0 && errno != EINTR) {
        std::this_thread::sleep_for(kRest);  // out of memory: later
      }
      if ((fds[0].revents & POLLIN) != 0) {
        uint64_t wakes = 0;
        if (read(wake_.get(), &wakes, sizeof(wakes)) < 0) wakes = 0;
      }
      size_t k = 2;
      for (auto c = connections_.begin(); k < fds.size(); ++k) {
        const auto next = std::next(c);
        if (fds[k].revents != 0 && !Serve(*c)) Close(c);
        c = next;
      }
      if (!TakeMade()) return;
      CloseLate();
      if ((fds[1].revents & POLLIN) != 0) Accept();
    }
  }

  static pollfd Wanted(const Connection& c) {
    switch (c.phase) {
      case Connection::Phase::kLingering:
      case Connection::Phase::kReading:
        return {.fd = c.fd.get(), .events = POLLIN, .revents = 0};
      case Connection::Phase::kWriting:
        return {.fd = c.fd.get(), .events = POLLOUT, .revents = 0};
      case Connection::Phase::kWaiting:
        break;
    }
    return {.fd = -1, .events = 0, .revents = 0};
  }

  int PollTimeout() const {
    auto first = Clock::time_point::max();
    if (Clock::now() < resting_until_) first = resting_until_;
    for (const Connection& c : connections_) {
      if (c.phase != Connection::Phase::kWaiting) first = std::min(first, c.until);
    }
    if (first == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now());
    return static_cast<int>(std::max<int64_t>(left.count(), 0));
  }

  // Answers go out to those who still wait. False: the server ends.
  bool TakeMade() {
    std::vector<Made> made;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return false;
      made.swap(made_);
    }
    for (const Made& page : made) {
      const auto c = std::find_if(connections_.begin(), connections_.end(),
                                  [&](const Connection& each) { return each.id == page.id; });
      if (c != connections_.end() && !Answer(*c, page.response)) Close(c);
    }
    return true;
  }

  void Accept() {
    // Some at a time: what they ask for is read in between.
    for (int64_t k = 0; k < std::max<int64_t>(options_.max_connections / 4, 1); ++k) {
      Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd.get() < 0) {
        const bool out_of_descriptors = errno == EMFILE || errno == ENFILE;
        if (!out_of_descriptors) {
          // ECONNABORTED and the like: that one is gone, the next may be there.
          if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) return;
          continue;
        }
        // One is freed: by who gives way, or else the spare one.
        if (!connections_.empty()) {
          CloseFirstToGiveWay();
        } else if (spare_.get() >= 0) {
          spare_ = Descriptor();
        } else {
          resting_until_ = Clock::now() + kRest;
          return;
        }
        continue;
      }
      if (static_cast<int64_t>(connections_.size()) >= options_.max_connections) {
        CloseFirstToGiveWay();
      }
      Connection c;
      c.fd = std::move(fd);
      c.until = Clock::now() + options_.timeout;
      c.id = ++last_id_;
      connections_.push_back(std::move(c));
      open_.store(static_cast<int64_t>(connections_.size()));
      // Serve it now if its request has come: in a flood it may have given way before it is polled.
      if (const auto last = std::prev(connections_.end()); !Serve(*last)) Close(last);
    }
  }

  // The oldest of those that have their answer, else the oldest: a probe is young, and soon done.
  void CloseFirstToGiveWay() {
    auto c = std::find_if(connections_.begin(), connections_.end(), [](const Connection& each) {
      return each.phase == Connection::Phase::kLingering;
    });
    if (c == connections_.end()) {
      c = connections_.begin();
      ++crowded_out_;
    }
    Close(c);
  }

  void Close(std::list<Connection>::iterator c) {
    if (c->phase == Connection::Phase::kWaiting) {
      std::lock_guard lock(mutex_);
      std::erase_if(to_make_, [&](const Asked& asked) { return asked.id == c->id; });
    }
    connections_.erase(c);
    open_.store(static_cast<int64_t>(connections_.size()));
    if (spare_.get() < 0) spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  void CloseLate() {
    const auto now = Clock::now();
    for (auto c = connections_.begin(); c != connections_.end();) {
      const auto next = std::next(c);
      if (c->phase != Connection::Phase::kWaiting && c->until <= now) {
        if (c->phase != Connection::Phase::kLingering) ++timed_out_;
        const bool asking = c->phase == Connection::Phase::kReading && !c->bytes.empty();
        if (!asking || !Answer(*c, Refusal(408, "the request took too long\n"))) Close(c);
      }
      c = next;
    }
  }

  // Goes on with what a connection is at. False: it is over.
  bool Serve(Connection& c) {
    switch (c.phase) {
      case Connection::Phase::kReading:
        return Read(c);
      case Connection::Phase::kWriting:
        return Send(c);
      case Connection::Phase::kLingering:
        return Discard(c);
      case Connection::Phase::kWaiting:
        break;
    }
    return true;
  }

  bool Read(Connection& c) {
    std::array<char, 4096> buffer;
    while (true) {
      const ssize_t count = recv(c.fd.get(), buffer.data(), buffer.size(), 0);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      if (count == 0) return false;
      c.bytes.append(buffer.data(), static_cast<size_t>(count));
      const absl::string_view allowed =
          absl::string_view(c.bytes).substr(0, options_.max_head_bytes);
      if (const auto head = ParseHttpHead(allowed)) return Ask(c, *head);
      if (c.bytes.size() > options_.max_head_bytes) {
        ++too_large_;
        return Answer(c, Refusal(431, "a request's head is limited to 16 KiB\n"));
      }
    }
  }

  bool Ask(Connection& c, const HttpHead& head) {
    if (head.error != 0) {
      return Answer(c, Refusal(head.error, "this is no request that is understood here\n"));
    }
    const HttpRequest& request = head.request;
    if (request.method != "GET" && request.method != "HEAD") {
      HttpResponse refusal = Refusal(405, "this port is read only\n");
      refusal.headers = "Allow: GET, HEAD\r\n";
      return Answer(c, refusal);
    }
    c.head_only = request.method == "HEAD";
    if (const auto response = pages_.at_once(request)) return Answer(c, *response);
    c.phase = Connection::Phase::kWaiting;
    {
      std::lock_guard lock(mutex_);
      to_make_.push_back({c.id, request});
    }
    asked_.notify_one();
    return true;
  }

  bool Answer(Connection& c, const HttpResponse& response) {
    c.bytes = Serialize(response, !c.head_only);
    c.phase = Connection::Phase::kWriting;
    c.until = Clock::now() + options_.timeout;
    return Send(c);
  }

  bool Send(Connection& c) {
    size_t sent = 0;
    while (sent < c.bytes.size()) {
      const ssize_t count =
          send(c.fd.get(), c.bytes.data() + sent, c.bytes.size() - sent, MSG_NOSIGNAL);
      if (count < 0) {
        if (errno == EINTR) continue;
        c.bytes.erase(0, sent);
        return errno == EAGAIN;
      }
      sent += static_cast<size_t>(count);
    }
    c.bytes.clear();
    shutdown(c.fd.get(), SHUT_WR);
    c.phase = Connection::Phase::kLingering;
    c.until = Clock::now() + kLinger;
    return Discard(c);
  }

  // Until the client has closed, too, or its time is over, or it sends on and on.
  static bool Discard(Connection& c) {
    std::array<char, 4096> buffer;
    // A part at a time, so that who sends without end keeps nobody else waiting.
    for (int k = 0; k < 16; ++k) {
      const ssize_t count = recv(c.fd.get(), buffer.data(), buffer.size(), 0);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      c.discarded += static_cast<size_t>(count);
      if (count == 0 || c.discarded > kMaxDiscarded) return false;
    }
    return true;
  }

  const int port_;
  const HttpOptions options_;
  const Pages pages_;
  // The poller's alone.
  Descriptor listener_, wake_, spare_;
  std::list<Connection> connections_;  // the oldest first
  int64_t last_id_ = 0;
  Clock::time_point resting_until_{};

  std::atomic<int64_t> open_{0}, crowded_out_{0}, timed_out_{0}, too_large_{0};

  std::mutex mutex_;
  std::condition_variable asked_;
  bool stop_ = false;
  std::deque<Asked> to_make_;  // at most one a connection
  std::vector<Made> made_;

  std::thread poller_, maker_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              HttpOptions options, Pages pages) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  int failed = EADDRNOTAVAIL;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Descriptor fd(socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    // Not SO_REUSEPORT: two daemons would share the port silently.
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (fd.get() < 0 || bind(fd.get(), a->ai_addr, a->ai_addrlen) != 0 ||
        listen(fd.get(), SOMAXCONN) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      failed = errno;
      continue;
    }
    const int picked =
        ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    auto loop = std::make_unique<Loop>(std::move(fd), picked, options, std::move(pages));
    if (const absl::Status started = loop->Start(); !started.ok()) return started;
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
  }
  return absl::UnavailableError(std::strerror(failed));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return loop_->port(); }
HttpFigures HttpServer::figures() const { return loop_->figures(); }

}  // namespace spaid::server
