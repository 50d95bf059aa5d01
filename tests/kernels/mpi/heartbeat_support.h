// Ranks for tests of the heartbeat: threads of this process, child processes (the test program,
// started with a role that its main() knows), or raw sockets that speak the heartbeat's bytes by
// hand.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/mpi/heartbeat.h"

namespace spaid::kernels::mpi {
using std::chrono::milliseconds;
using std::chrono::seconds;
using Beat = Result<std::unique_ptr<Heartbeat>>;

// Deaths, and whatever else must not be taken for silence on a busy machine.
inline constexpr HeartbeatOptions kPatient{milliseconds(20), seconds(60), seconds(60)};
inline constexpr HeartbeatOptions kShort{milliseconds(50), milliseconds(1000), seconds(60)};
inline constexpr HeartbeatOptions kHasty{milliseconds(20), seconds(60), milliseconds(300)};

inline std::string ThisHost() {
  char name[65] = {};
  gethostname(name, 64);
  return name;
}

// Collects the sentences of one OnLost.
class Losses {
 public:
  Heartbeat::OnLost OnLost() {
    return [this](const std::string& sentence) {
      const std::lock_guard<std::mutex> lock(mutex_);
      all_.push_back(sentence);
      more_.notify_all();
    };
  }
  std::string First() {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool told = more_.wait_for(lock, seconds(60), [this] { return !all_.empty(); });
    return told ? all_.front() : "nothing in a minute";
  }
  size_t count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return all_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::string> all_;  // guarded by mutex_
};

struct Parts {
  std::string tag, secret;
  int port = 0;
};

inline Parts PartsOf(const std::string& invitation) {
  Parts parts;
  std::string hex;
  std::istringstream(invitation) >> parts.tag >> parts.port >> hex;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    parts.secret += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return parts;
}

// The invitation with other addresses.
inline std::string At(const std::string& invitation, const std::string& addresses) {
  std::string tag, port, hex;
  std::istringstream(invitation) >> tag >> port >> hex;
  return tag + " " + port + " " + hex + " " + addresses;
}

inline sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Raw {
 public:
  explicit Raw(int fd) : fd_(fd) {
    const timeval patience{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  static Raw To(int port) {
    Raw raw(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    raw.Connect(port);
    return raw;
  }
  Raw(Raw&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Raw() { Close(); }
  void Connect(int port) const {
    const sockaddr_in address = Loopback(port);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void Send(const std::string& bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string Read(size_t size) const {
    std::string bytes(size, 0);
    const ssize_t got = recv(fd_, bytes.data(), size, MSG_WAITALL);
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }
  // Reads all there is, until the other end closes.
  bool ClosedByOther() const {
    char bytes[256];
    ssize_t got = 1;
    while (got > 0) got = recv(fd_, bytes, sizeof(bytes), 0);
    return got == 0 || errno == ECONNRESET;
  }
  void Drain() const {
    char bytes[256];
    while (recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

inline std::string Hello(const std::string& secret, int rank, const std::string& host) {
  return "spaidhb1" + secret + std::string(3, '\0') + static_cast<char>(rank) +
         static_cast<char>(host.size()) + host;
}

// A rank's connection, let in by rank 0.
inline Raw JoinedRaw(const std::string& invitation, int rank, const std::string& host) {
  const Parts parts = PartsOf(invitation);
  Raw raw = Raw::To(parts.port);
  raw.Send(Hello(parts.secret, rank, host));
  const std::string head = raw.Read(10);
  EXPECT_EQ(head.substr(0, 9), "spaidok1W");
  EXPECT_EQ(raw.Read(static_cast<size_t>(head.back())), ThisHost());
  raw.Send("B");
  return raw;
}

// Rank 0's end by hand: listens, and answers one rank.
class RawDoor {
 public:
  RawDoor() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.fd(), any, size), 0);
    EXPECT_EQ(listen(listener_.fd(), 8), 0);
    EXPECT_EQ(getsockname(listener_.fd(), any, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  std::string invitation() const {
    return "spaid-heartbeat-1 " + std::to_string(port_) + " 000102030405060708090a0b0c0d0e0f" +
           " 127.0.0.1";
  }
  int fd() const { return listener_.fd(); }
  Raw Accept() const { return Raw(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC)); }
  Raw LetIn() const {
    Raw raw = Accept();
    const std::string head = raw.Read(29);
    EXPECT_EQ(head.substr(0, 8), "spaidhb1");
    EXPECT_EQ(raw.Read(static_cast<size_t>(head.back())), ThisHost());
    raw.Send("spaidok1W" + std::string("\5node0"));
    EXPECT_EQ(raw.Read(1), "B");
    return raw;
  }

 private:
  Raw listener_;
  int port_ = 0;
};

// This program once more, in a role of main().
class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    int to[2], from[2];
    EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    arguments.insert(arguments.begin(), "heartbeat_test");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    in_ = to[1];
    out_ = fdopen(from[0], "r");
  }
  ~Child() {
    EndInput();
    std::fclose(out_);
    if (!ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  std::string Line() {
    char line[4096] = {};
    if (std::fgets(line, sizeof(line), out_) == nullptr) return "";
    line[std::strcspn(line, "\n")] = 0;
    return line;
  }
  void Signal(int number) const { kill(pid_, number); }
  void AwaitStopped() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void EndInput() {
    if (in_ >= 0) close(in_);
    in_ = -1;
  }
  int ExitCode() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  FILE* out_ = nullptr;
  bool ended_ = false;
};

// Rank 0 in a thread, as Wait returns when the others are there.
class Rank0 {
 public:
  explicit Rank0(int ranks, const HeartbeatOptions& options = kPatient) {
    auto door = Heartbeat::Door::Open();
    EXPECT_TRUE(door.ok()) << door.status().message();
    invitation_ = door->invitation();
    waits_ = std::thread([this, ranks, options, at = *std::move(door)]() mutable {
      beat_ = Heartbeat::Wait(std::move(at), ranks, options, losses_.OnLost());
    });
  }
  ~Rank0() {
    if (waits_.joinable()) waits_.join();
  }
  const std::string& invitation() const { return invitation_; }
  Losses& losses() { return losses_; }
  Beat& beat() {
    if (waits_.joinable()) waits_.join();
    return *beat_;
  }

 private:
  std::string invitation_;
  Losses losses_;
  std::optional<Beat> beat_;
  std::thread waits_;
};

struct Rank {
  Losses losses;
  Beat beat;
  Rank(const std::string& invitation, int rank, const HeartbeatOptions& options = kPatient)
      : beat(Heartbeat::Join(invitation, rank, options, losses.OnLost())) {
    EXPECT_TRUE(beat.ok()) << beat.status().message();
  }
  ~Rank() {
    if (beat.ok()) (*beat)->Leave();
  }
};

inline size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

// Lets this process open no descriptor from now on but one that is closed meanwhile.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    // All numbers below the limit are taken: one that is free could hide one that is closed.
    for (size_t open = OpenDescriptors(); holes_.empty() || holes_.size() < open;) {
      holes_.push_back(dup(0));
    }
    const rlimit none{static_cast<rlim_t>(holes_.back()) + 1, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() {
    setrlimit(RLIMIT_NOFILE, &before_);
    for (const int fd : holes_) close(fd);
  }

 private:
  rlimit before_;
  std::vector<int> holes_;
};

}  // namespace spaid::kernels::mpi
