#include "kernels/mpi/heartbeat_wire.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <system_error>

namespace spaid::kernels::mpi::wire {
namespace {

using std::chrono::ceil;
using std::chrono::milliseconds;

constexpr std::string_view kTag = "spaid-heartbeat-1";  // begins an invitation
constexpr size_t kMostAddresses = 64, kLongestInvitation = 4096;

// False where `until` came first.
bool Await(int fd, short events, Time until) {
  for (;;) {
    pollfd waits{fd, events, 0};
    const int found = poll(&waits, 1, PollMs(Clock::now(), until));
    if (found > 0) return true;
    if (found <= 0 && Clock::now() >= until) return false;
  }
}

std::optional<Address> AddressOf(const std::string& text, uint16_t port) {
  Address address{text};
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&address.socket, &v4, address.size = sizeof(v4));
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&address.socket, &v6, address.size = sizeof(v6));
  } else {
    return std::nullopt;
  }
  return address;
}

// All addresses of this host: those that others reach first, as loopback leads other hosts astray.
// IPv6 link-local ones are none without the name that the other host has for its interface.
std::vector<std::string> OwnAddresses(bool with_v6) {
  std::vector<std::string> outer[2], loopback[2];
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || !(i->ifa_flags & IFF_UP)) continue;
      char text[INET6_ADDRSTRLEN] = {};
      const bool v6 = i->ifa_addr->sa_family == AF_INET6;
      if (v6 && with_v6) {
        sockaddr_in6 address;
        std::memcpy(&address, i->ifa_addr, sizeof(address));
        if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) continue;
        inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
      } else if (i->ifa_addr->sa_family == AF_INET) {
        sockaddr_in address;
        std::memcpy(&address, i->ifa_addr, sizeof(address));
        inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
      } else {
        continue;
      }
      (i->ifa_flags & IFF_LOOPBACK ? loopback : outer)[v6 ? 1 : 0].emplace_back(text);
    }
    freeifaddrs(list);
  }
  // One loopback address serves the ranks of this host.
  if (loopback[0].empty()) loopback[0].emplace_back("127.0.0.1");
  std::vector<std::string> all = {loopback[0].front()};
  for (const auto* some : {&outer[0], &outer[1]}) {
    for (const std::string& address : *some) {
      if (all.size() < kMostAddresses - 1) all.push_back(address);
    }
  }
  std::rotate(all.begin(), all.begin() + 1, all.end());
  if (!loopback[1].empty()) all.push_back(loopback[1].front());
  return all;
}

