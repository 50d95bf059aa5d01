// Puts the unknowns of a matrix on a device in an order in which those that touch each other stand
// near, so that products find their vectors in the caches of the multiprocessors.
//
//   auto order = FindOrder(context, matrix.pattern(), node);
//   if (order) Matrix rows = PermuteByRows(context, matrix.pattern(), nnz, values, *order);
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

struct UnknownOrder {
  Buffer<int32_t> order;  // old index at each new place
  Buffer<int32_t> place;  // new place of each old index
};

// By Cuthill and McKee (1969): breadth first from one end of each component, the neighbours of an
// unknown by their numbers. `a`: its columns are the graph, as if it were symmetric. `node`: 1, or
// the unknowns of a node (HasWholeBlocks), which stay together. Columns of more than 1024 entries
// tell nobody's neighbourhood, and are not followed; after 64 components, or 4096 steps of the
// search, the rest keeps its order. Nothing where the search was over in fewer than 12 steps: where
// all are near to all, no order is better than another. The same in every run. Milliseconds for a
// million unknowns of a mesh. Scratch: 8 bytes a row. Waits for the device.
std::optional<UnknownOrder> FindOrder(Context& context, const PatternRef& a, int node);

// P A Pᵀ by rows, that is P Aᵀ Pᵀ by columns: canonical, without a hash. Scratch: 4 bytes an entry,
// and as SortByRows of a pattern. Waits for the device.
Matrix PermuteByRows(Context& context, const PatternRef& a, int64_t nnz, const double* values,
                     const UnknownOrder& order);

// to[k] = from[order[k]].
void Carry(const Context& context, const UnknownOrder& order, const double* from, double* to);

}  // namespace spaid::cuda
