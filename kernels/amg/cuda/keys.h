// The order of nodes, on a device. For .cu files.
#pragma once

#include <cstdint>

namespace spaid::cuda {

// kernels::AggregationKey.
__device__ inline uint64_t AggregationKey(int64_t node, int level) {
  uint64_t x =
      static_cast<uint64_t>(node) + (static_cast<uint64_t>(level) << 40) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return (((x >> 33) + 1) << 32) | static_cast<uint64_t>(node);
}

}  // namespace spaid::cuda
