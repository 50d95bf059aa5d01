// Memory of large arrays: on huge pages where the kernel gives them on request, so that the first
// touch of an array costs one fault per 2 MiB and a gather misses the TLB less often; and, in a
// process that asks for it, kept for a while after use, because that first touch costs more than
// most of what is done with a page.
#pragma once

#include <chrono>
#include <cstddef>

namespace spaid::kernels {

// From this size on an array is large.
inline constexpr size_t kLargeBytes = size_t{4} << 20;

// Uninitialised, aligned to 2 MiB; only what is touched is committed. Throws std::bad_alloc.
// Thread-safe.
void* AllocateLarge(size_t bytes);
// `bytes`: as it was allocated. Kept for the next allocation of about this size (sizes go up in
// steps of an eighth) where KeepFreedMemory asked for it.
void FreeLarge(void* memory, size_t bytes) noexcept;

// From now on what is freed is kept: large arrays until ReleaseFreedLarge, and of smaller pieces
// some megabytes by malloc. Keeping large arrays never makes a process larger than it was before:
// an allocation that finds none of its size first gives back as much of what is kept. Off at first.
// Thread-safe.
void KeepFreedMemory();
// Gives back what has been kept for longer than `age`.
void ReleaseFreedLarge(std::chrono::steady_clock::duration age);
size_t FreedLargeBytes();

// The freed blocks of the process. libspaid_cuda.so is given the program's (cuda_loader.h).
class FreedBlocks;
FreedBlocks*& TheFreedBlocks();

}  // namespace spaid::kernels
