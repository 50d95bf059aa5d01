#include "server/ops/signals.h"

#include <cerrno>
#include <ctime>

namespace spaid::server {

ShutdownSignals::ShutdownSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

std::string ShutdownSignals::Wait() {
  int signal = 0;
  while (sigwait(&set_, &signal) != 0) {
  }
  return signal == SIGTERM ? "SIGTERM" : "SIGINT";
}

bool ShutdownSignals::WaitFor(std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    auto left = until - std::chrono::steady_clock::now();
    if (left.count() < 0) left = {};
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec spec{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                        .tv_nsec = ns % 1'000'000'000};
    if (sigtimedwait(&set_, nullptr, &spec) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

}  // namespace spaid::server
