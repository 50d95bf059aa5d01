// A canonical CSC matrix on a device by its rows, which is its transpose by columns.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context_cuda.h"
#include "kernels/sparse/cuda/matrix_cuda.h"

namespace spaid::cuda {

// a_ij; 0 where there is none.
__device__ inline double EntryAt(const PatternRef& a, const double* values, int64_t i, int32_t j) {
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
  return low < end && a.row_idx[low] == i ? values[low] : 0;
}

// The entries of A by rows, columns ascending, `cols` among them; 20 bytes an entry of scratch.
void SortByRows(Context& context, const PatternRef& a, int64_t nnz, const Buffer<int64_t>& row_ptr,
                const Buffer<int32_t>& cols);

// Aᵀ by columns; without a hash. 20 bytes an entry while it is made, its indices among them, 12 in
// the end.
Matrix Transpose(Context& context, const PatternRef& a, int64_t nnz, const double* values);

}  // namespace spaid::cuda