std::optional<Secret> SecretOf(const std::string& hex) {
  Secret secret;
  if (hex.size() != 2 * secret.size()) return std::nullopt;
  for (size_t i = 0; i < secret.size(); ++i) {
    const char* const end = hex.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, secret[i], 16).ptr != end) return std::nullopt;
  }
  return secret;
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Listener Listen() {
  for (const bool v6 : {true, false}) {
    Fd fd(socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in6 any6 = {};
    sockaddr_in any4 = {};
    any6.sin6_family = AF_INET6;
    any4.sin_family = AF_INET;
    auto* const any = v6 ? reinterpret_cast<sockaddr*>(&any6) : reinterpret_cast<sockaddr*>(&any4);
    socklen_t size = v6 ? sizeof(any6) : sizeof(any4);
    const int off = 0;
    if (fd.open() &&
        (!v6 || setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
        bind(fd.get(), any, size) == 0 && listen(fd.get(), 1024) == 0 &&
        getsockname(fd.get(), any, &size) == 0) {
      return {std::move(fd), ntohs(v6 ? any6.sin6_port : any4.sin_port), v6};
    }
    const int error = errno;  // closing may change it
    fd = Fd();
    errno = error;
  }
  return {};
}

std::string ErrorText(int error) { return std::generic_category().message(error); }

bool Send(int fd, std::string_view bytes) {
  ssize_t sent = -1;
  do {
    sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

Received Receive(int fd, char* to, size_t most) {
  ssize_t bytes = -1;
  do {
    bytes = recv(fd, to, most, MSG_DONTWAIT);
  } while (bytes < 0 && errno == EINTR);
  if (bytes > 0) return {Got::kBytes, static_cast<size_t>(bytes), 0};
  if (bytes == 0 || errno == ECONNRESET || errno == EPIPE) return {Got::kClosed, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
  return {Got::kBroken, 0, errno};
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int PollMs(Time now, Time until) {
  const auto left = ceil<milliseconds>(until - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

void Pause(Time until) {
  while (Clock::now() < until) poll(nullptr, 0, PollMs(Clock::now(), until));
}

std::string HostName() {
  char name[kLongestHost + 1] = {};
  if (gethostname(name, kLongestHost) != 0 || name[0] == 0) return "an unnamed host";
  return name;
}

std::string WithLength(std::string_view name) {
  return static_cast<char>(name.size()) + std::string(name);
}

std::string Printable(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name.empty() ? "an unnamed host" : name;
}

bool SameSecret(const Secret& secret, std::string_view other) {
  volatile unsigned differs = 0;
  for (size_t i = 0; i < secret.size(); ++i) {
    differs = differs | static_cast<unsigned>(secret[i] ^ static_cast<uint8_t>(other[i]));
  }
  return differs == 0;
}

Secret NewSecret() {
  Secret secret;
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    std::perror("spaid: getrandom");  // so few bytes come in one piece, or the kernel has none
    std::abort();
  }
  return secret;
}

std::string InvitationText(const Listener& listener, const Secret& secret) {
  std::ostringstream text;
  text << kTag << ' ' << listener.port << ' ';
  for (const uint8_t byte : secret) {
    text << "0123456789abcdef"[byte >> 4] << "0123456789abcdef"[byte & 15];
  }
  for (const std::string& address : OwnAddresses(listener.with_v6)) text << ' ' << address;
  return text.str();
}

std::optional<Invitation> Parse(const std::string& text) {
  if (text.size() > kLongestInvitation) return std::nullopt;
  std::istringstream words(text);
  std::string tag, port_text, hex, word;
  words >> tag >> port_text >> hex;
  uint16_t port = 0;
  const char* const end = port_text.data() + port_text.size();
  if (tag != kTag || std::from_chars(port_text.data(), end, port).ptr != end || port == 0) {
    return std::nullopt;
  }
  const std::optional<Secret> secret = SecretOf(hex);
  if (!secret) return std::nullopt;
  Invitation invitation{*secret, {}};
  while (words >> word) {
    std::optional<Address> address = AddressOf(word, port);
    if (!address || invitation.addresses.size() == kMostAddresses) return std::nullopt;
    invitation.addresses.push_back(*std::move(address));
  }
  if (invitation.addresses.empty()) return std::nullopt;
  return invitation;
}

std::string HelloOf(const Secret& secret, int rank) {
  std::string hello(kHello);
  for (const uint8_t byte : secret) hello += static_cast<char>(byte);
  for (const int shift : {24, 16, 8, 0}) hello += static_cast<char>(rank >> shift & 255);
  return hello + WithLength(HostName());
}

Try TryAddress(const Address& address, const std::string& hello, Time until) {
  Try result;
  const auto failed = [&](std::string text) {
    result.failure = std::move(text);
    return std::move(result);
  };
  Fd fd(socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.open()) return failed(ErrorText(errno));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.size) != 0) {
    // EINTR: it goes on, as if it had not been interrupted.
    if (errno != EINPROGRESS && errno != EINTR) return failed(ErrorText(errno));
    if (!Await(fd.get(), POLLOUT, until)) return failed("no connection in time");
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(ErrorText(error));
  }
  SendAtOnce(fd.get());
  if (!Send(fd.get(), hello)) return failed("it closed the connection");
  std::string answer;
  size_t wanted = kAnswerHead;
  while (answer.size() < wanted) {
    if (!Await(fd.get(), POLLIN, until)) return failed("no answer in time");
    char bytes[kAnswerHead + kLongestHost];
    const Received received = Receive(fd.get(), bytes, wanted - answer.size());
    if (received.got == Got::kNothing) continue;
    if (received.got == Got::kBroken) return failed(ErrorText(received.error));
    if (received.got == Got::kClosed) {
      return failed("it closed the connection, as rank 0 does where the secret is not its own");
    }
    answer.append(bytes, received.bytes);
    if (answer.size() == kAnswerHead && wanted == kAnswerHead) {
      const size_t length = static_cast<uint8_t>(answer.back());
      if (!answer.starts_with(kAnswer) || length > kLongestHost) {
        return failed("who answers is not rank 0");
      }
      wanted += length;
    }
  }
  result.answer = answer[kAnswer.size()];
  result.host = Printable(answer.substr(kAnswerHead));
  if (result.answer == kWelcome && !Send(fd.get(), {&kBeat, 1})) {
    result.answer = 0;
    return failed("it closed the connection");
  }
  result.fd = std::move(fd);
  return result;
}

}  // namespace spaid::kernels::mpi::wire
