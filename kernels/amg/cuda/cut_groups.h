// Rows of a prolongation with several columns for each aggregate, cut on a device: the host's
// Truncation (kernels/amg/truncation.h), with its bits.
#pragma once

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// Returns P with at most `most` aggregates a row, of `count` > 1 columns each: the largest by their
// norm (ties: the lower number). Waits for the device.
RowMatrix CutGroups(Context& context, const RowMatrix& whole, int count, int most);

}  // namespace spaid::cuda
