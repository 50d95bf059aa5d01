// The matrix that multigrid works on, and its near-null vector, on a device: kernels/amg/scaling.h
// for one unknown a node and one near-null vector, with the host's bits.
//
//   auto a = ScaleToUnitDiagonal(context, std::move(rows), symmetric, given);
#pragma once

#include <optional>
#include <span>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// kernels::UnitScaled and NearNull, on the device.
struct UnitScaled {
  RowMatrix rows;
  Buffer<double> scale;  // empty: ones
  double sign = 1, beta = 0;
  Buffer<double> near_null;  // empty: ones
  double rayleigh = 0;
};

// Scales A, by rows. `given`: the near-null vector of the caller, of finite elements; empty:
// constants. Nothing where the diagonal has a zero, or, of a symmetric A,
// both signs. Scratch: 64 bytes a row. Waits for the device. Throws Failure.
std::optional<UnitScaled> ScaleToUnitDiagonal(Context& context, RowMatrix a, bool symmetric,
                                              std::span<const double> given);

}  // namespace spaid::cuda
