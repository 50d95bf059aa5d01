// Counts times in buckets whose width grows with the time: percentiles to under a percent in a
// fixed 40 KB, however many there are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spaid::load {

// Thread-compatible.
class Histogram {
 public:
  // Adds a time; below 0 counts as 0, and times beyond the last bucket's two hours count there
  // (max_ms() is exact).
  void Add(double milliseconds);

  int64_t count() const { return count_; }
  double max_ms() const { return max_ms_; }
  double mean_ms() const { return count_ > 0 ? sum_ms_ / static_cast<double>(count_) : 0; }
  // Returns the time that a share `q` of (0, 1] did not exceed: the upper end of its bucket, so
  // never less than the truth, and at most 1/128 and a nanosecond more. 0 if the histogram is
  // empty.
  double Percentile(double q) const;

 private:
  // Nanoseconds below 2^7 one by one; above, 2^7 buckets an octave, up to 2^43.
  static constexpr int kSubBits = 7, kTopBit = 43;
  static constexpr int64_t kSub = int64_t{1} << kSubBits;
  static constexpr int64_t kTop = (int64_t{1} << kTopBit) - 1;
  static size_t IndexOf(int64_t ns);
  static int64_t UpperEnd(size_t index);

  std::array<int64_t, static_cast<size_t>(kSub) * (kTopBit - kSubBits + 1)> buckets_{};
  int64_t count_ = 0;
  double sum_ms_ = 0, max_ms_ = 0;
};

}  // namespace spaid::load
