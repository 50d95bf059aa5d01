#include "client/cli/interrupt.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

namespace spaid::cli {
namespace {

constexpr int kInterruptedExit = 130;  // what a shell expects after SIGINT

std::atomic<const char*> current_hint = nullptr;
std::atomic<bool> answered = false;

// Never destroyed: the watching thread uses it until the process is gone.
std::stop_source& Source() {
  static auto* source = new std::stop_source;
  return *source;
}

std::string& Screen() {
  static auto* screen = new std::string;
  return *screen;
}

sem_t arrived;  // posted once for each signal

// On whatever thread the signal reaches, a library's own, too.
void OnSignal(int /*signal*/) {
  const int before = errno;
  sem_post(&arrived);
  errno = before;
}

void Watch(const sigset_t& signals, const char* program) {
  // One thread at least takes them, whatever mask the process began with.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  while (true) {
    while (sem_wait(&arrived) != 0) {
    }
    const char* hint = current_hint.load();
    if (hint == nullptr || Source().stop_requested()) _exit(kInterruptedExit);
    flockfile(stderr);
    answered.store(true);
    const std::string& before = Screen().empty() ? "\n" : Screen();
    std::fprintf(stderr, "%s%s: %s; again to leave at once\n", before.c_str(), program, hint);
    funlockfile(stderr);
    Source().request_stop();
  }
}

}  // namespace

void Interrupt::Install(const char* program) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sem_init(&arrived, 0, 0);
  Source();
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Nothing that this thread and those it starts wait for is interrupted.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([=] { Watch(signals, program); }).detach();
}

std::stop_token Interrupt::Token() { return Source().get_token(); }

bool Interrupt::Answered() { return answered.load(); }
void Interrupt::SetScreen(std::string screen) { Screen() = std::move(screen); }

Interrupt::Guard::Guard(const char* hint) { current_hint.store(hint); }
Interrupt::Guard::~Guard() { current_hint.store(nullptr); }

}  // namespace spaid::cli
