// Limits that the control groups of Linux (v1, v2 and the mixed form) set this process.
#pragma once

#include <cstdint>
#include <string>

namespace spaid::kernels {

struct CgroupLimits {
  double cpus = 0;           // quota / period of the tightest group on the path; 0: no limit
  int64_t memory_bytes = 0;  // of the tightest group on the path; 0: no limit
};

// Reads `root`/proc/self/cgroup and the files under `root`/sys/fs/cgroup. A group binds with all
// of its parents, so the whole path up to the mount is read. What is absent or unreadable is no
// limit. `root` is empty but in tests. Thread-safe.
CgroupLimits ReadCgroupLimits(const std::string& root = "");

}  // namespace spaid::kernels
