// Products of three matrices on a device where that of two has no room at once.
//
//   std::optional<RowMatrix> c = MultiplyInWaves(context, most, between, r, a, p);   // R (A P)
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// Returns C = R (A P) with the bits of MultiplyUpTo and Multiply (products.h): so many rows of C at
// once that the rows of A P which these read have about `most_between` entries, one row at least.
// `ap`: A P, counted. Nothing where C has more than `most_entries`. All waves are made twice, to
// count and to fill the rows of C, and rows of A P that several of them read by each. Scratch: of a
// wave 12 bytes an entry of A P, of R, and of the rows of A that it reads; 12 bytes a row of A.
// Waits for the device some times a wave.
std::optional<RowMatrix> MultiplyInWaves(Context& context, int64_t most_entries,
                                         int64_t most_between, const RowMatrix& r,
                                         const RowMatrix& a, const RowMatrix& p,
                                         const RowMatrix& ap);

}  // namespace spaid::cuda
