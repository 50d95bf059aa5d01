#include "kernels/base/memory.h"

#include <sys/mman.h>

#include <new>

namespace spaid::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void* AllocateLarge(size_t bytes) {
  void* memory = ::operator new(bytes, std::align_val_t(kHugePage));
  // Whole pages only: what follows the array may be another's. Refused where there are no huge
  // pages, which is no error.
  const size_t whole = bytes / kHugePage * kHugePage;
  if (whole > 0) (void)madvise(memory, whole, MADV_HUGEPAGE);
  return memory;
}

void FreeLarge(void* memory) noexcept { ::operator delete(memory, std::align_val_t(kHugePage)); }

}  // namespace spaid::kernels
