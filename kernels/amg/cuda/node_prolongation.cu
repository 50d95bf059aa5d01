#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/amg/cuda/lanes.h"
#include "kernels/amg/cuda/node_prolongation.h"
#include "kernels/amg/cuda/power_steps.h"
#include "kernels/amg/cuda/prolongation_tuning.h"
#include "kernels/amg/cuda/staying_nodes.h"
#include "kernels/base/cuda/scan_sort.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::kWarps, layout::Lane;
using layout::WarpOfGrid, layout::WarpsOfGrid;

constexpr int kLanes = 8;  // of a row

__global__ void __launch_bounds__(kThreads)
    CountKernel(PatternRef a, StrongRef graph, const int32_t* __restrict__ of_node,
                int32_t* __restrict__ entries) {
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t node) {
    const StayingNodes row(graph, of_node, node);
    int32_t own = 0;
    for (int64_t p = a.col_ptr[node] + group.lane; p < a.col_ptr[node + 1]; p += kLanes) {
      own += row.Stays(a.row_idx[p]) ? 1 : 0;
    }
    own = group.Best(own, [](int32_t x, int32_t y) { return x + y; });
    if (group.lane == 0) entries[node] = own;
  });
}

// D_F⁻¹ A_F by nodes of `block` unknowns. A warp a node.
__global__ void __launch_bounds__(kThreads)
    FilterKernel(PatternRef a, const double* __restrict__ values, int block, StrongRef graph,
                 const int32_t* __restrict__ of_node, const int64_t* __restrict__ ptr,
                 int32_t* __restrict__ columns, double* __restrict__ to) {
  for (int64_t node = WarpOfGrid(); node < a.n; node += WarpsOfGrid()) {
    const StayingNodes row(graph, of_node, node);
    const int64_t begin = a.col_ptr[node];
    const auto blocks = static_cast<int>(a.col_ptr[node + 1] - begin);
    const auto staying = static_cast<int>(ptr[node + 1] - ptr[node]);
    const double* const from = values + begin * block * block;
    double* const own = to + ptr[node] * block * block;
    int diagonal = -1;  // the node's own block
    for (int q = Lane(); q < blocks; q += 32) {
      if (a.row_idx[begin + q] == node) diagonal = q;
    }
    diagonal = __reduce_max_sync(~0u, diagonal);
    const int length = blocks * block, kept = staying * block;
    int before = 0;  // blocks that stay
    for (int first = 0; first < blocks; first += 32) {
      const int q = first + Lane();
      const int32_t other = q < blocks ? a.row_idx[begin + q] : -1;
      const bool stays = q < blocks && row.Stays(other);
      const uint32_t all = __ballot_sync(~0u, stays);
      if (stays) columns[ptr[node] + before + __popc(all & ((1u << Lane()) - 1))] = other;
      const int entries = min(32, blocks - first) * block;
      for (int e = Lane(); e < entries; e += 32) {
        const int of = e / block, c = e % block;
        if ((all >> of & 1) == 0) continue;
        const int at = (before + __popc(all & ((1u << of) - 1))) * block + c;
        for (int r = 0; r < block; ++r) {
          const bool is_diagonal = first + of == diagonal && c == r;
          const double by = diagonal >= 0 ? from[r * length + diagonal * block + r] : 0;
          own[r * kept + at] = is_diagonal ? 1 : from[r * length + first * block + e] / by;
        }
      }
      before += __popc(all);
    }
  }
}

