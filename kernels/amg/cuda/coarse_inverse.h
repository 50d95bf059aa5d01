// The inverse of the coarsest level's matrix, made on a device: kernels/amg/coarse_inverse.h.
#pragma once

#include <optional>

#include "kernels/amg/coarse_inverse.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// Inverts a matrix by rows with the host's bits, all unknowns in one launch whose blocks wait for
// one another. Nothing of more than 2048 rows, or with values that are not finite: those are the
// host's. Scratch: 16 bytes an element. Waits for the device. Throws Failure.
std::optional<kernels::CoarseInverse> InvertCoarse(Context& context, const RowMatrix& a,
                                                   bool symmetric);

}  // namespace spaid::cuda
