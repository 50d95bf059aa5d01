#include "client/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace spaid::load {
namespace {

constexpr double kNsOfMs = 1e6;

}  // namespace

size_t Histogram::IndexOf(int64_t ns) {
  if (ns < kSub) return static_cast<size_t>(ns);
  const int shift = std::bit_width(static_cast<uint64_t>(ns)) - 1 - kSubBits;
  return static_cast<size_t>((shift + 1) * kSub + (ns >> shift) - kSub);
}

int64_t Histogram::UpperEnd(size_t index) {
  const auto i = static_cast<int64_t>(index);
  if (i < kSub) return i;
  const int64_t shift = i / kSub - 1;
  return ((i % kSub + kSub + 1) << shift) - 1;
}

void Histogram::Add(double milliseconds) {
  const double ms = milliseconds > 0 ? milliseconds : 0;  // NaN, too
  const double ns = std::min(std::ceil(ms * kNsOfMs), static_cast<double>(kTop));
  ++buckets_[IndexOf(static_cast<int64_t>(ns))];
  ++count_;
  sum_ms_ += ms;
  max_ms_ = std::max(max_ms_, ms);
}

double Histogram::Percentile(double q) const {
  if (count_ == 0) return 0;
  const auto wanted = std::clamp(static_cast<int64_t>(std::ceil(q * static_cast<double>(count_))),
                                 int64_t{1}, count_);
  int64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= wanted) {
      return std::min(static_cast<double>(UpperEnd(i)) / kNsOfMs, max_ms_);
    }
  }
  return max_ms_;
}

}  // namespace spaid::load
