// The smoothed prolongation of nodes of several unknowns on a device, with the host's bits: that of
// prolongation.h, with the index work of nodes.
//
//   std::optional<NodeProlongation> p = SmoothNodes(context, a_nodes, graph, of_node, p0_nodes);
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/amg/cuda/prolongation.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/node_products.h"

namespace spaid::cuda {

struct NodeProlongation {
  NodeProduct p;
  double rho = 0;
};

// Returns P of A and P0, both by nodes, of an aggregate for each node. Nothing where rows have so
// many aggregates that some are left out, which rows do each by itself, or that MultiplyNodes does
// not take them. Waits for the device.
std::optional<NodeProlongation> SmoothNodes(Context& context, const NodeMatrix& a,
                                            const StrongRef& graph, const int32_t* of_node,
                                            const NodeMatrix& tentative);

}  // namespace spaid::cuda
