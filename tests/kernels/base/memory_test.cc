#include "kernels/base/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

namespace spaid::kernels {
namespace {

TEST(LargeMemory, IsAlignedWritableAndFreed) {
  for (const size_t bytes : {kLargeBytes, kLargeBytes + 1, 3 * kLargeBytes - 7}) {
    void* memory = AllocateLarge(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % (size_t{2} << 20), 0u);
    std::memset(memory, 1, bytes);
    FreeLarge(memory);
  }
}

TEST(LargeMemory, WhatThereIsNotThrows) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends the program at such a size";
#endif
  EXPECT_THROW(AllocateLarge(std::numeric_limits<size_t>::max() / 4), std::bad_alloc);
}

}  // namespace
}  // namespace spaid::kernels
