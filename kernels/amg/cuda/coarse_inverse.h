// The inverse of the coarsest level's matrix, made on a device: kernels/amg/coarse_inverse.h.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/amg/coarse_inverse.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// The host's CoarseInverse, there.
struct CoarseInverse {
  int64_t n = 0;
  Buffer<double> rows;  // n x n, by rows
  int64_t singular_pivots = 0;
};

// Inverts a matrix by rows with the host's bits, all unknowns in one launch whose blocks have rows
// of their own in shared memory and wait for one another. Nothing of rows that find no room there,
// or with values that are not finite: those are the host's. Scratch: 8 bytes an element. Waits for
// the device. Throws Failure.
std::optional<CoarseInverse> InvertCoarse(Context& context, const RowMatrix& a, bool symmetric);

}  // namespace spaid::cuda
