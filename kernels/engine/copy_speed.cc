#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/base/device.h"
#include "kernels/base/memory.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {
namespace {

// The fastest of some copies, as long as they take no longer than that together.
constexpr int kCopies = 6;
constexpr std::chrono::milliseconds kTime{100};
constexpr int64_t kLeastBytes = int64_t{32} << 20, kMostBytes = int64_t{64} << 20;

double Measure(int threads) {
  using Clock = std::chrono::steady_clock;
  // Each of the two arrays larger than the last cache, but for the largest ones, which many threads
  // share: there a copy may be faster than memory.
  const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const int64_t bytes = std::min(std::clamp(2 * cache, kLeastBytes, kMostBytes),
                                 std::max<int64_t>(UsableMemoryBytes() / 32, 1 << 20));
  const int64_t n = bytes / static_cast<int64_t>(sizeof(double));
  Array<double> from(static_cast<size_t>(n)), to(static_cast<size_t>(n));
  ParallelFor(n, 1 << 16, threads, [&](int64_t begin, int64_t end, int) {
    std::fill(from.begin() + begin, from.begin() + end, 1.0);
    std::fill(to.begin() + begin, to.begin() + end, 0.0);
  });
  const auto start = Clock::now();
  double best = 0;
  for (int run = 0; run < kCopies && Clock::now() - start < kTime; ++run) {
    const auto begun = Clock::now();
    ParallelCopy(from, to, threads);
    const std::chrono::duration<double> s = Clock::now() - begun;
    best = std::max(best, 2.0 * static_cast<double>(bytes) / s.count());
  }
  return best;
}

}  // namespace

double HostCopyBytesPerSecond(int threads) {
  static std::mutex mutex;
  static std::map<int, double> measured;
  const std::lock_guard lock(mutex);
  auto [at, fresh] = measured.try_emplace(threads, 0);
  if (fresh) {
    at->second = Measure(threads);
    ReleaseFreedLarge({});  // nobody will want arrays of that size soon
  }
  return at->second;
}

}  // namespace spaid::kernels
