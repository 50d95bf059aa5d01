// Hashes of index lists, to find equal ones; not cryptographic, so equality is confirmed after.
// Internal to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace spaid::kernels {

inline uint64_t HashMix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

// Hashes values[i] - origin. Four independent chains: a multiplication need not wait for the one
// before it.
template <class T>
uint64_t HashArray(std::span<const T> values, uint64_t seed, T origin = 0) {
  uint64_t chain[4] = {seed, seed + 1, seed + 2, seed + 3};
  const auto word = [&](size_t i) { return static_cast<uint64_t>(values[i] - origin); };
  size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    for (size_t c = 0; c < 4; ++c) chain[c] = HashMix(chain[c], word(i + c));
  }
  for (; i < values.size(); ++i) chain[0] = HashMix(chain[0], word(i));
  uint64_t hash = values.size();
  for (const uint64_t c : chain) hash = HashMix(hash, c);
  return hash;
}

}  // namespace spaid::kernels
