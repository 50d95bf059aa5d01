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

// Nodes x + extent[0] (y + extent[1] z).
struct Grid {
  std::array<int64_t, 3> extent = {0, 0, 0};  // zeros: there is no grid
  int64_t nodes() const { return extent[0] * extent[1] * extent[2]; }
};

inline constexpr int kMostOfCorner = 8;  // nodes in the row of one in a corner
// Returns the grid that the first row of A tells of: beside its node stand 1 in x, then the first
// in y, then the first in z, each of which may have its neighbours in the row, too. There is none
// where lines or planes of so many nodes do not come to `nodes`. The other rows are not looked at,
// and in a longer first row there is none.
Grid FindGrid(std::span<const int32_t> first_row, int64_t nodes, int block);

inline constexpr int64_t kBoxWidth = 3;
// Returns the boxes of a line of nodes, the last of which has two to four.
inline int64_t BoxesOf(int64_t extent) { return extent < 2 ? 1 : (extent + 1) / kBoxWidth; }

// Bits of all that strong couplings of a grid are.
using GridCouplings = uint32_t;
// They join nodes that are more than a step apart in some direction.
inline constexpr GridCouplings kOffGrid = 1;
// 1 << m: they join nodes that are a step apart in the directions m. 1: x, 2: y, 4: z.
// m << kLacking: two nodes of a box, a step apart in a direction of m, lack it.
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
