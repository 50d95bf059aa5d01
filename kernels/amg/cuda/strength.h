// Which couplings of a matrix are strong, on a device: kernels/amg/strength.h, with the host's
// bits.
//
//   StrongGraph graph = FindStrong(context, a, /*mirror=*/nullptr, 0.15);
#pragma once

#include <cstdint>

#include "kernels/amg/cuda/prolongation.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// kernels::StrongGraph, on the device.
struct StrongGraph {
  int64_t n = 0;
  int64_t most_entries = 0;  // that it may have
  Buffer<int64_t> ptr;
  Buffer<int32_t> neighbours;
  Buffer<double> weights;
  Buffer<int32_t> leader;

  StrongRef ref() const { return {ptr.get(), neighbours.get(), leader.get()}; }
};

// Finds the graph of Couplings by FindStrong. `mirror`: Aᵀ by rows; null: A is symmetric. Scratch:
// 8 bytes an entry, 12 an entry of A and of Aᵀ where there is a mirror; of several unknowns a node
// these are blocks, 12 bytes more each. `nodes`: a symmetric A by nodes; null: not known. Waits for
// the device where nodes have several unknowns and are not known. Throws Failure.
StrongGraph FindStrong(Context& context, const RowMatrix& a, const RowMatrix* mirror, double theta,
                       int block = 1, const NodeMatrix* nodes = nullptr);

}  // namespace spaid::cuda
