// Memory of large arrays: on huge pages where the kernel gives them on request, so that the first
// touch of an array costs one fault per 2 MiB and a gather misses the TLB less often.
#pragma once

#include <cstddef>

namespace spaid::kernels {

// From this size on an array is large.
inline constexpr size_t kLargeBytes = size_t{4} << 20;

// Uninitialised, aligned to 2 MiB; only what is touched is committed. Throws std::bad_alloc.
// Thread-safe.
void* AllocateLarge(size_t bytes);
void FreeLarge(void* memory) noexcept;

}  // namespace spaid::kernels
