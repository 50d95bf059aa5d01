#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "kernels/sparse/cuda/node_products.h"
#include "kernels/sparse/cuda/product_rows.h"

namespace spaid::cuda {
namespace {

using products::kFree, products::kNothing, products::kThreads, products::Lanes;

// Bytes of the sums and tables of a block: three blocks a multiprocessor, one where a row needs it.
constexpr int kUsualBytes = 72 << 10, kMostBytes = 200 << 10;

int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

// The pattern of nodes, and whether all are whole. A warp a node.
__global__ void __launch_bounds__(kThreads)
    NodesKernel(PatternRef a, int rows, int columns, int64_t* __restrict__ ptr,
                int32_t* __restrict__ nodes, int32_t* __restrict__ longest, int32_t* broken) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t count = a.n / rows;
  for (int64_t node = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; node < count;
       node += int64_t{gridDim.x} * kThreads / 32) {
    const int64_t begin = a.col_ptr[node * rows];
    const auto entries = static_cast<int>(a.col_ptr[node * rows + 1] - begin);
    bool whole = entries % columns == 0;
    for (int r = 1; r < rows; ++r) {
      whole &= a.col_ptr[node * rows + r + 1] - a.col_ptr[node * rows + r] == entries;
    }
    const int64_t to = begin / (rows * columns);
    if (lane == 0) {
      ptr[node] = to;
      if (node + 1 == count) ptr[count] = a.col_ptr[a.n] / (rows * columns);
    }
    if (!whole) {
      if (lane == 0) *broken = 1;
      continue;
    }
    bool fits = true;
    for (int e = lane; e < entries; e += 32) {
      const int32_t column = a.row_idx[begin + e];
      const int within = e % columns;
      fits &= within == 0 ? column % columns == 0 : column == a.row_idx[begin + e - 1] + 1;
      for (int r = 1; r < rows; ++r) {
        fits &= a.row_idx[begin + int64_t{r} * entries + e] == column;
      }
      if (within == 0) nodes[to + e / columns] = column / columns;
    }
    if (!fits) *broken = 1;
    if (lane == 0 && entries / columns > *longest) {
      atomicMax(longest, static_cast<int32_t>(entries / columns));
    }
  }
}

// Unknowns of a matrix of nodes.
__global__ void __launch_bounds__(kThreads)
    UnknownsKernel(PatternRef nodes, int rows, int columns, int64_t* __restrict__ ptr,
                   int32_t* __restrict__ to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t node = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; node < nodes.n;
       node += int64_t{gridDim.x} * kThreads / 32) {
    const int64_t first = nodes.col_ptr[node], begin = first * rows * columns;
    const int entries = static_cast<int>(nodes.col_ptr[node + 1] - first) * columns;
    if (lane < rows) ptr[node * rows + lane] = begin + int64_t{lane} * entries;
    if (lane == 0 && node + 1 == nodes.n) ptr[nodes.n * rows] = begin + int64_t{rows} * entries;
    for (int e = lane; e < entries; e += 32) {
      const int32_t column = nodes.row_idx[first + e / columns] * columns + e % columns;
      for (int r = 0; r < rows; ++r) to[begin + int64_t{r} * entries + e] = column;
    }
  }
}

void Size(const RowMatrix& nodes, int rows, int columns, RowMatrix& whole) {
  whole.n = nodes.n * rows;
  whole.columns = nodes.columns * columns;
  whole.nnz = nodes.nnz * rows * columns;
  whole.longest = nodes.longest * columns;
  whole.empty = nodes.empty * rows;
}

// The number of each node's entry, exact in a double.
__global__ void __launch_bounds__(kThreads) NumberKernel(int64_t count, double* numbers) {
  for (int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x; e < count;
       e += int64_t{gridDim.x} * kThreads) {
    numbers[e] = static_cast<double>(e);
  }
}

// Values of the transpose of A by nodes; `turned`: its nodes, with the numbers of A's as values.
__global__ void __launch_bounds__(kThreads)
    TurnKernel(PatternRef turned, const double* __restrict__ numbers, PatternRef a,
               const double* __restrict__ values, int rows, int columns, double* __restrict__ to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t node = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; node < turned.n;
       node += int64_t{gridDim.x} * kThreads / 32) {
    const int64_t first = turned.col_ptr[node];
    const int length = static_cast<int>(turned.col_ptr[node + 1] - first) * rows;  // of its rows
    double* const own = to + first * rows * columns;
    for (int e = lane; e < length; e += 32) {
      const int64_t at = first + e / rows, i = turned.row_idx[at];
      const auto number = static_cast<int64_t>(numbers[at]);
      const int64_t begin = a.col_ptr[i], of_a = (a.col_ptr[i + 1] - begin) * columns;
      const double* const from =
          values + begin * rows * columns + e % rows * of_a + (number - begin) * columns;
#pragma unroll 6
      for (int c = 0; c < columns; ++c) own[int64_t{c} * length + e] = from[c];
    }
  }
}

