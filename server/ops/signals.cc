#include "server/ops/signals.h"

#include <cerrno>
#include <ctime>

namespace spaid::server {

ShutdownSignals::ShutdownSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

std::string ShutdownSignals::Wait(std::chrono::milliseconds every,
                                  const std::function<bool()>& meanwhile,
                                  const std::function<void()>& hung_up) {
  while (true) {
    const auto until = std::chrono::steady_clock::now() + every;
    int signal = Take(until);
    for (; signal == SIGHUP; signal = Take(until)) hung_up();
    if (signal != 0) return signal == SIGTERM ? "SIGTERM" : "SIGINT";
    if (!meanwhile()) return "";
  }
}

bool ShutdownSignals::WaitFor(std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  int signal = Take(until);
  while (signal == SIGHUP) signal = Take(until);
  return signal != 0;
}

int ShutdownSignals::Take(std::chrono::steady_clock::time_point until) {
  while (true) {
    auto left = until - std::chrono::steady_clock::now();
    if (left.count() < 0) left = {};
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec spec{.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
                        .tv_nsec = ns % 1'000'000'000};
    const int signal = sigtimedwait(&set_, nullptr, &spec);
    if (signal > 0) return signal;
    if (errno != EINTR) return 0;
  }
}

}  // namespace spaid::server
