// Aggregates by boxes of a grid on a device: those of kernels/amg/boxes.h.
//
//   kernels::Grid grid = FindGrid(context, a, /*block=*/1);
//   std::optional<Aggregates> boxes = AggregateByBoxes(context, graph, grid);
#pragma once

#include <optional>

#include "kernels/amg/boxes.h"
#include "kernels/amg/cuda/aggregation.h"
#include "kernels/amg/cuda/strength.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// Returns the grid that the first row of A tells of. Waits for the device. Throws Failure.
kernels::Grid FindGrid(const Context& context, const RowMatrix& a, int block);

// Aggregates by boxes, and turns `grid` into that of the boxes; nothing, and no grid, where there
// are none. Scratch: 4 bytes. Waits for the device once, where there is a grid. Throws Failure.
std::optional<Aggregates> AggregateByBoxes(Context& context, const StrongGraph& graph,
                                           kernels::Grid& grid);

}  // namespace spaid::cuda