// Products of patterns with few columns: a row of C is marked bit by bit in shared memory, by
// kGroup threads, each of which takes the rows of B of some entries of A's row.
constexpr int64_t kMostMarked = 1 << 15;

template <int kGroup>
__device__ void SyncGroup() {
  if constexpr (kGroup == 32) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

// `columns` null: counts entries alone.
template <int kGroup>
__global__ void __launch_bounds__(kThreads)
    MarkedKernel(PatternRef a, PatternRef b, int words, int32_t* __restrict__ entries,
                 const int64_t* __restrict__ ptr, int32_t* __restrict__ columns) {
  extern __shared__ uint32_t marks[];
  constexpr int kGroups = kThreads / kGroup;
  const int group = static_cast<int>(threadIdx.x) / kGroup;
  const int own = static_cast<int>(threadIdx.x) % kGroup, lane = own % 32;
  uint32_t* const row = marks + group * words;
  for (int64_t i = int64_t{blockIdx.x} * kGroups + group; i < a.n;
       i += int64_t{gridDim.x} * kGroups) {
    for (int w = own; w < words; w += kGroup) row[w] = 0;
    SyncGroup<kGroup>();
    for (int64_t p = a.col_ptr[i] + own; p < a.col_ptr[i + 1]; p += kGroup) {
      const int32_t k = a.row_idx[p];
      const int64_t end = b.col_ptr[k + 1];
#pragma unroll 4
      for (int64_t q = b.col_ptr[k]; q < end; ++q) {
        const int32_t j = b.row_idx[q];
        atomicOr(row + j / 32, 1u << j % 32);
      }
    }
    SyncGroup<kGroup>();
    if (own < 32) {
      int32_t count = 0;
      for (int first = 0; first < words; first += 32) {
        uint32_t word = first + lane < words ? row[first + lane] : 0;
        int before = __popc(word);
        for (int step = 1; step < 32; step *= 2) {
          const int other = __shfl_up_sync(~0u, before, step);
          if (lane >= step) before += other;
        }
        const int all = __shfl_sync(~0u, before, 31);
        if (columns != nullptr) {
          int32_t* to = columns + ptr[i] + count + before - __popc(word);
          for (; word != 0; word &= word - 1) {
            *to++ = (first + lane) * 32 + __ffs(static_cast<int>(word)) - 1;
          }
        }
        count += all;
      }
      if (columns == nullptr && lane == 0) entries[i] = count;
    }
    SyncGroup<kGroup>();
  }
}

// The pattern of A B; nothing where it has more than so many entries.
std::optional<RowMatrix> MarkedProduct(Context& context, int64_t most_entries, const RowMatrix& a,
                                       const RowMatrix& b) {
  RowMatrix c;
  c.n = a.n;
  c.columns = b.columns;
  const Buffer<int32_t> entries(context, a.n);
  const auto words = static_cast<int>((b.columns + 31) / 32);
  const auto mark = [&](auto group, const int64_t* ptr, int32_t* columns) {
    constexpr int kGroups = kThreads / group;
    MarkedKernel<group>
        <<<Blocks(context, a.n, kGroups), kThreads, 4 * kGroups * words, context.stream>>>(
            a.pattern(), b.pattern(), words, entries.get(), ptr, columns);
    CheckLaunch("MarkedKernel");
  };
  const auto launch = [&](const int64_t* ptr, int32_t* columns) {
    if (a.nnz > 64 * a.n) return mark(std::integral_constant<int, kThreads>{}, ptr, columns);
    mark(std::integral_constant<int, 32>{}, ptr, columns);
  };
  launch(nullptr, nullptr);
  PointRows(context, entries, c);
  if (c.nnz > most_entries) return std::nullopt;
  c.row_idx = Buffer<int32_t>(context, c.nnz);
  c.values = Buffer<double>(context, c.nnz);
  c.values.Fill(0);
  launch(c.col_ptr.get(), c.row_idx.get());
  return c;
}

struct Factor {
  PatternRef nodes;
  const double* values;
};
Factor FactorOf(const NodeMatrix& of) { return {of.nodes.pattern(), of.values}; }

// Nodes of A's row of which the values are in shared memory at once.
constexpr int kChunk = 8;

// Sizes of the rows of a block: `room` nodes in a row of C at the most, in a table of `slots`.
struct Room {
  int room, slots, bytes;
  Room(int64_t longest, int rows, int inner, int columns)
      : room(static_cast<int>(longest)),
        slots(static_cast<int>(std::bit_ceil(static_cast<uint64_t>(2 * longest)))),
        bytes(8 * (room * rows * columns + kChunk * rows * inner + slots)) {}
};

// Divides numbers under 13,000 by one of up to 8: columns of rows that shared memory has room for.
struct Divisor {
  int by, factor;
  explicit Divisor(int of) : by(of), factor((65536 + of - 1) / of) {}
  __device__ int Of(int number) const { return number * factor >> 16; }
};

// The values of C. kInner: unknowns of a node of A's columns, B's rows. A warp's nodes go side by
// side, so that its lanes stay together.
template <int kInner, int kLanes>
__global__ void __launch_bounds__(kThreads)
    ValuesKernel(Factor a, Factor b, PatternRef c, int rows, Divisor columns, Room of,
                 double* __restrict__ values) {
  constexpr int kTogether = kInner > 3 ? 2 : 4;  // nodes whose rows of B are on their way
  constexpr int kLeft = kChunk * kInner;
  extern __shared__ __align__(16) double memory[];
  const int lane = Lanes<kLanes>::lane(), own = static_cast<int>(threadIdx.x) / kLanes;
  const int groups = static_cast<int>(blockDim.x) / kLanes;
  const int width = of.room * columns.by;  // of a row of sums
  double* const sums = memory + own * (of.bytes / 8);
  double* const left = sums + width * rows;
  auto* const keys = reinterpret_cast<int32_t*>(left + rows * kLeft);
  int32_t* const places = keys + of.slots;
  const int shift = 33 - __ffs(of.slots);
  const auto slot_of = [&](int32_t node) {
    return static_cast<int>(static_cast<uint32_t>(node) * 2654435769u >> shift);
  };
  // Adds the products of the e-th node of the chunk, and of a column of B's node.
  const auto add = [&](int e, int32_t node, int column, const double(&of_b)[kInner]) {
    int s = slot_of(node);
    while (keys[s] != node) s = (s + 1) & (of.slots - 1);
    double* const to = sums + places[s] + column;
    for (int r = 0; r < rows; ++r) {
      double sum = to[r * width];
#pragma unroll
      for (int m = 0; m < kInner; ++m) sum = fma(left[r * kLeft + e * kInner + m], of_b[m], sum);
      to[r * width] = sum;
    }
  };
  const int own_block = columns.Of(lane), own_column = lane - own_block * columns.by;
  // The value of the warp's first lane.
  const int64_t begin =
      int64_t{blockIdx.x} * groups + static_cast<int>(threadIdx.x) / 32 * (32 / kLanes);
  for (int64_t of_warp = begin; of_warp < c.n; of_warp += int64_t{gridDim.x} * groups) {
    const int64_t i = of_warp + static_cast<int>(threadIdx.x) % 32 / kLanes;
    const bool is_node = i < c.n;
    const int64_t first_of_c = is_node ? c.col_ptr[i] : 0;
    const int blocks_of_c = is_node ? static_cast<int>(c.col_ptr[i + 1] - first_of_c) : 0;
    for (int s = lane; s < of.slots; s += kLanes) keys[s] = kFree;
    for (int e = lane; e < width * rows; e += kLanes) sums[e] = kNothing;
    __syncwarp();
    for (int e = lane; e < blocks_of_c; e += kLanes) {
      const int32_t node = c.row_idx[first_of_c + e];
      int s = slot_of(node);
      while (atomicCAS(keys + s, kFree, node) != kFree) s = (s + 1) & (of.slots - 1);
      places[s] = e * columns.by;
    }
    const int64_t first_of_a = is_node ? a.nodes.col_ptr[i] : 0;
    const int blocks_of_a = is_node ? static_cast<int>(a.nodes.col_ptr[i + 1] - first_of_a) : 0;
    const double* const a_values = a.values + first_of_a * rows * kInner;
    for (int chunk = 0; __any_sync(~0u, chunk < blocks_of_a); chunk += kChunk) {
      const int there = max(0, min(kChunk, blocks_of_a - chunk));
      int64_t own_first = 0;
      int own_length = 0;
      if (lane < there) {
        const int32_t k = a.nodes.row_idx[first_of_a + chunk + lane];
        own_first = b.nodes.col_ptr[k];
        own_length = static_cast<int>(b.nodes.col_ptr[k + 1] - own_first) * columns.by;
      }
      for (int r = 0; r < rows; ++r) {
        for (int e = lane; e < there * kInner; e += kLanes) {
          left[r * kLeft + e] = a_values[(r * blocks_of_a + chunk) * kInner + e];
        }
      }
      __syncwarp();
      const int most = __reduce_max_sync(~0u, there);
      for (int e = 0; e < most; e += kTogether) {
        int64_t first[kTogether];
        int length[kTogether];
        int32_t node[kTogether];
        double of_b[kTogether][kInner];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          first[u] = __shfl_sync(~0u, own_first, e + u, kLanes);
          length[u] = __shfl_sync(~0u, own_length, e + u, kLanes);
          if (lane >= length[u]) continue;
          node[u] = b.nodes.row_idx[first[u] + own_block];
          const double* const right = b.values + first[u] * kInner * columns.by + lane;
#pragma unroll
          for (int m = 0; m < kInner; ++m) of_b[u][m] = right[m * length[u]];
        }
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          if (lane < length[u]) add(e + u, node[u], own_column, of_b[u]);
          for (int j = lane + kLanes; j < length[u]; j += kLanes) {
            const double* const right = b.values + first[u] * kInner * columns.by + j;
            double more[kInner];
#pragma unroll
            for (int m = 0; m < kInner; ++m) more[m] = right[m * length[u]];
            const int block = columns.Of(j);
            add(e + u, b.nodes.row_idx[first[u] + block], j - block * columns.by, more);
          }
          __syncwarp();
        }
      }
    }
    __syncwarp();
    const int length = blocks_of_c * columns.by;
    double* const to = values + first_of_c * rows * columns.by;
    for (int r = 0; r < rows; ++r) {
      for (int e = lane; e < length; e += kLanes) to[r * length + e] = sums[r * width + e];
    }
    __syncwarp();
  }
}

