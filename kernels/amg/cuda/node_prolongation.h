// The smoothed prolongation of nodes of several unknowns on a device, with the host's bits: that of
// prolongation.h, with the index work of nodes.
//
//   auto p = SmoothNodes(context, a_nodes, graph.ref(), aggregates, tentative, count);
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/amg/cuda/aggregation.h"
#include "kernels/amg/cuda/prolongation.h"
#include "kernels/amg/cuda/tentative.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/node_products.h"

namespace spaid::cuda {

struct NodeProlongation {
  NodeProduct p;
  double rho = 0;
  RowMatrix filtered;  // the pattern of the nodes of D_F⁻¹ A_F; without values
};

// Returns P of A by nodes, of which HasNodeProducts holds, and P0 of `count` vectors, of which its
// rows suffice. Nothing where that is the work of single unknowns: where there are nodes of no
// aggregate, or without an entry in a column of theirs, or where rows have so many aggregates that
// some are left out, or too many nodes for shared memory. Scratch: 4 bytes an entry of A, and
// PowerNorm's. Waits for the device twice.
std::optional<NodeProlongation> SmoothNodes(Context& context, const NodeMatrix& a,
                                            const StrongRef& graph, const Aggregates& aggregates,
                                            const Tentative& tentative, int count);

// The same of other values on known patterns; *other, on the device, becomes 1 where P would have
// another one, and the values are of no use then. Nothing as above, too. Waits for the device once.
std::optional<NodeProlongation> SmoothNodesOn(Context& context, const NodeMatrix& a,
                                              const RowMatrix& filtered, const RowMatrix& p,
                                              const Aggregates& aggregates,
                                              const Tentative& tentative, int count,
                                              int32_t* other);

}  // namespace spaid::cuda
