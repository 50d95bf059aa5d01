#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/amg/cuda/node_prolongation.h"
#include "kernels/amg/cuda/power_steps.h"
#include "kernels/amg/cuda/prolongation_tuning.h"
#include "kernels/amg/cuda/staying_nodes.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "kernels/sparse/cuda/product_rows.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::kWarps, layout::Lane;
using layout::WarpOfGrid, layout::WarpsOfGrid;
using tuning::kMostAggregates;

constexpr int kMostBytes = 200 << 10, kUsualBytes = 72 << 10;  // of shared memory

// A by nodes, and which nodes stay in the filtered matrix.
struct FilteredRef {
  PatternRef a;
  const double* values;
  StrongRef graph;
  const int32_t* of_node;  // aggregates, one of each node

  // Whether a block of a row stays, chunk by chunk of a warp's lanes: calls take(q, other, stays).
  template <class Take>
  __device__ void ForBlocks(int64_t node, const Take& take) const {
    const StayingNodes row(graph, of_node, node);
    const int64_t begin = a.col_ptr[node];
    const auto blocks = static_cast<int>(a.col_ptr[node + 1] - begin);
    for (int first = 0; first < blocks; first += 32) {
      const int q = first + Lane();
      const int32_t other = q < blocks ? a.row_idx[begin + q] : -1;
      take(q, other, other >= 0 && row.Stays(other));
    }
  }
};

// The node's own block in its row of A; -1: there is none. By a warp.
__device__ int DiagonalBlock(const PatternRef& a, int64_t node) {
  const int64_t begin = a.col_ptr[node];
  const auto blocks = static_cast<int>(a.col_ptr[node + 1] - begin);
  for (int first = 0; first < blocks; first += 32) {
    const int q = first + Lane();
    const uint32_t own = __ballot_sync(~0u, q < blocks && a.row_idx[begin + q] == node);
    if (own != 0) return first + __ffs(static_cast<int>(own)) - 1;
  }
  return -1;
}

// The aggregates in a node's row of P, in `list`, in any order; by a warp. Returns how many there
// are, more than kMostAggregates where the list has no room for all.
class RowAggregates {
 public:
  explicit __device__ RowAggregates(int32_t* list) : list_(list) {}
  __device__ void Add(int32_t aggregate, bool stays) {
    const uint32_t same = __match_any_sync(~0u, stays ? aggregate : -1);
    bool fresh = stays && __ffs(static_cast<int>(same)) - 1 == Lane();
    for (int k = 0; k < min(count_, kMostAggregates); ++k) fresh &= list_[k] != aggregate;
    const uint32_t all = __ballot_sync(~0u, fresh);
    const int at = count_ + __popc(all & ((1u << Lane()) - 1));
    if (fresh && at < kMostAggregates) list_[at] = aggregate;
    count_ += __popc(all);
    __syncwarp();
  }
  __device__ int count() const { return count_; }

 private:
  int32_t* const list_;
  int count_ = 0;
};

// Whether a node has no entry in some column of its aggregate, which a row of P0 by single unknowns
// would leave out; each lane tells of its own.
__device__ bool Lacks(int64_t node, int block, int count, const double* rows_of_p0) {
  bool some = Lane() >= count;
  for (int r = 0; !some && r < block; ++r) {
    some = rows_of_p0[(node * block + r) * count + Lane()] != 0;
  }
  return !some;
}

// Blocks of a node's row of the filtered matrix, and of P; `lacking`: 1 where a node lacks one.
__global__ void __launch_bounds__(kThreads)
    CountKernel(FilteredRef f, int block, int count, const double* __restrict__ rows_of_p0,
                int32_t* __restrict__ staying, int32_t* __restrict__ aggregates, int32_t* lacking) {
  __shared__ int32_t lists[kWarps][kMostAggregates];
  for (int64_t node = WarpOfGrid(); node < f.a.n; node += WarpsOfGrid()) {
    RowAggregates row(lists[threadIdx.x / 32]);
    int32_t own = 0;
    f.ForBlocks(node, [&](int, int32_t other, bool stays) {
      own += __popc(__ballot_sync(~0u, stays));
      row.Add(stays ? f.of_node[other] : -1, stays);
    });
    if (Lacks(node, block, count, rows_of_p0)) *lacking = 1;
    if (Lane() != 0) continue;
    staying[node] = own;
    aggregates[node] = row.count();
  }
}

