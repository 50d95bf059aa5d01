#include "kernels/amg/boxes.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/sparse/make_rows.h"

namespace spaid::kernels {
namespace {

using Place = std::array<int64_t, 3>;

// body(node, place) for each node from `begin` to `end`.
template <class Body>
void ForPlaces(const Grid& grid, int64_t begin, int64_t end, const Body& body) {
  const int64_t line = begin / grid.extent[0];
  Place at = {begin % grid.extent[0], line % grid.extent[1], line / grid.extent[1]};
  for (int64_t node = begin; node < end; ++node) {
    body(node, at);
    if (++at[0] < grid.extent[0]) continue;
    at[0] = 0;
    if (++at[1] < grid.extent[1]) continue;
    at[1] = 0;
    ++at[2];
  }
}

int64_t BoxOf(int64_t x, int64_t extent) { return std::min(x / kBoxWidth, BoxesOf(extent) - 1); }

GridCouplings CouplingsOf(const StrongGraph& graph, const Grid& grid, int64_t node,
                          const Place& at) {
  const int64_t line = grid.extent[0], plane = line * grid.extent[1];
  GridCouplings seen = 0;
  uint32_t next = 0;  // directions in which the next node is coupled
  for (const int32_t other : graph.of(node)) {
    // In lines and planes of one or two nodes this may be another step, which leaves the grid.
    int64_t rest = other - node;
    const int64_t z = (rest > plane / 2) - (rest < -(plane / 2));
    rest -= z * plane;
    const int64_t y = (rest > line / 2) - (rest < -(line / 2));
    const Place step = {rest - y * line, y, z};
    bool on_grid = step[0] >= -1 && step[0] <= 1;
    uint32_t directions = 0;
    for (size_t d = 0; d < step.size(); ++d) {
      const int64_t to = at[d] + step[d];
      on_grid = on_grid && to >= 0 && to < grid.extent[d];
      if (step[d] != 0) directions |= 1U << d;
    }
    seen |= on_grid ? 1U << directions : kOffGrid;
    if (other > node && (directions & (directions - 1)) == 0) next |= directions;
  }
  for (size_t d = 0; d < at.size(); ++d) {
    const bool in_box = at[d] + 1 < grid.extent[d] &&
                        BoxOf(at[d], grid.extent[d]) == BoxOf(at[d] + 1, grid.extent[d]);
    if (in_box && (next >> d & 1) == 0) seen |= 1U << d << kLacking;
  }
  return seen;
}

}  // namespace

Grid FindGrid(std::span<const int32_t> first_row, int64_t nodes, int block) {
  if (std::ssize(first_row) > int64_t{kMostOfCorner} * block) return {};
  int64_t line = nodes, plane = nodes;
  for (const int32_t column : first_row) {
    const int64_t node = column / block;
    if (node > 1 && line == nodes) line = node;
    if (node > line + 1) {
      plane = node;
      break;
    }
  }
  if (nodes == 0 || nodes % plane != 0 || plane % line != 0) return {};
  return {.extent = {line, plane / line, nodes / plane}};
}

uint32_t BoxDirections(GridCouplings seen) {
  uint32_t directions = 0, joined = 0;
  for (uint32_t m = 1; m < 8; ++m) {
    if ((seen >> m & 1) == 0) continue;
    joined |= m;
    if ((m & (m - 1)) == 0) directions |= m;
  }
  const bool all =
      (seen & kOffGrid) == 0 && joined == directions && (seen >> kLacking & directions) == 0;
  return all ? directions : 0;
}

Grid GridOfBoxes(const Grid& grid, uint32_t directions) {
  Grid boxes = grid;
  for (size_t d = 0; d < boxes.extent.size(); ++d) {
    if ((directions >> d & 1) != 0) boxes.extent[d] = BoxesOf(grid.extent[d]);
  }
  return boxes;
}

std::optional<Aggregates> AggregateByBoxes(const StrongGraph& graph, Grid& grid, int threads) {
  const Grid fine = std::exchange(grid, {});
  if (graph.n == 0 || fine.nodes() != graph.n) return std::nullopt;
  std::atomic<GridCouplings> seen{0};
  ParallelFor(graph.n, kRowsOfOneThread, threads, [&](int64_t begin, int64_t end, int) {
    if ((seen.load(std::memory_order_relaxed) & kOffGrid) != 0) return;
    GridCouplings own = 0;
    ForPlaces(fine, begin, end,
              [&](int64_t node, const Place& at) { own |= CouplingsOf(graph, fine, node, at); });
    seen.fetch_or(own, std::memory_order_relaxed);
  });
  const uint32_t directions = BoxDirections(seen);
  if (directions == 0) return std::nullopt;
  grid = GridOfBoxes(fine, directions);
  Aggregates made{.count = grid.nodes(), .of_node = {}, .isolated = 0, .boxes = true};
  made.of_node.resize(static_cast<size_t>(graph.n));
  ParallelFor(graph.n, kRowsOfOneThread, threads, [&](int64_t begin, int64_t end, int) {
    ForPlaces(fine, begin, end, [&](int64_t node, Place at) {
      for (size_t d = 0; d < at.size(); ++d) {
        if ((directions >> d & 1) != 0) at[d] = BoxOf(at[d], fine.extent[d]);
      }
      made.of_node[static_cast<size_t>(node)] =
          static_cast<int32_t>(at[0] + grid.extent[0] * (at[1] + grid.extent[1] * at[2]));
    });
  });
  return made;
}

}  // namespace spaid::kernels
