#include "server/ops/signals.h"

#include <pthread.h>
#include <semaphore.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

namespace spaid::server {
namespace {

constexpr std::array kSignals = {SIGTERM, SIGINT, SIGHUP};

sem_t arrived;                                          // posted once for each signal
std::array<std::atomic<int>, kSignals.size()> pending;  // not taken yet, each
static_assert(std::atomic<int>::is_always_lock_free);

// On whatever thread the signal reaches, a library's own, too.
void OnSignal(int signal) {
  const int before = errno;
  for (size_t k = 0; k < kSignals.size(); ++k) {
    if (kSignals[k] == signal) pending[k].fetch_add(1);
  }
  sem_post(&arrived);
  errno = before;
}

// A signal's number; 0: none came.
int Take(std::chrono::steady_clock::time_point until) {
  const auto since_boot = until.time_since_epoch();  // CLOCK_MONOTONIC
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
  const timespec spec{.tv_sec = seconds.count(),
                      .tv_nsec = std::chrono::nanoseconds(since_boot - seconds).count()};
  while (sem_clockwait(&arrived, CLOCK_MONOTONIC, &spec) != 0) {
    if (errno != EINTR) return 0;
  }
  for (size_t k = 0; k < kSignals.size(); ++k) {
    if (pending[k].load() == 0) continue;
    pending[k].fetch_sub(1);
    return kSignals[k];
  }
  return 0;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  sem_init(&arrived, 0, 0);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kSignals) {
    sigaction(signal, &action, nullptr);
    sigaddset(&signals, signal);
  }
  // One thread at least takes them: this one, whatever mask the process began with.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
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

bool ShutdownSignals::WaitFor(std::chrono::milliseconds timeout,
                              const std::function<void()>& hung_up) {
  return !Wait(
              timeout, [] { return false; }, hung_up)
              .empty();
}

}  // namespace spaid::server
