// Runs of rows with the same columns: those of the unknowns of a node. A product reads the columns
// and x once for all rows of a run.
//
//   Array<uint8_t> runs = FindRowRuns(rows, threads);  // empty: not worth it
//   MultiplyRuns<4>(rows.col_ptr.data(), rows.row_idx.data(), values, runs.data(), begin, end, x,
//                   [&](int64_t i, double sum) { y[i] = sum; });
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/base/hot_kernel.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

inline constexpr int kMostRun = 4;

// Rows from i on that have the columns of row i: 1 .. kMostRun, those before `end`.
int RowRun(const PatternView& rows, int64_t i, int64_t end);

// For each row how many from it on have its columns, 1 .. kMostRun; 0 of rows inside of a run.
// `rows` canonical. Empty where less than half of the entries are in runs of several rows. The same
// for any number of threads.
Array<uint8_t> FindRowRuns(const PatternView& rows, int threads);

// Products of kRows rows of `count` entries, each summed in kLanes partial sums, what is left over
// in the first.
template <int kRows, int kLanes, class Value, class Sum, class Take>
SPAID_INLINE void MultiplyRun(const int32_t* column, const Value* value, int64_t count,
                              const Sum* x, int64_t row, const Take& take) {
  typedef Sum Lanes __attribute__((vector_size(sizeof(Sum) * kLanes)));
  typedef Value Stored __attribute__((vector_size(sizeof(Value) * kLanes)));
  Lanes sums[kRows] = {};
  int64_t p = 0;
  for (; p + kLanes <= count; p += kLanes) {
    Lanes of_x;
#pragma GCC unroll 8
    for (int l = 0; l < kLanes; ++l) of_x[l] = x[column[p + l]];
#pragma GCC unroll 4
    for (int k = 0; k < kRows; ++k) {
      Stored stored;
      std::memcpy(&stored, value + k * count + p, sizeof(stored));
      sums[k] += __builtin_convertvector(stored, Lanes) * of_x;
    }
  }
  Sum rest[kRows];
#pragma GCC unroll 4
  for (int k = 0; k < kRows; ++k) rest[k] = sums[k][0];
  for (; p < count; ++p) {
    const Sum of_x = x[column[p]];
#pragma GCC unroll 4
    for (int k = 0; k < kRows; ++k) rest[k] += value[k * count + p] * of_x;
  }
#pragma GCC unroll 4
  for (int k = 0; k < kRows; ++k) {
    sums[k][0] = rest[k];
    // By halves of neighbours: of four lanes (0 + 1) + (2 + 3).
    for (int width = 1; width < kLanes; width *= 2) {
      for (int l = 0; l < kLanes; l += 2 * width) sums[k][l] += sums[k][l + width];
    }
    take(row + k, sums[k][0]);
  }
}

// take(i, A x of row i) of the rows [begin, end), both beginnings of runs.
template <int kLanes, class Value, class Sum, class Take>
SPAID_INLINE void MultiplyRuns(const int64_t* ptr, const int32_t* column, const Value* value,
                               const uint8_t* runs, int64_t begin, int64_t end, const Sum* x,
                               const Take& take) {
  for (int64_t i = begin; i < end; i += runs[i]) {
    const int64_t at = ptr[i], count = ptr[i + 1] - at;
    switch (runs[i]) {
      case 1:
        MultiplyRun<1, kLanes>(column + at, value + at, count, x, i, take);
        break;
      case 2:
        MultiplyRun<2, kLanes>(column + at, value + at, count, x, i, take);
        break;
      case 3:
        MultiplyRun<3, kLanes>(column + at, value + at, count, x, i, take);
        break;
      default:
        MultiplyRun<kMostRun, kLanes>(column + at, value + at, count, x, i, take);
    }
  }
}

}  // namespace spaid::kernels
