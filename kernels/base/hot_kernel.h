// The attribute of hot loops. Binaries run on any x86-64: a function marked SPAID_HOT_KERNEL is
// compiled for the baseline, AVX2 and AVX-512, and the loader picks one. Where a function does not
// fuse multiplications and additions by std::fma, its results depend on the machine's instruction
// set, never on the number of threads.
#pragma once

// The loader resolves the choice before a sanitizer's run-time is up, so sanitizer builds define
// SPAID_NO_MULTIVERSIONING (kernels/base/CMakeLists.txt).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(SPAID_NO_MULTIVERSIONING)
#define SPAID_HOT_KERNEL \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SPAID_HOT_KERNEL
#endif
#define SPAID_INLINE inline __attribute__((always_inline))
