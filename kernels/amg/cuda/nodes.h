// Nodes of several unknowns on a device: how many unknowns a node has, and how strongly nodes are
// coupled, with the host's bits (kernels/amg/amg.h, strength.h).
//
//   int block = DetectBlockSize(context, a.pattern());
//   RowMatrix norms = NodeNorms(context, a, roots, block);
#pragma once

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/node_products.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// Returns kernels::DetectBlockSize of a square pattern. Waits for the device.
int DetectBlockSize(Context& context, const PatternRef& a);

// Returns the Frobenius norms of the blocks of A, by rows of nodes, those of a node with itself
// left out, each entry over the signed roots of its row and column. Waits for the device.
RowMatrix NodeNorms(Context& context, const RowMatrix& a, const Buffer<double>& roots, int block);
// The same, a value for each entry of A's nodes: 0 for those of a node with itself. Does not wait.
Buffer<double> NodeNorms(Context& context, const NodeMatrix& a, const Buffer<double>& roots);

}  // namespace spaid::cuda