__global__ void __launch_bounds__(kThreads)
    LackingKernel(int64_t nodes, int block, int count, const double* __restrict__ rows_of_p0,
                  int32_t* lacking) {
  for (int64_t node = WarpOfGrid(); node < nodes; node += WarpsOfGrid()) {
    if (Lacks(node, block, count, rows_of_p0)) *lacking = 1;
  }
}

// The pattern of the filtered matrix with its values rounded, the largest sum of one of its rows as
// bits, in any order, and the pattern of P. Null pointers: patterns are known.
template <int kBlock>
__global__ void __launch_bounds__(kThreads)
    FilterKernel(FilteredRef f, const int64_t* __restrict__ ptr, int32_t* __restrict__ columns,
                 float* __restrict__ rounded, unsigned long long* largest,
                 const int64_t* __restrict__ ptr_of_p, int32_t* __restrict__ columns_of_p) {
  __shared__ int32_t lists[kWarps][kMostAggregates];
  int32_t* const list = lists[threadIdx.x / 32];
  double most = 0;
  for (int64_t node = WarpOfGrid(); node < f.a.n; node += WarpsOfGrid()) {
    const int64_t begin = f.a.col_ptr[node];
    const auto blocks = static_cast<int>(f.a.col_ptr[node + 1] - begin);
    const int length = blocks * kBlock;
    const double* const from = f.values + begin * (kBlock * kBlock);
    const int64_t first_kept = ptr[node];
    const int kept = static_cast<int>(ptr[node + 1] - first_kept) * kBlock;
    float* const to = rounded + first_kept * (kBlock * kBlock);
    const int diagonal = DiagonalBlock(f.a, node);
    double over[kBlock], sums[kBlock] = {};
#pragma unroll
    for (int r = 0; r < kBlock; ++r) {
      over[r] = diagonal >= 0 ? 1 / from[r * length + diagonal * kBlock + r] : 0;
    }
    RowAggregates row(list);
    int before = 0;  // blocks that stay
    f.ForBlocks(node, [&](int q, int32_t other, bool stays) {
      const uint32_t all = __ballot_sync(~0u, stays);
      if (stays && columns != nullptr) {
        columns[first_kept + before + __popc(all & ((1u << Lane()) - 1))] = other;
      }
      if (columns_of_p != nullptr) row.Add(stays ? f.of_node[other] : -1, stays);
      const int first = q - Lane();
      const int entries = min(32, blocks - first) * kBlock;
      for (int e = Lane(); e < entries; e += 32) {
        const int of = e / kBlock;
        if ((all >> of & 1) == 0) continue;
        const int at = (before + __popc(all & ((1u << of) - 1))) * kBlock + e % kBlock;
#pragma unroll
        for (int r = 0; r < kBlock; ++r) {
          const double value = from[r * length + first * kBlock + e] * over[r];
          sums[r] += fabs(value);
          to[r * kept + at] = static_cast<float>(value);
        }
      }
      before += __popc(all);
    });
#pragma unroll
    for (int r = 0; r < kBlock; ++r) {
      double sum = sums[r];
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (sum > most) most = sum;
    }
    const int32_t aggregate = Lane() < row.count() ? list[Lane()] : -1;
    int rank = 0;
    for (int k = 0; k < row.count(); ++k) rank += list[k] < aggregate ? 1 : 0;
    if (columns_of_p != nullptr && aggregate >= 0) columns_of_p[ptr_of_p[node] + rank] = aggregate;
    __syncwarp();
  }
  if (Lane() == 0) {
    atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(most)));
  }
}

// An entry of D_F⁻¹ A_F, of row r of the node's own.
struct Filtered {
  const double* from;  // the node's rows of A
  int length;
  double own;  // a_rr; 0: there is none
  int diagonal;
  __device__ Filtered(const double* rows, int length_of, int block, int own_block, int r)
      : from(rows + int64_t{r} * length_of), length(length_of), diagonal(own_block * block + r) {
    own = own_block >= 0 ? from[diagonal] : 0;
  }
  __device__ double operator()(int e) const { return e == diagonal ? 1 : from[e] / own; }
};

