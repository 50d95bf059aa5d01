#include "server/rpc/self_probe.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "server/base/log.h"

namespace spaid::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

// False: not within the time.
bool Wait(int fd, short events, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    pollfd wanted{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&wanted, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// A connection that sends and receives as far as it can now: bytes, 0 at its end, or what to Wait
// for.
class Stream {
 public:
  struct Moved {
    ssize_t bytes = 0;
    short wait = 0;  // POLLIN or POLLOUT: nothing moved
  };
  explicit Stream(int fd) : fd_(fd) {}
  virtual ~Stream() = default;
  virtual Moved Send(const char* data, size_t size) {
    const ssize_t sent = send(fd_, data, size, MSG_NOSIGNAL);
    return sent < 0 && (errno == EAGAIN || errno == EINTR) ? Moved{0, POLLOUT}
                                                           : Moved{std::max<ssize_t>(sent, 0)};
  }
  virtual Moved Receive(char* data, size_t size) {
    const ssize_t got = recv(fd_, data, size, 0);
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? Moved{0, POLLIN}
                                                          : Moved{std::max<ssize_t>(got, 0)};
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

class TlsStream final : public Stream {
 public:
  TlsStream(int fd, SSL* ssl) : Stream(fd), ssl_(ssl) {}
  Moved Send(const char* data, size_t size) override {
    return Told(SSL_write(ssl_, data, static_cast<int>(size)));
  }
  Moved Receive(char* data, size_t size) override {
    return Told(SSL_read(ssl_, data, static_cast<int>(size)));
  }

 private:
  Moved Told(int done) const {
    if (done > 0) return {done};
    const int error = SSL_get_error(ssl_, done);
    if (error == SSL_ERROR_WANT_READ) return {0, POLLIN};
    if (error == SSL_ERROR_WANT_WRITE) return {0, POLLOUT};
    return {};
  }

  SSL* const ssl_;
};

// Calls Health/Check, as anybody may, and waits for the head of an answer, whatever it says: a
// server that greets may answer nobody.
std::string Call(Stream& stream, Clock::time_point until) {
  static constexpr char kCall[] =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
      "\0\0\0\4\0\0\0\0\0"    // SETTINGS
      "\0\0\x53\1\4\0\0\0\1"  // HEADERS of 83 bytes, whole, of stream 1
      "\x83\x86"
      "\4\34/grpc.health.v1.Health/Check"
      "\1\5spaid"
      "\0\14content-type\20application/grpc"
      "\0\2te\10trailers"
      "\0\0\5\0\1\0\0\0\1"  // DATA of 5 bytes, the last: a message of none
      "\0\0\0\0\0";
  const auto all = [&](char* data, size_t size, bool sends) -> std::string {
    for (size_t done = 0; done < size;) {
      const Stream::Moved moved =
          sends ? stream.Send(data + done, size - done) : stream.Receive(data + done, size - done);
      if (moved.wait != 0 && !Wait(stream.fd(), moved.wait, until)) return "no answer";
      if (moved.wait == 0 && moved.bytes == 0) return "hung up";
      done += static_cast<size_t>(moved.bytes);
    }
    return "";
  };
  std::string call(kCall, sizeof kCall - 1);
  if (std::string wrong = all(call.data(), call.size(), true); !wrong.empty()) return wrong;
  constexpr char kHeaders = 1, kSettings = 4;
  for (bool first = true;; first = false) {
    char head[9];
    if (std::string wrong = all(head, sizeof head, false); !wrong.empty()) return wrong;
    if (first && head[3] != kSettings) return "not HTTP/2";
    if (head[3] == kHeaders) return "";
    const auto byte = [&](int k) {
      return static_cast<size_t>(static_cast<unsigned char>(head[k]));
    };
    std::string rest(byte(0) << 16 | byte(1) << 8 | byte(2), '\0');
    if (std::string wrong = all(rest.data(), rest.size(), false); !wrong.empty()) return wrong;
  }
}

std::string AskHttp2(int fd, Clock::time_point until) {
  Stream stream(fd);
  return Call(stream, until);
}

std::string AskTls(int fd, Clock::time_point until) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  static constexpr unsigned char kAlpn[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kAlpn, sizeof kAlpn);
  SSL_set_fd(ssl.get(), fd);
  for (;;) {
    const int done = SSL_connect(ssl.get());
    if (done == 1) break;
    const int error = SSL_get_error(ssl.get(), done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return "no TLS";
    if (!Wait(fd, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, until)) return "no answer";
  }
  TlsStream stream(fd, ssl.get());
  return Call(stream, until);
}

}  // namespace

SelfProbe::SelfProbe(const sockaddr_storage& address, bool tls, SelfProbeOptions options,
                     Connections* connections, Metrics* metrics)
    : address_(address),
      tls_(tls),
      options_(options),
      connections_(connections),
      metrics_(metrics) {
  // Who listens everywhere listens to IPv4 on loopback, too.
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address_);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address_);
  if ((v4->sin_family == AF_INET && v4->sin_addr.s_addr == INADDR_ANY) ||
      (v4->sin_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))) {
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  // Strangers do not reach a socket in the file system: it needs no probe.
  if (options_.every.count() > 0 && address_.ss_family != AF_UNIX) {
    thread_ = std::thread([this] { Run(); });
  }
}

SelfProbe::~SelfProbe() {
  {
    const std::lock_guard lock(mu_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SelfProbe::Run() {
  int failures = 0, excused = 0;
  std::unique_lock lock(mu_);
  while (!changed_.wait_for(lock, options_.every, [this] { return stop_; })) {
    lock.unlock();
    const int64_t cut = connections_->cut();
    const std::string wrong = Ask();
    lock.lock();
    if (wrong.empty()) {
      failures = excused = 0;
      continue;
    }
    if (connections_->cut() == cut || ++excused > options_.excused) ++failures;
    metrics_->SelfProbeFailed();
    Log(LogLevel::kError, "self_probe", {{"failures", failures}, {"text", wrong}});
    if (failures >= options_.failures) deaf_ = true;
  }
}

std::string SelfProbe::Ask() {
  const auto until = Clock::now() + options_.timeout;
  const Socket fd(socket(address_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return std::strerror(errno);  // nor could anybody's connection be taken
  // Known before the acceptor can see it.
  sockaddr_storage own = address_;                     // from where it listens: this host's own
  reinterpret_cast<sockaddr_in*>(&own)->sin_port = 0;  // at the same place in both families
  socklen_t size = address_.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&own), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return "";  // all of this host's ports are in use
  }
  connections_->ExpectOwn(reinterpret_cast<const sockaddr*>(&own));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), size) != 0 &&
      errno != EINPROGRESS) {
    return std::strerror(errno);
  }
  if (!Wait(fd.get(), POLLOUT, until)) return "not accepted";
  return tls_ ? AskTls(fd.get(), until) : AskHttp2(fd.get(), until);
}

}  // namespace spaid::server
