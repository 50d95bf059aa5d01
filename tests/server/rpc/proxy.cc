#include "tests/server/rpc/proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace spaid::server {
namespace {

constexpr int kPollMs = 5;

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// False: one side has closed.
bool PassOn(int from, int to) {
  std::array<char, 16384> buffer;
  const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t n = send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += n;
  }
  return got > 0;
}

}  // namespace

Proxy::Proxy(const std::string& target) {
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listener_, 1), 0);
  EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port_ = ntohs(address.sin_port);
  const int target_port = std::stoi(target.substr(target.rfind(':') + 1));
  thread_ = std::thread([this, target_port] { Run(target_port); });
}

Proxy::~Proxy() {
  stop_ = true;
  thread_.join();
  close(listener_);
}

std::string Proxy::address() const { return "127.0.0.1:" + std::to_string(port_); }

void Proxy::Freeze() {
  freeze_ = true;
  frozen_.wait(false);
}

void Proxy::Cut() {
  cut_ = true;
  cut_.wait(true);
}

void Proxy::Run(int target_port) {
  while (!stop_) {
    cut_ = false;  // also one that found no connection
    cut_.notify_all();
    pollfd incoming{.fd = listener_, .events = POLLIN, .revents = 0};
    if (poll(&incoming, 1, kPollMs) == 0) continue;
    Forward(accept(listener_, nullptr, nullptr), target_port);
  }
}

void Proxy::Forward(int client, int target_port) {
  ++connections_;
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(target_port);
  EXPECT_EQ(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  std::array<pollfd, 2> both{pollfd{.fd = client, .events = POLLIN, .revents = 0},
                             pollfd{.fd = server, .events = POLLIN, .revents = 0}};
  bool open = true;
  while (open && !stop_ && !freeze_ && !cut_) {
    if (poll(both.data(), both.size(), kPollMs) <= 0) continue;
    if (both[0].revents != 0) open = PassOn(client, server);
    if (open && both[1].revents != 0) open = PassOn(server, client);
  }
  if (freeze_) {
    frozen_ = true;
    frozen_.notify_all();
    while (open && !stop_) poll(nullptr, 0, kPollMs);
  }
  const linger reset{.l_onoff = cut_ ? 1 : 0, .l_linger = 0};
  for (const int side : {client, server}) {
    setsockopt(side, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(side);
  }
}

}  // namespace spaid::server
