// The last resort of a shutdown that hangs: the process ends with exit code 1 and says what hung.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace spaid::server {

// Bites `limit` after its construction, unless it dies before.
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
