// The memory of a test program, counted: counted_memory.cc, which it is linked with, replaces
// operator new and delete.
#pragma once

#include <atomic>
#include <cstdint>

namespace spaid {

// Bytes in use and their peak, over all threads.
extern std::atomic<int64_t> g_live, g_peak;
// More than this is not to be had, except in small pieces.
extern std::atomic<int64_t> g_limit;

}  // namespace spaid
