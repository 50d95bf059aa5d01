// Reads what the system counts of this process.
#pragma once

#include <cstdint>

namespace spaid::server {

struct ProcessFigures {
  double cpu_seconds = 0;    // of all threads, in user and system mode
  double start_seconds = 0;  // since 1970
  int64_t resident_bytes = 0;
  int64_t open_descriptors = 0, max_descriptors = 0;
};

// Returns them as they are now. What cannot be read is 0. Thread-safe.
ProcessFigures ReadProcess();

// Returns the resident set size alone. Thread-safe.
int64_t ResidentBytes();

}  // namespace spaid::server