template <int kInner, int kLanes>
void Launch(Context& context, const NodeMatrix& a, const NodeMatrix& b, const RowMatrix& nodes,
            const Room& of, double* values) {
  int groups = kThreads / kLanes;
  while (groups * kLanes > 32 && groups * of.bytes > kUsualBytes) groups /= 2;
  const int bytes = groups * of.bytes;
  const auto kernel = &ValuesKernel<kInner, kLanes>;
  if (bytes > 48 << 10) AllowSharedMemory(context, kernel, bytes);
  kernel<<<Blocks(context, nodes.n, groups), groups * kLanes, bytes, context.stream>>>(
      FactorOf(a), FactorOf(b), nodes.pattern(), a.rows, Divisor(b.columns), of, values);
  CheckLaunch("ValuesKernel");
}

template <int kInner>
void LaunchWithLanes(Context& context, const NodeMatrix& a, const NodeMatrix& b,
                     const RowMatrix& nodes, const Room& of, double* values) {
  const int64_t mean = b.nodes.nnz * b.columns / std::max<int64_t>(1, b.nodes.n);
  const auto fits = [&](int lanes) { return mean <= lanes && 32 / lanes * of.bytes <= kMostBytes; };
  if (fits(8)) return Launch<kInner, 8>(context, a, b, nodes, of, values);
  if (fits(16)) return Launch<kInner, 16>(context, a, b, nodes, of, values);
  Launch<kInner, 32>(context, a, b, nodes, of, values);
}

