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

// The client's side of a plain connection, and the head of the SETTINGS frame that answers it.
std::string AskHttp2(int fd, Clock::time_point until) {
  static constexpr char kHello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
  if (send(fd, kHello, sizeof kHello, MSG_NOSIGNAL) != sizeof kHello) return "cannot send";
  unsigned char head[9];
  size_t got = 0;
  while (got < sizeof head) {
    if (!Wait(fd, POLLIN, until)) return "no answer";
    const ssize_t n = recv(fd, head + got, sizeof head - got, 0);
    if (n == 0) return "hung up";
    if (n < 0 && errno != EAGAIN && errno != EINTR) return std::strerror(errno);
    if (n > 0) got += static_cast<size_t>(n);
  }
  constexpr unsigned char kSettings = 4;
  return head[3] == kSettings ? "" : "not HTTP/2";
}

// Far enough to have the server's certificate: it may want one of ours, which we do not have.
std::string AskTls(int fd, Clock::time_point until) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  static constexpr unsigned char kAlpn[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kAlpn, sizeof kAlpn);
  SSL_set_fd(ssl.get(), fd);
  for (;;) {
    const int done = SSL_connect(ssl.get());
    if (done == 1 || SSL_get0_peer_certificate(ssl.get()) != nullptr) return "";
    const int error = SSL_get_error(ssl.get(), done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return "no TLS";
    if (!Wait(fd, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, until)) return "no answer";
  }
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
  // What speaks over files is beyond the reach of strangers.
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
  int failures = 0;
  std::unique_lock lock(mu_);
  while (!changed_.wait_for(lock, options_.every, [this] { return stop_; })) {
    lock.unlock();
    const std::string wrong = Ask();
    lock.lock();
    failures = wrong.empty() ? 0 : failures + 1;
    if (wrong.empty()) continue;
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
  sockaddr_storage own{};
  own.ss_family = address_.ss_family;
  socklen_t size = address_.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&own), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return "";  // all of this host's ports are in use
  }
  connections_->ExpectOwn(ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), size) != 0 &&
      errno != EINPROGRESS) {
    return std::strerror(errno);
  }
  if (!Wait(fd.get(), POLLOUT, until)) return "not accepted";
  return tls_ ? AskTls(fd.get(), until) : AskHttp2(fd.get(), until);
}

}  // namespace spaid::server
