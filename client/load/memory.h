// Tracks the resident memory of a process over the jobs of a run.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace spaid::load {

// Returns the resident memory in MiB; negative if there is no such process, or it cannot be read.
double ResidentMib(int64_t pid);

// Keeps a bounded number of samples: in a long run every second one is dropped, again and again.
// Thread-compatible.
class MemoryTrack {
 public:
  void Add(int64_t jobs, double mib);
  bool empty() const { return samples_.empty(); }
  double first_mib() const { return samples_.front().second; }
  double last_mib() const { return samples_.back().second; }
  // Returns the growth, by least squares over the second half of the samples: the first half fills
  // stores and arenas up to their limits, a leak shows in the second.
  double KibPer1000Jobs() const;

 private:
  std::vector<std::pair<double, double>> samples_;  // jobs, MiB
  int64_t stride_ = 1, seen_ = 0;
};

}  // namespace spaid::load
