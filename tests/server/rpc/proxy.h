// A TCP proxy that can stop forwarding without closing anything: to both sides, the other one has
// vanished.
#pragma once

#include <atomic>
#include <string>
#include <thread>

namespace spaid::server {

// One connection to `target` ("127.0.0.1:PORT"). Listens from construction on, on a port of its
// own.
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

 private:
  void Forward(int target_port);

  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false}, freeze_{false}, frozen_{false};
  std::thread thread_;
};

}  // namespace spaid::server
