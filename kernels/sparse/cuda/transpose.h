// A canonical matrix on a device by its rows, which are its transpose's columns.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// Meaning of the columns of a PatternRef: A's, A's rows, or, where A = Aᵀ entry by entry, both.
enum class Order { kColumns, kRows, kBoth };

// The place of a_ij among the entries; -1: there is none.
__device__ inline int64_t FindEntry(const PatternRef& a, int64_t i, int32_t j) {
  int64_t low = a.col_ptr[j];
  const int64_t end = a.col_ptr[j + 1];
  int64_t high = end;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (a.row_idx[middle] < i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < end && a.row_idx[low] == i ? low : -1;
}
// a_ij; 0 where there is none.
__device__ inline double EntryAt(const PatternRef& a, const double* values, int64_t i, int32_t j) {
  const int64_t at = FindEntry(a, i, j);
  return at >= 0 ? values[at] : 0;
}

// A by rows, columns ascending.
template <class Value>
struct ByRows {
  Buffer<int64_t> row_ptr;  // n + 1
  Buffer<int32_t> cols;
  Buffer<Value> values;            // empty: of a pattern
  int64_t longest = 0, empty = 0;  // entries of the longest row; rows without entries
};

// The entries of A, by columns, by rows; `rows`: of a matrix that is not square; -1: as many as
// columns. `values` null: the pattern alone. Value: double, or float,
// to which they are rounded. Scratch: 12 bytes an entry, 8 where memory is short, 16 where there
// are rows of thousands of entries, and 13 a row. Waits for the device.
template <class Value>
ByRows<Value> SortByRows(Context& context, const PatternRef& a, int64_t nnz, const double* values,
                         int64_t rows = -1);

// Aᵀ by columns; without a hash. As SortByRows.
Matrix Transpose(Context& context, const PatternRef& a, int64_t nnz, const double* values);

}  // namespace spaid::cuda
