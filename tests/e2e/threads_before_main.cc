// Preloaded into a program, it has threads before main that take every signal, as OpenBLAS has.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace {

void* Idle(void* /*unused*/) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
  while (true) pause();
}

__attribute__((constructor)) void StartThreads() {
  for (int k = 0; k < 4; ++k) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, Idle, nullptr) == 0) pthread_detach(thread);
  }
}

}  // namespace
