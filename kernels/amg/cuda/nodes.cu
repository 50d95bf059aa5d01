#include "kernels/amg/amg.h"
#include "kernels/amg/cuda/nodes.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::kWarps, layout::Lane;
using layout::WarpOfGrid, layout::WarpsOfGrid;

constexpr int kSizes = 4;  // that a node may be found to have

__host__ __device__ constexpr int SizeTried(int k) { return k == 0 ? 6 : 5 - k; }  // 6, 4, 3, 2

struct Found {
  unsigned long long broken[kSizes], coupled[kSizes];
};

// Whether the nodes of n unknowns have the k-th size.
__host__ __device__ bool IsAnswer(const Found& found, int k, int64_t n) {
  const int64_t nodes = n / SizeTried(k);
  return nodes > 0 && n % SizeTried(k) == 0 &&
         10 * static_cast<int64_t>(found.broken[k]) <= nodes && found.coupled[k] > 0;
}

// Whether rows from i on have the columns of the first, which are those of whole nodes: the same in
// all lanes of a warp.
__device__ bool IsWhole(const PatternRef& a, int64_t i, int block) {
  const int64_t begin = a.col_ptr[i];
  const auto entries = static_cast<int>(a.col_ptr[i + 1] - begin);
  bool whole = entries > 0 && entries % block == 0;
  for (int r = 1; r < block; ++r) whole &= a.col_ptr[i + r + 1] - a.col_ptr[i + r] == entries;
  for (int first = 0; whole && first < entries; first += 32) {
    const int e = first + Lane();
    bool fits = true;
    if (e < entries) {
      const int32_t column = a.row_idx[begin + e];
      // Columns ascend: those of a node follow one another.
      fits =
          column % block == e % block && (e % block == 0 || a.row_idx[begin + e - 1] == column - 1);
      for (int r = 1; r < block; ++r) {
        fits &= a.row_idx[begin + int64_t{r} * entries + e] == column;
      }
    }
    whole = __all_sync(~0u, fits);
  }
  return whole;
}

// Counts by the k-th size; nobody looks where a size before it, or larger, is the answer.
__global__ void __launch_bounds__(kThreads)
    WholeKernel(PatternRef a, int block, int k, Found* found) {
  for (int other = 0; other < k; ++other) {
    if (IsAnswer(*found, other, a.n)) return;
  }
  unsigned long long broken = 0, coupled = 0;
  for (int64_t node = WarpOfGrid(); node < a.n / block; node += WarpsOfGrid()) {
    const int64_t i = node * block;
    if (!IsWhole(a, i, block)) ++broken;
    if (a.col_ptr[i + 1] - a.col_ptr[i] > block) ++coupled;
  }
  if (Lane() != 0) return;
  if (broken > 0) atomicAdd(found->broken + k, broken);
  if (coupled > 0) atomicAdd(found->coupled + k, coupled);
}

// The rows of a node, walked block by block; by one lane.
class Merge {
 public:
  __device__ Merge(const PatternRef& a, int64_t node, int block)
      : a_(a), first_(node * block), block_(block) {
    for (int r = 0; r < block_; ++r) at_[r] = a_.col_ptr[first_ + r];
  }
  // Calls take(row, entry) for the entries of the next block, row by row; returns its node, -1:
  // there is none.
  template <class Take>
  __device__ int32_t Next(const Take& take) {
    int32_t other = INT32_MAX;
    for (int r = 0; r < block_; ++r) {
      if (at_[r] < End(r)) other = min(other, a_.row_idx[at_[r]] / block_);
    }
    if (other == INT32_MAX) return -1;
    for (int r = 0; r < block_; ++r) {
      for (; at_[r] < End(r) && a_.row_idx[at_[r]] / block_ == other; ++at_[r]) {
        take(first_ + r, at_[r]);
      }
    }
    return other;
  }

 private:
  __device__ int64_t End(int r) const { return a_.col_ptr[first_ + r + 1]; }

  const PatternRef& a_;
  const int64_t first_;
  const int block_;
  int64_t at_[kernels::kMostUnknowns];
};

// Blocks of a node beside its own, and whether its rows are those of whole nodes.
__global__ void __launch_bounds__(kThreads)
    CountBlocksKernel(PatternRef a, int block, int32_t* __restrict__ entries,
                      uint8_t* __restrict__ whole) {
  for (int64_t node = WarpOfGrid(); node < a.n / block; node += WarpsOfGrid()) {
    const int64_t begin = a.col_ptr[node * block];
    const auto blocks = static_cast<int32_t>((a.col_ptr[node * block + 1] - begin) / block);
    const bool is_whole = IsWhole(a, node * block, block);
    int32_t count = 0;
    if (is_whole) {
      bool own = false;
      for (int32_t q = Lane(); q < blocks; q += 32) {
        own |= a.row_idx[begin + int64_t{q} * block] == node * block;
      }
      count = blocks - (__any_sync(~0u, own) ? 1 : 0);
    } else if (Lane() == 0) {
      Merge rows(a, node, block);
      for (;;) {
        const int32_t other = rows.Next([](int64_t, int64_t) {});
        if (other < 0) break;
        count += other != node ? 1 : 0;
      }
    }
    if (Lane() != 0) continue;
    entries[node] = count;
    whole[node] = is_whole ? 1 : 0;
  }
}

// A value more of a block's sum of squares, each over the roots of its row and column.
__device__ double AddSquare(double squares, double value, double root, double other) {
  const double scaled = value / (root * other);
  return __dadd_rn(squares, __dmul_rn(scaled, scaled));
}