void FillValues(Context& context, const NodeMatrix& a, const NodeMatrix& b, const RowMatrix& nodes,
                const Room& of, double* values) {
  WithBlock(a.columns,
            [&](auto inner) { LaunchWithLanes<inner>(context, a, b, nodes, of, values); });
}

}  // namespace

bool HasNodeProducts(int inner) { return inner == 2 || inner == 3 || inner == 4 || inner == 6; }

std::optional<NodeMatrix> ByNodes(Context& context, const RowMatrix& a, int rows, int columns) {
  if (a.n % rows != 0 || a.columns % columns != 0) return std::nullopt;
  NodeMatrix made;
  made.rows = rows;
  made.columns = columns;
  made.of = &a;
  made.values = a.values.get();
  RowMatrix& nodes = made.nodes;
  nodes.n = a.n / rows;
  nodes.columns = a.columns / columns;
  nodes.nnz = a.nnz / (rows * columns);
  nodes.col_ptr = Buffer<int64_t>(context, nodes.n + 1);
  nodes.row_idx = Buffer<int32_t>(context, nodes.nnz);
  const Buffer<int32_t> found(context, 2);
  found.Fill(0);
  NodesKernel<<<Blocks(context, nodes.n, kThreads / 32), kThreads, 0, context.stream>>>(
      a.pattern(), rows, columns, nodes.col_ptr.get(), nodes.row_idx.get(), found.get(),
      found.get() + 1);
  CheckLaunch("NodesKernel");
  int32_t longest_and_broken[2] = {};
  context.Download({found.To(longest_and_broken, 2)});
  if (longest_and_broken[1] != 0) return std::nullopt;
  nodes.longest = longest_and_broken[0];
  nodes.values = Buffer<double>(context, nodes.nnz);
  nodes.values.Fill(0);
  return made;
}

