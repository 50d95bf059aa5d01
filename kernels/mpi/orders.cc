#include "kernels/mpi/orders.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace spaid::kernels::mpi {

namespace {

// The one collective call of both sides: a blocking one does not match one that is not.
void Broadcast(MPI_Comm comm, Order& order, const std::function<void()>& idle) {
  using std::chrono::microseconds;
  constexpr microseconds kIdleEvery{1'000'000};
  // Orders follow each other closely within a job; between jobs a rank shall cost nothing.
  constexpr microseconds kFirstPause{20}, kLongestPause{2'000};
  MPI_Request request;
  Must(MPI_Ibcast(&order, sizeof(order), MPI_BYTE, 0, comm, &request));
  microseconds waited{0};
  for (microseconds pause = kFirstPause;; pause = std::min(pause * 5 / 4, kLongestPause)) {
    int over = 0;
    Must(MPI_Test(&request, &over, MPI_STATUS_IGNORE));
    if (over) return;
    std::this_thread::sleep_for(pause);
    waited += pause;
    if (waited < kIdleEvery) continue;
    waited = {};
    idle();
  }
}

}  // namespace

void TellOrder(MPI_Comm comm, Order order) {
  Broadcast(comm, order, [] {});
}

Order AwaitOrder(MPI_Comm comm, const std::function<void()>& idle) {
  Order order;
  Broadcast(comm, order, idle);
  return order;
}

}  // namespace spaid::kernels::mpi