template <int block>
__global__ void __launch_bounds__(kThreads)
    NormsOfNodesKernel(PatternRef nodes, const double* __restrict__ values,
                       const double* __restrict__ roots, double* __restrict__ norms) {
  for (int64_t node = WarpOfGrid(); node < nodes.n; node += WarpsOfGrid()) {
    const int64_t begin = nodes.col_ptr[node];
    const auto blocks = static_cast<int>(nodes.col_ptr[node + 1] - begin);
    const double* const own = values + begin * block * block;
    for (int q = Lane(); q < blocks; q += 32) {
      const int64_t other = nodes.row_idx[begin + q];
      double value[block][block], its[block], squares = 0;
#pragma unroll
      for (int r = 0; r < block; ++r) {
#pragma unroll
        for (int c = 0; c < block; ++c) value[r][c] = own[(r * blocks + q) * block + c];
      }
#pragma unroll
      for (int c = 0; c < block; ++c) its[c] = roots[other * block + c];
#pragma unroll
      for (int r = 0; r < block; ++r) {
        const double root = roots[node * block + r];
#pragma unroll
        for (int c = 0; c < block; ++c) {
          squares = AddSquare(squares, value[r][c], root, its[c]);
        }
      }
      norms[begin + q] = other == node ? 0 : sqrt(squares);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    NormsKernel(PatternRef a, const double* __restrict__ values, const double* __restrict__ roots,
                int block, const uint8_t* __restrict__ whole, const int64_t* __restrict__ ptr,
                int32_t* __restrict__ columns, double* __restrict__ norms) {
  for (int64_t node = WarpOfGrid(); node < a.n / block; node += WarpsOfGrid()) {
    int64_t to = ptr[node];
    if (whole[node] == 0) {
      if (Lane() != 0) continue;
      Merge rows(a, node, block);
      for (;;) {
        double squares = 0;
        const int32_t other = rows.Next([&](int64_t i, int64_t p) {
          squares = AddSquare(squares, values[p], roots[i], roots[a.row_idx[p]]);
        });
        if (other < 0) break;
        if (other == node) continue;
        columns[to] = other;
        norms[to++] = sqrt(squares);
      }
      continue;
    }
    const int64_t begin = a.col_ptr[node * block];
    const int64_t entries = a.col_ptr[node * block + 1] - begin;
    for (int64_t first = 0; first < entries; first += 32 * block) {
      const int64_t e = first + Lane() * block;
      const int32_t column = e < entries ? a.row_idx[begin + e] : -1;
      const int32_t other = column / block;
      double squares = 0;
      for (int r = 0; e < entries && r < block; ++r) {
        const double root = roots[node * block + r];
        for (int c = 0; c < block; ++c) {
          squares =
              AddSquare(squares, values[begin + r * entries + e + c], root, roots[column + c]);
        }
      }
      const bool stays = e < entries && other != node;
      const uint32_t all = __ballot_sync(~0u, stays);
      if (stays) {
        const int64_t at = to + __popc(all & ((1u << Lane()) - 1));
        columns[at] = other;
        norms[at] = sqrt(squares);
      }
      to += __popc(all);
    }
  }
}

}  // namespace

Buffer<double> NodeNorms(Context& context, const NodeMatrix& a, const Buffer<double>& roots) {
  Buffer<double> norms(context, a.nodes.nnz);
  WithBlock(a.rows, [&](auto block) {
    NormsOfNodesKernel<block><<<Blocks(context, a.nodes.n, kWarps), kThreads, 0, context.stream>>>(
        a.nodes.pattern(), a.values, roots.get(), norms.get());
  });
  CheckLaunch("NormsOfNodesKernel");
  return norms;
}

int DetectBlockSize(Context& context, const PatternRef& a) {
  const Buffer<Found> there(context, 1);
  there.Fill(0);
  for (int k = 0; k < kSizes; ++k) {
    const int64_t nodes = a.n / SizeTried(k);
    if (nodes == 0 || a.n % SizeTried(k) != 0) continue;
    WholeKernel<<<Blocks(context, nodes, kWarps), kThreads, 0, context.stream>>>(a, SizeTried(k), k,
                                                                                 there.get());
    CheckLaunch("WholeKernel");
  }
  Found found{};
  context.Download({there.To(&found, 1)});
  for (int k = 0; k < kSizes; ++k) {
    if (IsAnswer(found, k, a.n)) return SizeTried(k);
  }
  return 1;
}

RowMatrix NodeNorms(Context& context, const RowMatrix& a, const Buffer<double>& roots, int block) {
  RowMatrix norms;
  norms.n = norms.columns = a.n / block;
  const Buffer<int32_t> entries(context, norms.n);
  const Buffer<uint8_t> whole(context, norms.n);
  const int blocks = Blocks(context, norms.n, kWarps);
  CountBlocksKernel<<<blocks, kThreads, 0, context.stream>>>(a.pattern(), block, entries.get(),
                                                             whole.get());
  CheckLaunch("CountBlocksKernel");
  SizeRows(context, entries, norms);
  NormsKernel<<<blocks, kThreads, 0, context.stream>>>(a.pattern(), a.values.get(), roots.get(),
                                                       block, whole.get(), norms.col_ptr.get(),
                                                       norms.row_idx.get(), norms.values.get());
  CheckLaunch("NormsKernel");
  return norms;
}

}  // namespace spaid::cuda
