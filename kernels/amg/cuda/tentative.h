// The tentative prolongation on a device: kernels/amg/tentative.h for one unknown a node and one
// near-null vector, with the host's bits.
#pragma once

#include "kernels/amg/cuda/aggregation.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

struct Tentative {
  RowMatrix p;            // P0
  Buffer<double> coarse;  // P0 coarse = the near-null vector; empty: ones
};

// Makes P0 of a near-null vector (empty: ones). Scratch: 20 bytes a node where it is not of ones.
// Waits for the device, but of ones. Throws Failure.
Tentative MakeTentative(Context& context, const Aggregates& aggregates,
                        const Buffer<double>& near_null);

}  // namespace spaid::cuda
