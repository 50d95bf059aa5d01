// Power steps with a product of matrices on a device, for bounds on spectral radii.
//
//   double norm = PowerNorm(context, {{a.pattern(), a.values.get()}}, 12);
#pragma once

#include <initializer_list>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/node_products.h"

namespace spaid::cuda {

// A square matrix by rows, or by `nodes` of as many rows as columns, of which the number of rows is
// known besides; null: by rows. Values by nodes are rounded to fp32 (`rounded`; null: not yet):
// half the bytes, for a bound that what they lose hardly changes.
struct PowerFactor {
  PatternRef rows;
  const double* values = nullptr;
  const NodeMatrix* nodes = nullptr;
  const float* rounded = nullptr;
};

// Returns ‖x‖ after so many steps x ← F_k … F_1 x / ‖x‖ from the x that the host begins with, with
// the factors applied from the first to the last. Sums are in another order than the host's, in
// each run the same. Scratch: 16 bytes a row, and 4 an entry by nodes. Waits for the device.
double PowerNorm(Context& context, std::initializer_list<PowerFactor> factors, int steps);
// The same, element `steps` of what it returns. Does not wait.
Buffer<double> PowerNorms(Context& context, std::initializer_list<PowerFactor> factors, int steps);

}  // namespace spaid::cuda