// The largest Σ_j |f_ij| with the host's bits: in ascending order. A warp a node.
__global__ void __launch_bounds__(kThreads)
    LargestRowKernel(FilteredRef f, int block, unsigned long long* largest) {
  double most = 0;
  for (int64_t node = WarpOfGrid(); node < f.a.n; node += WarpsOfGrid()) {
    const int64_t begin = f.a.col_ptr[node];
    const auto length = static_cast<int>(f.a.col_ptr[node + 1] - begin) * block;
    const int diagonal = DiagonalBlock(f.a, node);
    for (int r = 0; r < block; ++r) {
      const Filtered row(f.values + begin * block * block, length, block, diagonal, r);
      double sum = 0;
      f.ForBlocks(node, [&](int q, int32_t, bool stays) {
        for (uint32_t all = __ballot_sync(~0u, stays); all != 0; all &= all - 1) {
          const int e = (q - Lane() + __ffs(static_cast<int>(all)) - 1) * block;
          for (int c = 0; c < block; ++c) sum = __dadd_rn(sum, fabs(row(e + c)));
        }
      });
      if (sum > most) most = sum;
    }
  }
  if (Lane() == 0) {
    atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(most)));
  }
}

// A warp's shared memory for a row of P: rows of the filtered matrix, of `longest` blocks
// at the most, the rows of P0 of their nodes, these nodes, which aggregate of the row each is in,
// and the same blocks aggregate by aggregate.
struct Room {
  int longest, bytes;
  Room(int64_t blocks, int block, int count)
      : longest(static_cast<int>(blocks)),
        bytes(static_cast<int>((8 * block * (block + count) + 4 * 3) * blocks + 7) / 8 * 8) {}
};

// Values of P = (I - ω D_F⁻¹ A_F) P0: a warp a node, a lane some of its entries, each of which is
// summed over the nodes of one aggregate, as they come.
template <int kBlock>
__global__ void __launch_bounds__(kThreads)
    ValuesKernel(FilteredRef f, double omega, int count, const double* __restrict__ rows_of_p0,
                 PatternRef p, Room room, double* __restrict__ to) {
  extern __shared__ __align__(16) char memory[];
  __shared__ int32_t lists[kWarps][kMostAggregates];
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int width = room.longest * kBlock;
  auto* const damped = reinterpret_cast<double*>(memory + warp * room.bytes);
  double* const right = damped + kBlock * width;
  const int of_node = kBlock * count;  // elements of P0's rows
  auto* const nodes = reinterpret_cast<int32_t*>(right + room.longest * of_node);
  int32_t* const place = nodes + room.longest;
  int32_t* const in_turn = place + room.longest;
  int32_t* const list = lists[warp];
  for (int64_t node = int64_t{blockIdx.x} * warps + warp; node < p.n;
       node += int64_t{gridDim.x} * warps) {
    const int64_t begin = f.a.col_ptr[node], first_of_p = p.col_ptr[node];
    const auto length = static_cast<int>(f.a.col_ptr[node + 1] - begin) * kBlock;
    const auto aggregates = static_cast<int>(p.col_ptr[node + 1] - first_of_p);
    if (Lane() < aggregates) list[Lane()] = p.row_idx[first_of_p + Lane()];
    __syncwarp();
    const int diagonal = DiagonalBlock(f.a, node);
    const double* const from = f.values + begin * (kBlock * kBlock);
    int staying = 0;
    f.ForBlocks(node, [&](int q, int32_t other, bool stays) {
      const uint32_t all = __ballot_sync(~0u, stays);
      if (stays) {
        const int at = staying + __popc(all & ((1u << Lane()) - 1));
        const int32_t aggregate = f.of_node[other];
        int k = 0;
        while (list[k] != aggregate) ++k;
        nodes[at] = other;
        place[at] = k;
      }
      const int first = q - Lane();
      const int entries = min(32 * kBlock, length - first * kBlock);
#pragma unroll
      for (int r = 0; r < kBlock; ++r) {
        const Filtered row(from, length, kBlock, diagonal, r);
        for (int e = Lane(); e < entries; e += 32) {
          const int of = e / kBlock;
          if ((all >> of & 1) == 0) continue;
          const int at = (staying + __popc(all & ((1u << of) - 1))) * kBlock + e % kBlock;
          const double scaled = __dmul_rn(-omega, row(first * kBlock + e));
          damped[r * width + at] =
              first * kBlock + e == row.diagonal ? __dadd_rn(1, scaled) : scaled;
        }
      }
      staying += __popc(all);
    });
    __syncwarp();
    for (int e = Lane(); e < staying * of_node; e += 32) {
      const int b = e / of_node;
      right[e] = rows_of_p0[int64_t{nodes[b]} * of_node + (e - b * of_node)];
    }
    // Lane k lists the blocks of aggregate k, after those of the ones before.
    int of_own = 0;
    for (int b = 0; b < staying; ++b) of_own += place[b] == Lane() ? 1 : 0;
    int end = of_own;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, end, step);
      if (Lane() >= step) end += other;
    }
    int at = end - of_own;
    for (int b = 0; b < staying; ++b) {
      if (place[b] == Lane()) in_turn[at++] = b;
    }
    __syncwarp();
    const int row_of_p = aggregates * count, entries = kBlock * row_of_p;
    double* const values = to + first_of_p * kBlock * count;
    for (int first = 0; first < entries; first += 32) {
      const int e = first + Lane();
      const bool is_there = e < entries;
      const int r = is_there ? e / row_of_p : 0, within = is_there ? e - r * row_of_p : 0;
      const int k = within / count, c = within - k * count;
      const int last = __shfl_sync(~0u, end, k), all = __shfl_sync(~0u, of_own, k);
      double sum = products::kNothing;
      for (int b = last - all; is_there && b < last; ++b) {
        const int block = in_turn[b];
        const double* const left = damped + r * width + block * kBlock;
        const double* const below = right + block * of_node + c;
#pragma unroll
        for (int m = 0; m < kBlock; ++m) sum = fma(left[m], below[m * count], sum);
      }
      if (is_there) values[e] = sum;
    }
    __syncwarp();
  }
}

