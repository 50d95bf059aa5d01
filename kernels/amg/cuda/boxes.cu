#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/amg/cuda/boxes.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using kernels::Grid, kernels::GridCouplings, kernels::kLacking, kernels::kOffGrid;
using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

// A grid, and how many boxes it has in each direction.
struct BoxesRef {
  int32_t extent[3], boxes[3];

  __device__ void Place(int32_t node, int32_t* at) const {
    const int32_t line = node / extent[0];
    at[0] = node % extent[0];
    at[1] = line % extent[1];
    at[2] = line / extent[1];
  }
  __device__ int32_t BoxOf(int32_t x, int d) const {
    return min(x / static_cast<int32_t>(kernels::kBoxWidth), boxes[d] - 1);
  }
};

// `boxes`: in each direction that has them; one node is a box in the others.
BoxesRef RefOf(const Grid& grid, const Grid& boxes) {
  BoxesRef of{};
  for (size_t d = 0; d < 3; ++d) {
    of.extent[d] = static_cast<int32_t>(grid.extent[d]);
    of.boxes[d] = static_cast<int32_t>(boxes.extent[d]);
  }
  return of;
}

// The host's CouplingsOf.
__device__ GridCouplings CouplingsOf(const StrongRef& graph, const BoxesRef& grid, int32_t node) {
  int32_t at[3];
  grid.Place(node, at);
  const int32_t line = grid.extent[0], plane = line * grid.extent[1];
  GridCouplings seen = 0;
  uint32_t next = 0;
  for (int64_t p = graph.ptr[node]; p < graph.ptr[node + 1]; ++p) {
    const int32_t other = graph.neighbours[p];
    int32_t rest = other - node;
    const int32_t z = (rest > plane / 2) - (rest < -(plane / 2));
    rest -= z * plane;
    const int32_t y = (rest > line / 2) - (rest < -(line / 2));
    const int32_t step[3] = {rest - y * line, y, z};
    bool on_grid = step[0] >= -1 && step[0] <= 1;
    uint32_t directions = 0;
    for (int d = 0; d < 3; ++d) {
      const int64_t to = int64_t{at[d]} + step[d];
      on_grid = on_grid && to >= 0 && to < grid.extent[d];
      if (step[d] != 0) directions |= 1U << d;
    }
    seen |= on_grid ? 1U << directions : kOffGrid;
    if (other > node && (directions & (directions - 1)) == 0) next |= directions;
  }
  for (int d = 0; d < 3; ++d) {
    const bool in_box =
        at[d] + 1 < grid.extent[d] && grid.BoxOf(at[d], d) == grid.BoxOf(at[d] + 1, d);
    if (in_box && (next >> d & 1) == 0) seen |= 1U << d << kLacking;
  }
  return seen;
}

// Adds what all couplings are to *seen.
__global__ void __launch_bounds__(kThreads)
    CouplingsKernel(StrongRef graph, int64_t n, BoxesRef grid, GridCouplings* __restrict__ seen) {
  __shared__ GridCouplings of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  GridCouplings own = 0;
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    own |= CouplingsOf(graph, grid, static_cast<int32_t>(i));
  }
  atomicOr(&of_block, own);
  __syncthreads();
  if (threadIdx.x == 0) atomicOr(seen, of_block);
}

__global__ void __launch_bounds__(kThreads)
    BoxesKernel(int64_t n, BoxesRef grid, uint32_t directions, int32_t* __restrict__ of_node) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    int32_t at[3];
    grid.Place(static_cast<int32_t>(i), at);
    for (int d = 0; d < 3; ++d) {
      if ((directions >> d & 1) != 0) at[d] = grid.BoxOf(at[d], d);
    }
    of_node[i] = at[0] + grid.boxes[0] * (at[1] + grid.boxes[1] * at[2]);
  }
}

}  // namespace

Grid FindGrid(const Context& context, const RowMatrix& a, int block) {
  std::vector<int32_t> first(
      static_cast<size_t>(std::min<int64_t>(int64_t{kernels::kMostOfCorner} * block, a.nnz)));
  int64_t entries = 0;
  context.Download({a.col_ptr.To(&entries, 1, 1),
                    a.row_idx.To(first.data(), static_cast<int64_t>(first.size()))});
  if (entries > static_cast<int64_t>(first.size())) return {};
  first.resize(static_cast<size_t>(entries));
  return kernels::FindGrid(first, a.n / block, block);
}

std::optional<Aggregates> AggregateByBoxes(Context& context, const StrongGraph& graph, Grid& grid) {
  const Grid fine = std::exchange(grid, {});
  if (graph.n == 0 || fine.nodes() != graph.n) return std::nullopt;
  const int blocks = Blocks(context, graph.n, kThreads);
  const Buffer<GridCouplings> seen(context, 1);
  seen.Fill(0);
  CouplingsKernel<<<blocks, kThreads, 0, context.stream>>>(
      graph.ref(), graph.n, RefOf(fine, kernels::GridOfBoxes(fine, kernels::kAllDirections)),
      seen.get());
  CheckLaunch("CouplingsKernel");
  const uint32_t directions = kernels::BoxDirections(Read(context, seen, 0));
  if (directions == 0) return std::nullopt;
  grid = kernels::GridOfBoxes(fine, directions);
  Aggregates made;
  made.count = grid.nodes();
  made.boxes = true;
  made.of_node = Buffer<int32_t>(context, graph.n);
  BoxesKernel<<<blocks, kThreads, 0, context.stream>>>(graph.n, RefOf(fine, grid), directions,
                                                       made.of_node.get());
  CheckLaunch("BoxesKernel");
  return made;
}

}  // namespace spaid::cuda
