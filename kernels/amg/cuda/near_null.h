// Several near-null vectors on a device, with the host's bits (kernels/amg/scaling.h); their
// quotients are the host's to rounding.
#pragma once

#include "kernels/amg/set_up_rules.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

struct NearVectors {
  Buffer<double> values;  // n x count, by columns
  double rayleigh = 0;    // the largest quotient of a column
};

// Makes the near-null vectors of the scaled A, by rows: the given ones, or where there are none a
// unit vector for each of `count` unknowns of a node, over `scale` (empty: ones). `given.count` is
// `count` where it has values. Scratch: 8 bytes an element. Waits for the device. Throws Failure.
NearVectors MakeNearVectors(Context& context, const RowMatrix& a, const Buffer<double>& scale,
                            const kernels::GivenVectors& given, int count);

}  // namespace spaid::cuda
