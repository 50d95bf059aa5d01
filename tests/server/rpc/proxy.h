// A TCP proxy that can stop forwarding without closing anything (to both sides, the other one has
// vanished), and break connections.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace spaid::server {

// Connections to `target` ("127.0.0.1:PORT"), one at a time. Listens from construction on, on a
// port of its own.
class Proxy {
 public:
  explicit Proxy(const std::string& target);
  // Closes both sides.
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  std::string address() const;
  // From now on nothing passes, either way; both connections stay open. Returns when that is so.
  void Freeze();
  // Resets the connection that stands on both sides; the next one is taken. Returns when that is
  // done.
  void Cut();
  int connections() const { return connections_; }  // so far

 private:
  void Run(int target_port);
  void Forward(int client, int target_port);

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false}, freeze_{false}, frozen_{false}, cut_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace spaid::server
