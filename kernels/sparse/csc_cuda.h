// Matrices of the host as the C interface of libspaid_cuda.so takes them.
#pragma once

#include "kernels/base/cuda/cuda_abi.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Borrowed. `values`: nnz, of the pattern's entries; null: there are none.
inline SpaidCudaCsc CudaCsc(const PatternView& a, const double* values = nullptr) {
  return {a.n_cols, a.nnz(), a.col_ptr.data(), a.row_idx.data(), values};
}
inline SpaidCudaCsc CudaCsc(const CscView& a) { return CudaCsc(a, a.values.data()); }

}  // namespace spaid::kernels
