// What a forger does: other values of the same XXH3-128.
#pragma once

#define XXH_INLINE_ALL  // for XXH3_kSecret
#include <xxhash.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

namespace spaid::server {

// Other finite values, some 1e300 large, of the XXH3-128 that `values` (129 of them at least) have:
// four of them differ. Takes no search. The long-input loop of XXH3 keeps, for each of the eight
// words of its stripes of 64 bytes, two sums: of the words, and of lo32(w ^ k) * hi32(w ^ k) with a
// published k. Two of four words set the second sum, by a division by 2^32 - 1; two whose products
// are 0 set the first.
inline std::vector<double> SameXxh3(std::span<const double> values) {
  constexpr uint64_t kLow = 0xffffffff;
  if (values.size() < 129) std::abort();  // shorter input is hashed otherwise
  for (size_t slot = 0; slot < 8; ++slot) {
    uint64_t word[4], key[4], sum = 0, products = 0;
    for (size_t s = 0; s < 4; ++s) {
      word[s] = std::bit_cast<uint64_t>(values[8 * s + slot]);
      std::memcpy(&key[s], XXH3_kSecret + 8 * (s + slot), 8);
      sum += word[s];
      products += ((word[s] ^ key[s]) & kLow) * ((word[s] ^ key[s]) >> 32);
    }
    const uint64_t quotient = products / kLow, rest = products % kLow;
    if (quotient > kLow) continue;
    word[0] = (rest << 32 | 1) ^ key[0];
    word[1] = (quotient << 32 | kLow) ^ key[1];
    const uint64_t left = sum - word[0] - word[1];  // what words 2 and 3 add up to
    word[3] = (key[3] & ~kLow) | ((left - (key[2] & kLow)) & kLow);
    word[2] = left - word[3];
    std::vector<double> forged(values.begin(), values.end());
    bool finite = true;
    for (size_t s = 0; s < 4; ++s) {
      forged[8 * s + slot] = std::bit_cast<double>(word[s]);
      finite = finite && std::isfinite(forged[8 * s + slot]);
    }
    if (finite) return forged;
  }
  std::abort();  // for other values than a test's
}

}  // namespace spaid::server