NodeProduct WithNodes(Context& context, RowMatrix nodes, int rows, int columns) {
  NodeProduct made;
  RowMatrix& to = made.whole;
  Size(nodes, rows, columns, to);
  to.col_ptr = Buffer<int64_t>(context, to.n + 1);
  to.row_idx = Buffer<int32_t>(context, to.nnz);
  to.values = Buffer<double>(context, to.nnz);
  UnknownsKernel<<<Blocks(context, nodes.n, kThreads / 32), kThreads, 0, context.stream>>>(
      nodes.pattern(), rows, columns, to.col_ptr.get(), to.row_idx.get());
  CheckLaunch("UnknownsKernel");
  made.nodes = std::move(nodes);
  return made;
}

std::optional<NodeProduct> MultiplyNodes(Context& context, int64_t most_entries,
                                         const NodeMatrix& a, const NodeMatrix& b, RowOrder order) {
  const int block = a.rows * b.columns;
  auto nodes = b.nodes.columns <= kMostMarked
                   ? MarkedProduct(context, most_entries / block, a.nodes, b.nodes)
                   : MultiplyUpTo(context, most_entries / block, a.nodes, b.nodes, order);
  if (!nodes) return std::nullopt;
  const Room room(std::max<int64_t>(1, nodes->longest), a.rows, a.columns, b.columns);
  if (room.bytes > kMostBytes && (a.of == nullptr || b.of == nullptr)) return std::nullopt;
  NodeProduct made = WithNodes(context, *std::move(nodes), a.rows, b.columns);
  RowMatrix& c = made.whole;
  if (c.nnz > 0 && room.bytes <= kMostBytes) {
    FillValues(context, a, b, made.nodes, room, c.values.get());
  } else if (c.nnz > 0) {
    MultiplyOn(context, *a.of, *b.of, c);
  }
  return made;
}

std::optional<NodeProduct> MultiplyNodesOn(Context& context, const NodeMatrix& a,
                                           const NodeMatrix& b, const RowMatrix& nodes) {
  const Room room(std::max<int64_t>(1, nodes.longest), a.rows, a.columns, b.columns);
  if (room.bytes > kMostBytes) return std::nullopt;
  NodeProduct made = WithNodes(context, CopyPattern(context, nodes), a.rows, b.columns);
  if (made.whole.nnz > 0) FillValues(context, a, b, made.nodes, room, made.whole.values.get());
  return made;
}

namespace {

void Turn(Context& context, const NodeMatrix& a, const RowMatrix& turned, double* values) {
  TurnKernel<<<Blocks(context, turned.n, kThreads / 32), kThreads, 0, context.stream>>>(
      turned.pattern(), turned.values.get(), a.nodes.pattern(), a.values, a.rows, a.columns,
      values);
  CheckLaunch("TurnKernel");
}

}  // namespace

NodeProduct TransposeOn(Context& context, const NodeMatrix& a, const RowMatrix& turned) {
  NodeProduct made = WithNodes(context, CopyPattern(context, turned), a.columns, a.rows);
  Turn(context, a, turned, made.whole.values.get());
  return made;
}

NodeProduct Transpose(Context& context, NodeMatrix& a) {
  NumberKernel<<<Blocks(context, a.nodes.nnz, kThreads), kThreads, 0, context.stream>>>(
      a.nodes.nnz, a.nodes.values.get());
  CheckLaunch("NumberKernel");
  NodeProduct made = WithNodes(context, Transpose(context, a.nodes), a.columns, a.rows);
  Turn(context, a, made.nodes, made.whole.values.get());
  return made;
}

NodeMatrix NodesOf(NodeProduct& product, int rows, int columns) {
  return {.nodes = std::move(product.nodes),
          .rows = rows,
          .columns = columns,
          .of = &product.whole,
          .values = product.whole.values.get()};
}

}  // namespace spaid::cuda
