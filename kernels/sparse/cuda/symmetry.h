// Whether a matrix on a device is its own transpose.
#pragma once

#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/node_products.h"

namespace spaid::cuda {

// Whether A = Aᵀ, entry by entry, as IsExactlySymmetric of kernels/krylov/operators.h tells it on
// the host. `values`: A's. Waits for the device.
bool IsExactlySymmetric(Context& context, const PatternRef& a, const double* values);
// The same but for rounding, as CompareMirrors (kernels/sparse/symmetry.h) tells it on the host.
bool IsNumericallySymmetric(Context& context, const PatternRef& a, const double* values);
// The same of a square A by nodes, whose own matrix is there: entries are looked for once a block.
// *exactly receives IsExactlySymmetric's answer.
bool IsNumericallySymmetric(Context& context, const NodeMatrix& a, bool* exactly);

}  // namespace spaid::cuda
