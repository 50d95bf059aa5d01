// Ends the process with exit code 1 when a shutdown hangs, and says what hung.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace spaid::server {

// Ends the process `limit` after its construction, unless it is destroyed before.
class Watchdog {
 public:
  Watchdog(std::chrono::seconds limit, std::string what);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace spaid::server
