#include "kernels/sparse/scan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace spaid::kernels {
namespace {

// Values of a piece that the first cache holds: a second look at them is nearly free.
constexpr size_t kPiece = 2048;

// Largest, smallest (zeros included) and whether all are numbers.
struct Extremes {
  double largest = 0;
  double smallest = std::numeric_limits<double>::infinity();
  bool numbers = true;
};

Extremes ExtremesOf(std::span<const double> values) {
  typedef double Vec __attribute__((vector_size(16)));
  typedef int64_t Mask __attribute__((vector_size(16)));
  constexpr size_t kWidth = 2, kVectors = 4;  // as many at once as hide a comparison's latency
  const Mask no_sign = Mask{} + std::numeric_limits<int64_t>::max();
  Vec largest[kVectors] = {}, smallest[kVectors];
  Mask nan[kVectors] = {};
  std::fill(smallest, smallest + kVectors, Vec{} + std::numeric_limits<double>::infinity());
  constexpr size_t kStep = kWidth * kVectors;
  const size_t whole = values.size() / kStep * kStep;
  for (size_t p = 0; p < whole; p += kStep) {
    for (size_t l = 0; l < kVectors; ++l) {
      Mask bits;
      std::memcpy(&bits, &values[p + kWidth * l], sizeof(bits));
      const Vec v = (Vec)(bits & no_sign);
      nan[l] |= v != v;
      largest[l] = v > largest[l] ? v : largest[l];
      smallest[l] = v < smallest[l] ? v : smallest[l];
    }
  }
  Extremes all;
  const auto add = [&all](double high, double low, bool is_nan) {
    all.largest = std::max(all.largest, high);
    all.smallest = std::min(all.smallest, low);
    all.numbers = all.numbers && !is_nan;
  };
  for (size_t l = 0; l < kVectors; ++l) {
    for (size_t k = 0; k < kWidth; ++k) add(largest[l][k], smallest[l][k], nan[l][k] != 0);
  }
  for (size_t p = whole; p < values.size(); ++p) {
    const double v = std::abs(values[p]);
    add(v, v, std::isnan(v));
  }
  return all;
}

}  // namespace

void ValueRange::Add(const ValueRange& other) {
  largest = std::max(largest, other.largest);
  smallest = std::min(smallest, other.smallest);
  zeros += other.zeros;
  finite = finite && other.finite;
}

ValueRange RangeOf(std::span<const double> values) {
  ValueRange range;
  for (size_t at = 0; at < values.size(); at += kPiece) {
    const auto piece = values.subspan(at, std::min(kPiece, values.size() - at));
    const Extremes extremes = ExtremesOf(piece);
    range.Add({extremes.largest, extremes.smallest > 0 ? extremes.smallest : range.smallest, 0,
               extremes.numbers && std::isfinite(extremes.largest)});
    if (extremes.smallest > 0) continue;
    for (const double v : piece) {
      if (v == 0) {
        ++range.zeros;
      } else {
        range.smallest = std::min(range.smallest, std::abs(v));
      }
    }
  }
  return range;
}

int64_t OrderScan::Add(std::span<const int64_t> pointers, const int32_t* indices, int64_t begin,
                       int64_t end) {
  const auto outside = [this](int32_t index) {
    return static_cast<uint32_t>(index) | (last_ - static_cast<uint32_t>(index));
  };
  if (begin == 0 && end > 0) outside_ |= outside(indices[0]);
  const int64_t first = std::max<int64_t>(begin, 1);
  constexpr int64_t kBlock = 1 << 12;  // its descents are counted in 32 bits, as wide as an index
  for (int64_t block = first; block < end; block += kBlock) {
    const int64_t block_end = std::min(block + kBlock, end);
    uint32_t beyond = 0;
    int32_t in_block = 0;
    for (int64_t p = block; p < block_end; ++p) {
      beyond |= outside(indices[p]);
      in_block += indices[p] <= indices[p - 1] ? 1 : 0;
    }
    outside_ |= beyond;
    descents_ += in_block;
  }
  // Each descent must be where a column begins.
  int64_t before = first - 1;
  int64_t j = 0;
  const auto size = static_cast<int64_t>(pointers.size());
  for (; j < size; ++j) {
    const int64_t p = pointers[static_cast<size_t>(j)];
    if (p >= end) break;
    if (p <= before) continue;  // an empty column's, or one that validation refuses
    descents_ -= indices[p] <= indices[p - 1] ? 1 : 0;
    before = p;
  }
  return j;
}

void ArrivalScan::AddIndices(std::span<const int64_t> pointers, std::span<const int32_t> indices,
                             int64_t from) {
  if (from != indices_) return;  // what lies between was not seen
  indices_ = static_cast<int64_t>(indices.size());
  column_ +=
      order_.Add(pointers.subspan(static_cast<size_t>(column_)), indices.data(), from, indices_);
}

void ArrivalScan::AddValues(std::span<const double> values) {
  range_.Add(RangeOf(values));
  values_ += static_cast<int64_t>(values.size());
}

KnownOfArrays ArrivalScan::Known(int64_t nnz) const {
  KnownOfArrays known;
  known.canonical_indices = indices_ == nnz && order_.canonical();
  if (values_ == nnz) known.range = range_;
  return known;
}

}  // namespace spaid::kernels
