#include "kernels/base/memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>

#include "kernels/base/committed.h"

namespace spaid::kernels {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHugePage = size_t{2} << 20;

// What malloc keeps; it would return and fetch the pages of every message. Larger pieces
// are mapped, and unmapped when they are freed.
constexpr int kKeepHeapBytes = 16 << 20;
constexpr int kMapFromBytes = int{kLargeBytes};

// What is allocated for `bytes`: whole huge pages, in eight steps from one power of two to the
// next, so that arrays of about the same length can follow one another. Untouched, the rest costs
// nothing.
size_t Capacity(size_t bytes) {
  const size_t step = std::max(kHugePage, std::bit_floor(bytes) / 8);
  const size_t steps = bytes / step + (bytes % step != 0 ? 1 : 0);
  return steps * step < bytes ? bytes : steps * step;  // as asked where that overflows
}

}  // namespace

// The freed blocks, newest first. The list stands in the blocks themselves: to free takes no
// memory.
class FreedBlocks {
 public:
  void Keep() {
    const std::lock_guard lock(mutex_);
    keep_ = true;
  }

  // A block of this capacity; else null, and as many bytes of the oldest blocks are given back.
  void* Take(size_t capacity) {
    const std::lock_guard lock(mutex_);
    for (Block** at = &newest_; *at != nullptr; at = &(*at)->older) {
      if ((*at)->capacity == capacity) return Unlink(at);
    }
    const size_t target = bytes_ - std::min(bytes_, capacity);
    while (bytes_ > target) Release(Unlink(Oldest()));
    return nullptr;
  }

  void Put(void* memory, size_t capacity) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (keep_) {
        newest_ = ::new (memory) Block{newest_, capacity, Clock::now()};
        bytes_ += capacity;
        return;
      }
    }
    Release(memory);
  }

  void ReleaseBefore(Clock::time_point when) {
    const std::lock_guard lock(mutex_);
    while (newest_ != nullptr) {
      Block** oldest = Oldest();
      if ((*oldest)->since > when) return;
      Release(Unlink(oldest));
    }
  }

  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  struct Block {
    Block* older;
    size_t capacity;
    Clock::time_point since;
  };

  static void Release(void* memory) noexcept {
    ::operator delete(memory, std::align_val_t(kHugePage));
  }

  Block** Oldest() {
    Block** at = &newest_;
    while ((*at)->older != nullptr) at = &(*at)->older;
    return at;
  }

  void* Unlink(Block** at) {
    Block* const block = *at;
    *at = block->older;
    bytes_ -= block->capacity;
    return block;
  }

  mutable std::mutex mutex_;
  bool keep_ = false;
  Block* newest_ = nullptr;
  size_t bytes_ = 0;
};

// Never destroyed: arrays with static storage are freed late.
FreedBlocks*& TheFreedBlocks() {
  static FreedBlocks* freed = new FreedBlocks;
  return freed;
}

static thread_local size_t reused_bytes = 0;

void* AllocateLarge(size_t bytes) {
  const size_t capacity = Capacity(bytes);
  void* memory = TheFreedBlocks()->Take(capacity);
  if (memory == nullptr) {
    memory = ::operator new(capacity, std::align_val_t(kHugePage));
  } else {
    reused_bytes += capacity;
  }
  // Whole pages of the array only: the rest of its capacity shall not be committed. Refused where
  // there are no huge pages, which is no error.
  const size_t whole = bytes / kHugePage * kHugePage;
  if (whole > 0) (void)madvise(memory, whole, MADV_HUGEPAGE);
  return memory;
}

void FreeLarge(void* memory, size_t bytes) noexcept {
  TheFreedBlocks()->Put(memory, Capacity(bytes));
}

void KeepFreedMemory() {
  mallopt(M_TRIM_THRESHOLD, kKeepHeapBytes);
  mallopt(M_MMAP_THRESHOLD, kMapFromBytes);
  TheFreedBlocks()->Keep();
}

void ReleaseFreedLarge(Clock::duration age) { TheFreedBlocks()->ReleaseBefore(Clock::now() - age); }

size_t FreedLargeBytes() { return TheFreedBlocks()->bytes(); }

size_t ReusedLargeBytes() { return reused_bytes; }

size_t CommittedBytes(size_t size, size_t touched) {
  if (size < kLargeBytes) return touched;
  return std::min(size, (touched + kHugePage - 1) / kHugePage * kHugePage);
}

}  // namespace spaid::kernels
