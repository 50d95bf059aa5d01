// Noise for shadow residuals: the same numbers in every run, on any number of threads.
#pragma once

#include <cstdint>

namespace spaid::kernels::krylov {

// A number in [-1, 1), a function of (i, round) alone (splitmix64's finaliser). Thread-safe.
inline double Noise(int64_t i, int round) {
  uint64_t h = static_cast<uint64_t>(i) + 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(round + 1);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ULL;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebULL;
  h ^= h >> 31;
  return static_cast<double>(h >> 11) * 0x1.0p-52 - 1.0;
}

}  // namespace spaid::kernels::krylov
