// Aggregates of a grid: boxes of three nodes in each direction of strong couplings.
//
//   Grid grid = FindGrid(a_rows.column(0), nodes, /*block=*/1);
//   std::optional<Aggregates> boxes = AggregateByBoxes(graph, grid, threads);
//
// The coarse level of boxes is a grid of them, so that it may have boxes again.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/strength.h"

namespace spaid::kernels {

// Holds how many nodes a grid has in x, y and z; node (x, y, z) has the number
// x + extent[0] (y + extent[1] z).
struct Grid {
  std::array<int64_t, 3> extent = {0, 0, 0};  // zeros: there is no grid
  int64_t nodes() const { return extent[0] * extent[1] * extent[2]; }
};

inline constexpr int kMostOfCorner = 8;  // nodes of a box of two, in the row of the first node
// Returns the grid whose first node has the first row of A: node 1 is beside it in x, the next that
// is not beside that one in y, and so in z. `block`: unknowns of a node. No grid where these lines
// and planes do not come to `nodes`, or the row has more nodes than kMostOfCorner. The other rows
// are not looked at.
Grid FindGrid(std::span<const int32_t> first_row, int64_t nodes, int block);

inline constexpr int64_t kBoxWidth = 3;
// Returns the boxes of a line of nodes: three in each but the last, which has two to four (or one,
// where the line is one node).
inline int64_t BoxesOf(int64_t extent) { return extent < 2 ? 1 : (extent + 1) / kBoxWidth; }

// Holds what the strong couplings of a grid are, as bits: 1 << m where some join nodes a step apart
// in the directions m (1: x, 2: y, 4: z, and sums of these); kOffGrid where some join others; and
// m << kLacking where neighbours in a direction of m, of one box, are not coupled.
using GridCouplings = uint32_t;
inline constexpr GridCouplings kOffGrid = 1;
inline constexpr int kLacking = 8;

// Returns the directions in which boxes are three wide: those of strong couplings, where all boxes
// have them between all neighbours in these directions, and no others. 0: there are no boxes.
uint32_t BoxDirections(GridCouplings seen);
inline constexpr uint32_t kAllDirections = 7;
// Returns the grid of the boxes.
Grid GridOfBoxes(const Grid& grid, uint32_t directions);

// Aggregates by boxes, and turns `grid` into that of the boxes. Nothing, and no grid, where the
// strong couplings have no BoxDirections. Throws std::bad_alloc. Thread-safe.
std::optional<Aggregates> AggregateByBoxes(const StrongGraph& graph, Grid& grid, int threads);

}  // namespace spaid::kernels
