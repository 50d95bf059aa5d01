// The matrix that multigrid works on, and its near-null vectors, on a device:
// kernels/amg/scaling.h, with the host's bits.
//
//   auto a = ScaleToUnitDiagonal(context, std::move(rows), symmetric, given, block);
#pragma once

#include <optional>

#include "kernels/amg/set_up_rules.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// kernels::UnitScaled and NearNull, on the device.
struct UnitScaled {
  RowMatrix rows;
  Buffer<double> scale;  // empty: ones
  double sign = 1, beta = 0;
  int near_count = 1;
  Buffer<double> near_null;  // n x near_count, by columns; empty: ones
  double rayleigh = 0;
};

// Scales A, by rows. `given`: VectorsToMake's, without values constants, one for each of the
// `block` unknowns of a node. Nothing where the diagonal has a zero, or, of a symmetric A, both
// signs. Scratch: 48 bytes a row, and 8 an element of near-null vectors. Waits for the device.
// Throws Failure.
std::optional<UnitScaled> ScaleToUnitDiagonal(Context& context, RowMatrix a, bool symmetric,
                                              const kernels::GivenVectors& given, int block);

}  // namespace spaid::cuda
