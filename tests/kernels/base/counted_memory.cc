#include "tests/kernels/base/counted_memory.h"

#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace spaid {

std::atomic<int64_t> g_live{0}, g_peak{0}, g_limit{INT64_MAX};

}  // namespace spaid

namespace {

using spaid::g_limit;
using spaid::g_live;
using spaid::g_peak;

constexpr size_t kSmallPiece = 1024;

void* Allocate(size_t size, size_t alignment) {
  if (size > kSmallPiece && g_live + static_cast<int64_t>(size) > g_limit) throw std::bad_alloc();
  void* p = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    p = std::malloc(size);
  } else if (posix_memalign(&p, alignment, size) != 0) {
    p = nullptr;
  }
  if (p == nullptr) throw std::bad_alloc();
  const int64_t live = g_live += static_cast<int64_t>(malloc_usable_size(p));
  int64_t peak = g_peak;
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
  return p;
}

void Release(void* p) noexcept {
  if (p != nullptr) g_live -= static_cast<int64_t>(malloc_usable_size(p));
  std::free(p);
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, 1); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {  // std::stable_partition's buffer
  try {
    return Allocate(size, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { Release(p); }
void operator delete(void* p, size_t) noexcept { Release(p); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* p, std::align_val_t) noexcept { Release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { Release(p); }
