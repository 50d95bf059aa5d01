// The heartbeat's bytes, sockets and invitations; private to heartbeat.cc. Nothing here waits, but
// for what takes a time `until` which it waits; all is thread-compatible.
#pragma once

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"

namespace spaid::kernels::mpi::wire {

using Time = Clock::time_point;
using Secret = std::array<uint8_t, 16>;

// Rank r says hello: kHello, the secret, r in 4 bytes (big endian), its host's name. Rank 0
// answers: kAnswer, one of the letters, its host's name; then r is in with its first kBeat. Names
// are a byte with their length, and so many bytes. From then on each byte is a kBeat or a
// kLeave, or from rank 0 a kEnd.
inline constexpr std::string_view kHello = "spaidhb1", kAnswer = "spaidok1";
inline constexpr size_t kHelloHead = kHello.size() + sizeof(Secret) + 4 + 1;
inline constexpr size_t kAnswerHead = kAnswer.size() + 1 + 1;
inline constexpr char kWelcome = 'W', kTaken = 'T', kNoSuchRank = 'N';
inline constexpr char kBeat = 'B', kLeave = 'L', kEnd = 'E';
inline constexpr size_t kLongestHost = 64;  // Linux knows no longer one

// For a hello; for an address.
inline constexpr std::chrono::milliseconds kHandshake{2'000};

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Returns a new socket that listens on all interfaces and a port of the kernel's choice; none where
// it cannot, with errno.
struct Listener {
  Fd fd;
  uint16_t port = 0;
  bool with_v6 = false;
};
Listener Listen();

// Lets small messages leave at once.
void SendAtOnce(int fd);

// False where not all of it could be sent; reading tells what is wrong.
bool Send(int fd, std::string_view bytes);

enum class Got { kBytes, kNothing, kClosed, kBroken };
struct Received {
  Got got = Got::kNothing;
  size_t bytes = 0;
  int error = 0;  // kBroken: why
};
Received Receive(int fd, char* to, size_t most);

// Returns the time from `now` to `until` as poll wants it: rounded up, so that it is not asked
// again before the time has come.
int PollMs(Time now, Time until);

void Pause(Time until);

std::string ErrorText(int error);
std::string HostName();  // of this host
std::string WithLength(std::string_view name);
// Returns a name that came over the network as it may stand in a log.
std::string Printable(std::string name);

Secret NewSecret();
// Takes a time that does not tell how much is right. `other`: as many bytes.
bool SameSecret(const Secret& secret, std::string_view other);

struct Address {
  std::string text;
  sockaddr_storage socket = {};
  socklen_t size = 0;
};

struct Invitation {
  Secret secret = {};
  std::vector<Address> addresses;  // in the order in which they are tried
};

// Returns an invitation to this host, a line of text, and what such a text says; nothing where it
// is none.
std::string InvitationText(const Listener& listener, const Secret& secret);
std::optional<Invitation> Parse(const std::string& text);

std::string HelloOf(const Secret& secret, int rank);

// How a try at one address ended: with rank 0 at the other end of `fd`, refused by it with one of
// its letters, or with a failure (answer 0).
struct Try {
  Fd fd;
  std::string host;
  char answer = 0;
  std::string failure;
};
Try TryAddress(const Address& address, const std::string& hello, Time until);

}  // namespace spaid::kernels::mpi::wire
