// Portable eight-wide fp64 vectors, for hot kernels (kernels/base/hot_kernel.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/base/hot_kernel.h"

namespace spaid::kernels {

inline constexpr int64_t kLanes = 8;

// Four and eight doubles; lowered to what the instruction set has. Aligned to their size.
typedef double Vec4 __attribute__((vector_size(32), may_alias));
typedef double Vec8 __attribute__((vector_size(64), may_alias));
typedef int64_t Mask8 __attribute__((vector_size(64), may_alias));

#ifdef __clang__
// GCC's, which clang has for constants only: out[x] = v[of[x]].
template <class Vec, class Mask>
SPAID_INLINE Vec __builtin_shuffle(Vec v, Mask of) {
  Vec out = v;
  for (size_t x = 0; x < sizeof(Vec) / sizeof(v[0]); ++x) out[x] = v[of[x]];
  return out;
}
#endif

// n rounded up to whole vectors.
constexpr int64_t PadToLanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Leading dimension for a padded column-major array of `rows` rows: whole vectors, and not a
// multiple of 64 doubles, where all columns would fall into the same cache sets.
constexpr int64_t PaddedLeadingDimension(int64_t rows) {
  const int64_t padded = PadToLanes(rows);
  return padded >= 64 && padded % 64 == 0 ? padded + kLanes : padded;
}

// A growing 64-byte aligned scratch array; contents are undefined after Ensure() had to grow it.
class AlignedBuffer {
 public:
  // At least `n` doubles, all of them writable.
  double* Ensure(int64_t n) {
    if (n > size_) {
      storage_.reset();  // first: old and new need not coexist
      storage_ = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(n + kLanes));
      size_ = n;
    }
    return data();
  }
  // Returns the same as the last Ensure().
  double* data() const {
    const auto address = reinterpret_cast<uintptr_t>(storage_.get());
    return reinterpret_cast<double*>((address + 63) & ~uintptr_t{63});
  }

 private:
  std::unique_ptr<double[]> storage_;
  int64_t size_ = 0;
};

}  // namespace spaid::kernels
