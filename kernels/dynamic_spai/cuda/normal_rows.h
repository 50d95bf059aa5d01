// The normal equations that dynamic SPAI grows its columns by, on a CUDA device.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/grow_columns.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

struct GramInfo {
  int64_t nnz = 0;  // entries of ÂᵀÂ
  double flops = 0;
};

// ÂᵀÂ and −Â of Â = A D^−1/2, D the squares of the lengths of A's columns, none of which is 0:
// summed in fp64, rounded to Real. A sum is in the order of ascending rows, or, of columns with
// thousands of entries, in one that depends on nothing but the pattern. Where ÂᵀÂ
// has no room, the Refusal is RESOURCE_EXHAUSTED/GRAM_TOO_LARGE. Waits.
template <class Real>
fsai::NormalRows<Real> MakeNormalRows(Context& context, const Matrix& a, const Caller& caller,
                                      GramInfo& info);

}  // namespace spaid::cuda