// The host's bound on ρ, of which the power steps' norm and the largest row sum, this but for
// rounding, are known.
double Bound(Context& context, const FilteredRef& f, int block, double norm, double largest) {
  constexpr double kRounding = 1e-9;
  const double by_steps = 1.1 * norm;
  double rho = by_steps;
  const bool is_theirs =
      largest > tuning::kTightRowSums * (1 + kRounding) && by_steps * (1 + kRounding) < largest;
  if (!is_theirs) {
    const Buffer<double> there(context, 1);
    there.Fill(0);
    LargestRowKernel<<<Blocks(context, f.a.n, kWarps), kThreads, 0, context.stream>>>(
        f, block, reinterpret_cast<unsigned long long*>(there.get()));
    CheckLaunch("LargestRowKernel");
    rho = Read(context, there, 0);
    if (rho > tuning::kTightRowSums) rho = std::min(rho, by_steps);
  }
  return std::ceil(rho * tuning::kBoundGrain) / tuning::kBoundGrain;
}

// Values of both; patterns, too, unless they are known.
std::optional<NodeProlongation> Smoothed(Context& context, const FilteredRef& f,
                                         NodeMatrix filtered, RowMatrix of_p,
                                         const Tentative& tentative, int count, bool are_known) {
  const int block = filtered.rows;
  const int64_t n = f.a.n;
  const Room room(filtered.nodes.longest, block, count);
  if (room.bytes > kMostBytes) return std::nullopt;
  NodeProlongation made;
  {
    const Buffer<float> rounded(context, filtered.nodes.nnz * block * block);
    const Buffer<double> largest(context, 1);
    largest.Fill(0);
    WithBlock(block, [&](auto of) {
      FilterKernel<of><<<Blocks(context, n, kWarps), kThreads, 0, context.stream>>>(
          f, filtered.nodes.col_ptr.get(), are_known ? nullptr : filtered.nodes.row_idx.get(),
          rounded.get(), reinterpret_cast<unsigned long long*>(largest.get()), of_p.col_ptr.get(),
          are_known ? nullptr : of_p.row_idx.get());
    });
    CheckLaunch("FilterKernel");
    const Buffer<double> norms = PowerNorms(context,
                                            {{.rows = {.n = n * block},
                                              .values = nullptr,
                                              .nodes = &filtered,
                                              .rounded = rounded.get()}},
                                            tuning::kProlongationSteps);
    double norm = 0, row_sums = 0;
    context.Download({norms.To(&norm, 1, tuning::kProlongationSteps), largest.To(&row_sums, 1)});
    made.rho = Bound(context, f, block, norm, row_sums);
  }
  made.p = WithNodes(context, std::move(of_p), block, count);
  int together = kWarps;
  while (together > 1 && together * room.bytes > kUsualBytes) together /= 2;
  const int bytes = together * room.bytes;
  WithBlock(block, [&](auto of) {
    const auto kernel = &ValuesKernel<of>;
    if (bytes > 48 << 10) AllowSharedMemory(context, kernel, bytes);
    kernel<<<Blocks(context, n, together), 32 * together, bytes, context.stream>>>(
        f, 4 / (3 * made.rho), count, tentative.rows.get(), made.p.nodes.pattern(), room,
        made.p.whole.values.get());
  });
  CheckLaunch("ValuesKernel");
  made.filtered = std::move(filtered.nodes);
  return made;
}

}  // namespace

