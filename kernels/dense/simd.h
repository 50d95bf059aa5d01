// Portable eight-wide fp64 vectors and the attribute of hot kernels. Binaries run on any x86-64: a
// function marked SPAID_HOT_KERNEL is compiled for the baseline, AVX2 and AVX-512, and the loader
// picks one. Results depend on the machine's instruction set (fused multiply-add), never on the
// number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

// The loader resolves the choice before a sanitizer's run-time is up, so sanitizer builds define
// SPAID_NO_MULTIVERSIONING (kernels/dense/CMakeLists.txt).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(SPAID_NO_MULTIVERSIONING)
#define SPAID_HOT_KERNEL \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SPAID_HOT_KERNEL
#endif
#define SPAID_INLINE inline __attribute__((always_inline))

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
