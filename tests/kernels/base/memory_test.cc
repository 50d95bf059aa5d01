#include "kernels/base/memory.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
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
    FreeLarge(memory, bytes);
  }
}

TEST(LargeMemory, WhatThereIsNotThrows) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends the program at such a size";
#endif
  EXPECT_THROW(AllocateLarge(std::numeric_limits<size_t>::max() / 4), std::bad_alloc);
}

// Keeping cannot be switched off: what follows it in this program keeps, too.
TEST(LargeMemory, WhatIsFreedServesTheNextOfItsSize) {
  using std::chrono::hours;
  KeepFreedMemory();
  const size_t bytes = 5 * kLargeBytes;
  void* first = AllocateLarge(bytes);
  FreeLarge(first, bytes);
  const size_t kept = FreedLargeBytes();
  EXPECT_GE(kept, bytes);
  EXPECT_LE(kept, bytes + bytes / 8);
  void* again = AllocateLarge(bytes - 100);  // about the same size
  EXPECT_EQ(again, first);
  EXPECT_EQ(FreedLargeBytes(), 0u);
  FreeLarge(again, bytes - 100);
  ReleaseFreedLarge(hours(1));  // not so old
  EXPECT_EQ(FreedLargeBytes(), kept);
  ReleaseFreedLarge(hours(-1));
  EXPECT_EQ(FreedLargeBytes(), 0u);
}

TEST(LargeMemory, KeepingMakesNoProcessLarger) {
  KeepFreedMemory();
  const size_t small = 2 * kLargeBytes, large = 3 * kLargeBytes;
  std::array<void*, 4> blocks;
  for (void*& block : blocks) block = AllocateLarge(small);
  for (void* block : blocks) FreeLarge(block, small);
  const size_t kept = FreedLargeBytes();
  EXPECT_EQ(kept, 4 * small);
  void* other = AllocateLarge(large);  // the oldest two make room for it
  EXPECT_EQ(FreedLargeBytes(), 2 * small);
  void* newest = AllocateLarge(small);
  EXPECT_EQ(newest, blocks.back());
  void* huge = AllocateLarge(size_t{1} << 30);  // more than there is to give back
  EXPECT_EQ(FreedLargeBytes(), 0u);
  FreeLarge(huge, size_t{1} << 30);
  FreeLarge(newest, small);
  FreeLarge(other, large);
  ReleaseFreedLarge(std::chrono::hours(-1));
}

}  // namespace
}  // namespace spaid::kernels
