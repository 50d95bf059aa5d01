#include "server/ops/watchdog.h"

#include <cstdlib>
#include <utility>

#include "server/base/log.h"

namespace spaid::server {

Watchdog::Watchdog(std::chrono::seconds limit, std::string what)
    : thread_([this, limit, what = std::move(what)] {
        std::unique_lock lock(mu_);
        if (changed_.wait_for(lock, limit, [this] { return over_; })) return;
        Log(LogLevel::kError, "shutdown_hangs", {{"what", what}, {"seconds", limit.count()}});
        FlushLog(std::chrono::seconds(1));
        std::_Exit(1);
      }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mu_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace spaid::server
