// Threads for the CPU backend: a fixed team per call, work taken in batches from a shared counter.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/base/context.h"

namespace spaid::kernels {

// Distance in bytes between what one thread writes all the time and what another does (two cache
// lines: they are fetched in pairs).
inline constexpr size_t kApart = 128;

// `threads` of a Context, resolved: at least 1, at most the usable cores where 0.
int ResolveThreads(int threads);

// Runs body(begin, end, worker) over [0, n) in batches of `batch`, on `threads` threads of a
// process-wide pool (the caller is one of them; worker < threads). Each batch is taken once; which
// worker takes it is not defined. Polls `stop` before each batch and returns its reason (kNone: all
// done). After a batch, worker 0's thread or any other (one at a time) reports progress. Where body
// throws, no further batch is begun, and the first exception is thrown here once all workers have
// left.
StopReason ParallelFor(int64_t n, int64_t batch, const Context& context, Stage stage,
                       const std::function<void(int64_t begin, int64_t end, int worker)>& body);

// As above without stop and progress: for short vector work.
void ParallelFor(int64_t n, int64_t batch, int threads,
                 const std::function<void(int64_t begin, int64_t end, int worker)>& body);

// The threads of the process. libspaid_cuda.so is given the program's (cuda_loader.h).
class Pool;
Pool*& ThePool();

// least := min(least, to).
inline void Lower(std::atomic<int64_t>& least, int64_t to) {
  int64_t seen = least.load();
  while (to < seen && !least.compare_exchange_weak(seen, to)) {
  }
}

// to := from, arrays of one size: the threads share the page faults of fresh memory, too.
template <class From, class To>
void ParallelCopy(const From& from, To& to, int threads) {
  ParallelFor(static_cast<int64_t>(from.size()), 1 << 16, threads,
              [&](int64_t begin, int64_t end, int) {
                std::copy(from.begin() + begin, from.begin() + end, to.begin() + begin);
              });
}

}  // namespace spaid::kernels
