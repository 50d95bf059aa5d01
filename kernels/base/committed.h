// How much of an array is memory really: for those who count it.
#pragma once

#include <cstddef>

namespace spaid::kernels {

// The bytes committed of an array of `size` whose first `touched` are written: whole huge pages
// where it is a large one (memory.h).
size_t CommittedBytes(size_t size, size_t touched);

// Bytes that AllocateLarge has given this thread out of what was kept, in all: committed before
// they are touched.
size_t ReusedLargeBytes();

}  // namespace spaid::kernels
