#include "kernels/static_spai/long_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

using static_spai_tuning::kLongColumn;
using static_spai_tuning::kLongFactor;

// Sets of columns that UnionSizes remembers: hubs are few, and so are their combinations.
constexpr size_t kMaxKnownUnions = 4096;

int64_t Length(const PatternView& a, int32_t column) {
  return a.col_ptr[static_cast<size_t>(column) + 1] - a.col_ptr[static_cast<size_t>(column)];
}

DoubleDouble Dot(const CscView& a, std::span<const double> scale, const LongPair& pair) {
  const auto rows0 = a.column(pair.first), rows1 = a.column(pair.second);
  const auto values0 = a.column_values(pair.first), values1 = a.column_values(pair.second);
  const double scale0 = scale[static_cast<size_t>(pair.first)];
  const double scale1 = scale[static_cast<size_t>(pair.second)];
  DoubleDouble dot;
  for (size_t p = 0, q = 0; p < rows0.size() && q < rows1.size();) {
    if (rows0[p] == rows1[q]) {
      dot.AddProduct(values0[p++] * scale0, values1[q++] * scale1, 1);
    } else if (rows0[p] < rows1[q]) {
      ++p;
    } else {
      ++q;
    }
  }
  return dot;
}

}  // namespace

void DoubleDouble::Add(double x) {
  const double sum = high_ + x;
  const double part = sum - high_;
  low_ += (high_ - (sum - part)) + (x - part);
  high_ = sum;
}

void DoubleDouble::AddProduct(double x, double y, double sign) {
  const double product = x * y;
  const double error = std::fma(x, y, -product);
  Add(sign * product);
  low_ += sign * error;
}

void DoubleDouble::Normalize() {
  const double low = low_;
  low_ = 0;
  Add(low);
}

DoubleDouble DoubleDouble::Product(const DoubleDouble& x, const DoubleDouble& y) {
  const double high = x.high_ * y.high_;
  const double low = std::fma(x.high_, y.high_, -high) + (x.high_ * y.low_ + x.low_ * y.high_);
  return {high, low};
}

void DoubleDouble::SubtractQuotient(const DoubleDouble& x, const DoubleDouble& y,
                                    const DoubleDouble& z) {
  const DoubleDouble product = Product(x, y);
  // One step of long division: what the first quotient leaves is exact in twice the precision.
  const double first = product.value() / z.value();
  const DoubleDouble back = Product({first, 0}, z);
  DoubleDouble rest = product;
  rest.Add(-back.high_);
  rest.Add(-back.low_);
  const double second = rest.value() / z.value();
  Add(-first);
  Add(-second);
}

LongColumns FindLongColumns(const PatternView& a, std::span<const int32_t> columns) {
  int64_t total = 0, longest = 0;
  for (const int32_t j : columns) {
    const int64_t length = Length(a, j);
    total += length;
    longest = std::max(longest, length);
  }
  LongColumns longs;
  if (longest <= kLongColumn) return longs;
  // The longest ones first; of equal length, the lower position.
  int64_t lengths[kMaxLongColumns];
  int found = 0;
  for (size_t q = 0; q < columns.size(); ++q) {
    const int64_t length = Length(a, columns[q]);
    if (length <= kLongColumn) continue;
    int to = found;
    while (to > 0 && lengths[to - 1] < length) --to;
    if (to == kMaxLongColumns) continue;
    found = std::min(found + 1, kMaxLongColumns);
    for (int i = found - 1; i > to; --i) {
      lengths[i] = lengths[i - 1];
      longs.at[i] = longs.at[i - 1];
    }
    lengths[to] = length;
    longs.at[to] = static_cast<int32_t>(q);
  }
  int64_t rest = total;
  for (int i = 0; i < found; ++i) {
    rest -= lengths[i];
    if (lengths[i] > kLongFactor * rest) longs.count = i + 1;
  }
  std::sort(longs.at, longs.at + longs.count);
  return longs;
}

void LongPairs::Add(const LongColumns& longs, std::span<const int32_t> columns) {
  for (int i = 0; i < longs.count; ++i) {
    for (int j = i; j < longs.count; ++j) {
      pairs_.push_back(
          {columns[static_cast<size_t>(longs.at[i])], columns[static_cast<size_t>(longs.at[j])]});
    }
  }
  // Most problems name the same few pairs.
  if (pairs_.size() > 2 * united_ + 1024) Unite();
}

void LongPairs::Unite() {
  std::sort(pairs_.begin(), pairs_.end());
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  united_ = pairs_.size();
}

Array<LongPair> LongPairs::Merge(std::span<LongPairs> parts) {
  LongPairs all;
  for (LongPairs& part : parts) {
    all.pairs_.insert(all.pairs_.end(), part.pairs_.begin(), part.pairs_.end());
    part.pairs_ = {};
  }
  all.Unite();
  return Array<LongPair>(all.pairs_.begin(), all.pairs_.end());
}

int64_t CountLong(const PatternView& a) {
  int64_t longs = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) longs += Length(a, static_cast<int32_t>(j)) > kLongColumn;
  return longs;
}

int64_t MaxLongPairs(int64_t longs, int64_t n) {
  return std::min(longs * (longs + 1) / 2, n * (kMaxLongColumns * (kMaxLongColumns + 1) / 2));
}

Array<LongDot> LongDots(const CscView& a, std::span<const double> scale,
                        std::span<const LongPair> pairs, int threads) {
  Array<LongDot> dots(pairs.size());
  ParallelFor(static_cast<int64_t>(pairs.size()), 4, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const LongPair& pair = pairs[static_cast<size_t>(i)];
      dots[static_cast<size_t>(i)] = {pair, Dot(a, scale, pair)};
    }
  });
  return dots;
}

void LongTriangle(int count, DoubleDouble* gram, const double* full, double* r) {
  // Rounding that earlier subtractions may leave in place of an exact zero.
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  constexpr double kNothing = 64 * kEpsilon * kEpsilon;
  std::fill(r, r + count * count, 0.0);
  for (int k = 0; k < count; ++k) {
    for (int i = k; i < count; ++i) {
      for (int j = i; j < count; ++j) gram[i * count + j].Normalize();
    }
    const DoubleDouble pivot = gram[k * count + k];
    if (!(pivot.value() > kNothing * full[k])) continue;  // depends on the columns before it
    const double root = std::sqrt(pivot.value());
    r[k * count + k] = root;
    for (int j = k + 1; j < count; ++j) r[k * count + j] = gram[k * count + j].value() / root;
    for (int i = k + 1; i < count; ++i) {
      for (int j = i; j < count; ++j) {
        gram[i * count + j].SubtractQuotient(gram[k * count + i], gram[k * count + j], pivot);
      }
    }
  }
}

int64_t UnionSizes::Get(const PatternView& a, const LongColumns& longs,
                        std::span<const int32_t> columns) {
  if (longs.count == 1) return Length(a, columns[static_cast<size_t>(longs.at[0])]);
  std::vector<int32_t> set;
  for (int i = 0; i < longs.count; ++i) set.push_back(columns[static_cast<size_t>(longs.at[i])]);
  if (const auto known = known_.find(set); known != known_.end()) return known->second;
  rows_.clear();
  for (const int32_t j : set) {
    const auto rows = a.column(j);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }
  std::sort(rows_.begin(), rows_.end());
  const auto size = static_cast<int64_t>(std::unique(rows_.begin(), rows_.end()) - rows_.begin());
  if (known_.size() >= kMaxKnownUnions) known_.clear();
  known_.emplace(std::move(set), size);
  return size;
}

}  // namespace spaid::kernels