std::optional<NodeProlongation> SmoothNodes(Context& context, const NodeMatrix& a,
                                            const StrongRef& graph, const Aggregates& aggregates,
                                            const Tentative& tentative, int count) {
  if (aggregates.isolated > 0 || tentative.rows.size() == 0) return std::nullopt;
  const int block = a.rows;
  const int64_t n = a.nodes.n;
  const int warps = Blocks(context, n, kWarps);
  const FilteredRef f{a.nodes.pattern(), a.values, graph, aggregates.of_node.get()};
  const double* const rows_of_p0 = tentative.rows.get();
  NodeMatrix filtered{.nodes = {}, .rows = block, .columns = block, .of = nullptr};
  RowMatrix of_p;
  {
    const Buffer<int32_t> staying(context, n), found(context, n), lacking(context, 1);
    lacking.Fill(0);
    CountKernel<<<warps, kThreads, 0, context.stream>>>(f, block, count, rows_of_p0, staying.get(),
                                                        found.get(), lacking.get());
    CheckLaunch("CountKernel");
    filtered.nodes.n = filtered.nodes.columns = of_p.n = n;
    of_p.columns = aggregates.count;
    int32_t is_lacking = 0;
    SizeRows(context, staying, filtered.nodes, found, of_p, lacking.To(&is_lacking, 1));
    if (is_lacking != 0) return std::nullopt;
  }
  if (of_p.longest > kMostAggregates) return std::nullopt;
  filtered.nodes.values = {};
  of_p.values.Fill(0);
  return Smoothed(context, f, std::move(filtered), std::move(of_p), tentative, count, false);
}

std::optional<NodeProlongation> SmoothNodesOn(Context& context, const NodeMatrix& a,
                                              const RowMatrix& filtered, const RowMatrix& p,
                                              const Aggregates& aggregates,
                                              const Tentative& tentative, int count,
                                              int32_t* other) {
  if (tentative.rows.size() == 0) return std::nullopt;
  const int64_t n = a.nodes.n;
  LackingKernel<<<Blocks(context, n, kWarps), kThreads, 0, context.stream>>>(
      n, a.rows, count, tentative.rows.get(), other);
  CheckLaunch("LackingKernel");
  NodeMatrix known{
      .nodes = CopyPattern(context, filtered), .rows = a.rows, .columns = a.rows, .of = nullptr};
  // Each node stays in its own row: nobody asks for leaders.
  const StrongRef staying{known.nodes.col_ptr.get(), known.nodes.row_idx.get(), nullptr};
  const FilteredRef f{a.nodes.pattern(), a.values, staying, aggregates.of_node.get()};
  return Smoothed(context, f, std::move(known), CopyPattern(context, p), tentative, count, true);
}

}  // namespace spaid::cuda
