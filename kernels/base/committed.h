// How much of an array is memory really: for those who count it.
#pragma once

#include <cstddef>

namespace spaid::kernels {

// Of an array of `size` bytes whose first `touched` are: what is committed, which is whole huge
// pages where it is a large one (memory.h).
size_t CommittedBytes(size_t size, size_t touched);

// Bytes that AllocateLarge has given this thread out of what was kept, in all: committed before
// they are touched.
size_t ReusedLargeBytes();

}  // namespace spaid::kernels
