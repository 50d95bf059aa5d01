#include "kernels/sparse/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/sparse/validation.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ValueRange, OfNothing) {
  const ValueRange range = RangeOf({});
  EXPECT_EQ(range.largest, 0);
  EXPECT_EQ(range.smallest, kInfinity);
  EXPECT_EQ(range.zeros, 0);
  EXPECT_TRUE(range.finite);
}

TEST(ValueRange, WhereverAValueStands) {
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  // Beside whole vectors and pieces, and at their ends.
  for (const size_t size : {1, 7, 8, 9, 2047, 2048, 2049, 5000}) {
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      std::vector<double> values(size, 2);
      values[at] = -3;
      EXPECT_EQ(RangeOf(values).largest, 3);
      values[at] = -kTiny;
      EXPECT_EQ(RangeOf(values).smallest, kTiny);
      EXPECT_EQ(RangeOf(values).zeros, 0);
      values[at] = -0.0;
      EXPECT_EQ(RangeOf(values).zeros, 1);
      EXPECT_EQ(RangeOf(values).smallest, size == 1 ? kInfinity : 2);
      EXPECT_TRUE(RangeOf(values).finite);
      for (const double bad : {kInfinity, -kInfinity, std::nan(""), -std::nan("")}) {
        values[at] = bad;
        EXPECT_FALSE(RangeOf(values).finite) << size << " " << at << " " << bad;
      }
    }
  }
}

TEST(ValueRange, OfPartsIsThatOfTheWhole) {
  std::vector<double> values(10'000);
  std::mt19937 random(3);
  for (double& v : values)
    v = random() % 4 == 0 ? 0 : std::ldexp(1.0 + random() % 7, random() % 90);
  const ValueRange whole = RangeOf(values);
  ValueRange parts;
  for (size_t at = 0; at < values.size(); at += 777) {
    parts.Add(RangeOf(std::span(values).subspan(at, std::min<size_t>(777, values.size() - at))));
  }
  EXPECT_EQ(parts.largest, whole.largest);
  EXPECT_EQ(parts.smallest, whole.smallest);
  EXPECT_EQ(parts.zeros, whole.zeros);
  EXPECT_EQ(whole.zeros, std::count(values.begin(), values.end(), 0.0));
}

// In pieces of `step` entries.
bool InOrder(const CscMatrix& m, int64_t step) {
  ArrivalScan scan(m.n_rows);
  const std::span<const int32_t> indices = m.row_idx;
  for (int64_t at = 0; at < m.nnz(); at += step) {
    scan.AddIndices(m.col_ptr, indices.first(static_cast<size_t>(std::min(at + step, m.nnz()))),
                    at);
  }
  return scan.Known(m.nnz()).canonical_indices;
}

TEST(ArrivalScan, FindsWhatValidationRefusesHoweverItIsCut) {
  std::mt19937 random(5);
  int in_order = 0;
  for (int round = 0; round < 400; ++round) {
    CscMatrix m;
    m.n_rows = m.n_cols = 6;
    m.col_ptr.push_back(0);
    for (int j = 0; j < 6; ++j) {
      for (int32_t i = 0; i < 6; ++i) {
        if (random() % 2 == 0) m.row_idx.push_back(i);
      }
      m.col_ptr.push_back(m.nnz());
    }
    m.values.assign(m.row_idx.size(), 1.0);
    // Half of them with an index that may be wrong: outside, twice, or out of order.
    if (round % 2 == 1 && m.nnz() > 0) {
      m.row_idx[random() % m.row_idx.size()] = static_cast<int32_t>(random() % 8) - 1;
    }
    const bool good = Canonicalize(m, Layout::kCsc, {}).ok();
    in_order += good ? 1 : 0;
    for (const int64_t step : {1, 2, 5, 100}) EXPECT_EQ(InOrder(m, step), good) << round;
  }
  EXPECT_GT(in_order, 200);
  EXPECT_LT(in_order, 350);
}

// Pointers are looked at before they are checked.
TEST(ArrivalScan, ReadsNothingOutsideWhateverThePointersAre) {
  CscMatrix m = Make(3, 3, {0, 1, 2, 3}, {0, 1, 2}, {1, 1, 1});
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& pointers :
       {std::vector<int64_t>{0, kFar, 1, 3}, {-kFar, -1, 2, 3}, {3, 2, 1, 0}, {9, 9, 9, 9}}) {
    m.col_ptr.assign(pointers.begin(), pointers.end());
    InOrder(m, 1);
    InOrder(m, 3);
    ValidationOptions options;
    options.known.canonical_indices = true;
    EXPECT_EQ(Canonicalize(m, Layout::kCsc, options).status().reason(), "BAD_POINTERS");
  }
}

TEST(ArrivalScan, KnowsNothingOfWhatItDidNotSee) {
  const CscMatrix m = Make(2, 2, {0, 2, 4}, {0, 1, 0, 1}, {1, 2, 3, 4});
  ArrivalScan scan(2);
  const std::span<const int32_t> indices = m.row_idx;
  scan.AddIndices(m.col_ptr, indices.first(1), 0);
  scan.AddIndices(m.col_ptr, indices, 2);  // 1 was left out
  scan.AddValues(std::span(m.values).first(3));
  EXPECT_FALSE(scan.Known(4).canonical_indices);
  EXPECT_FALSE(scan.Known(4).range);
  scan.AddIndices(m.col_ptr, indices, 1);
  scan.AddValues(std::span(m.values).last(1));
  EXPECT_TRUE(scan.Known(4).canonical_indices);
  ASSERT_TRUE(scan.Known(4).range);
  EXPECT_EQ(scan.Known(4).range->largest, 4);
}

}  // namespace
}  // namespace spaid::kernels
