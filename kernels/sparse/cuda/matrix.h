// A canonical square CSC matrix on a device.
#pragma once

#include <cstdint>

#include "kernels/base/copy_ahead.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/matrix.h"

namespace spaid::cuda {

// The view that kernels read.
struct PatternRef {
  int64_t n = 0;
  const int64_t* col_ptr = nullptr;
  const int32_t* row_idx = nullptr;
};

struct Matrix {
  int64_t n = 0, nnz = 0;
  Buffer<int64_t> col_ptr;
  Buffer<int32_t> row_idx;
  Buffer<double> values;
  uint64_t pattern_hash = 0;  // of n, col_ptr and row_idx

  PatternRef pattern() const { return {n, col_ptr.get(), row_idx.get()}; }
};

// Copies a matrix from the host and waits for it. `values` may be null: a pattern. `ahead`: null,
// or has the beginning of an array there; of `values`, that is not copied again.
Matrix UploadMatrix(Context& context, const kernels::PatternView& a, const double* values,
                    kernels::CopyAhead* ahead = nullptr);
// New values for a matrix that is there.
void UploadValues(Context& context, const double* values, Matrix& matrix,
                  kernels::CopyAhead* ahead = nullptr);

}  // namespace spaid::cuda