// The largest Σ_j |a_ij| of rows, as bits: LargestRowKernel's (prolongation.cu) by nodes.
__global__ void __launch_bounds__(kThreads)
    LargestRowKernel(PatternRef a, const double* __restrict__ values, int block,
                     unsigned long long* largest) {
  const LaneGroup<kLanes> group;
  double most = 0;
  group.ForRows(a.n * block, [&](int64_t i) {
    const int64_t node = i / block, begin = a.col_ptr[node];
    const int64_t length = (a.col_ptr[node + 1] - begin) * block;
    const double* const row = values + begin * block * block + i % block * length;
    double sum = 0;
    for (int64_t first = 0; first < length; first += kLanes) {
      const auto there = static_cast<int>(min(length - first, int64_t{kLanes}));
      sum = group.AddInOrder(sum, group.lane < there ? fabs(row[first + group.lane]) : 0, there);
    }
    if (sum > most) most = sum;
  });
  __syncwarp();
  for (int step = 16; step > 0; step /= 2) most = fmax(most, __shfl_xor_sync(~0u, most, step));
  if (Lane() == 0) {
    atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(most)));
  }
}

// I - ω D_F⁻¹ A_F in place.
__global__ void __launch_bounds__(kThreads)
    DampKernel(PatternRef a, int block, double omega, double* __restrict__ values) {
  for (int64_t node = WarpOfGrid(); node < a.n; node += WarpsOfGrid()) {
    const int64_t begin = a.col_ptr[node];
    const auto length = static_cast<int>(a.col_ptr[node + 1] - begin) * block;
    double* const own = values + begin * block * block;
    for (int e = Lane(); e < length; e += 32) {
      const bool is_own = a.row_idx[begin + e / block] == node;
      for (int r = 0; r < block; ++r) {
        const double scaled = __dmul_rn(-omega, own[r * length + e]);
        own[r * length + e] = is_own && e % block == r ? __dadd_rn(1, scaled) : scaled;
      }
    }
  }
}

}  // namespace

std::optional<NodeProlongation> SmoothNodes(Context& context, const NodeMatrix& a,
                                            const StrongRef& graph, const int32_t* of_node,
                                            const NodeMatrix& tentative) {
  const int block = a.rows;
  const int64_t n = a.nodes.n;
  const int warps = Blocks(context, n, kWarps);
  NodeMatrix filtered{.nodes = {}, .rows = block, .columns = block, .of = nullptr};
  filtered.nodes.n = filtered.nodes.columns = n;
  const Buffer<int32_t> entries(context, n);
  CountKernel<<<Blocks(context, n, kThreads / kLanes), kThreads, 0, context.stream>>>(
      a.nodes.pattern(), graph, of_node, entries.get());
  CheckLaunch("CountKernel");
  SizeRows(context, entries, filtered.nodes);
  filtered.nodes.values.Fill(0);
  const PatternRef pattern = filtered.nodes.pattern();
  const Buffer<double> values(context, filtered.nodes.nnz * block * block);
  filtered.values = values.get();
  FilterKernel<<<warps, kThreads, 0, context.stream>>>(a.nodes.pattern(), a.values, block, graph,
                                                       of_node, filtered.nodes.col_ptr.get(),
                                                       filtered.nodes.row_idx.get(), values.get());
  CheckLaunch("FilterKernel");
  const Buffer<double> largest(context, 1);
  largest.Fill(0);
  LargestRowKernel<<<Blocks(context, n * block, kThreads / kLanes), kThreads, 0, context.stream>>>(
      pattern, values.get(), block, reinterpret_cast<unsigned long long*>(largest.get()));
  CheckLaunch("LargestRowKernel");
  NodeProlongation made;
  made.rho =
      RoundedBound(context, Read(context, largest, 0), tuning::kTightRowSums,
                   {.rows = {.n = n * block}, .nodes = &filtered}, tuning::kProlongationSteps);
  DampKernel<<<warps, kThreads, 0, context.stream>>>(pattern, block, 4 / (3 * made.rho),
                                                     values.get());
  CheckLaunch("DampKernel");
  auto p = MultiplyNodes(context, std::numeric_limits<int64_t>::max(), filtered, tentative);
  if (!p || p->nodes.longest > tuning::kMostAggregates) return std::nullopt;
  made.p = *std::move(p);
  return made;
}

}  // namespace spaid::cuda
