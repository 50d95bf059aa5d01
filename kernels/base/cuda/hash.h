// Hashes on the device: sums of mixed words, so that threads can add their parts in any order.
// Not cryptographic: what hashes alike is confirmed after.
#pragma once

#include <cstdint>

namespace spaid::cuda {

// splitmix64 (Steele, Lea, Flood 2014): every bit of the result depends on every bit of `word`.
__host__ __device__ inline uint64_t Mix(uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

// Hashes `value` at `place` of a list.
__host__ __device__ inline uint64_t HashAt(uint64_t place, uint64_t value) {
  return Mix(value + place * 0xd6e8feb86659fd93u);
}

}  // namespace spaid::cuda
