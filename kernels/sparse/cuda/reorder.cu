#include <cooperative_groups.h>

#include <algorithm>
#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/sparse/cuda/reorder.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 256;
// The search: a block a multiprocessor, and lanes that follow one column together.
constexpr int kSearchThreads = 1024, kLanes = 8, kTeams = kSearchThreads / kLanes;
constexpr int64_t kHub = 1024;
constexpr int kMostStarts = 64, kMostSteps = 4096, kLeastSteps = 12;
// The search is begun anew from where it ended where that took so many steps at most: of a long
// graph every end is as good.
constexpr int kAgainSteps = 512;
// An unknown that the search has not seen: bytes of 0x7f, more than any place.
constexpr int32_t kUnseen = 0x7f7f7f7f;

struct Search {
  int32_t start[kMostStarts];  // the first unknown of each component
  int32_t placed;              // unknowns that have their place
  int32_t steps;               // of the longest component
};

// A level of the search is order[begin, end).
struct Level {
  int32_t begin, end;
};

// The columns of a level, a team each: use(team's lane mask, place, rows, count). Blocks take
// consecutive ones, `of_block` each.
template <class Use>
__device__ void ForColumns(const PatternRef& a, const int32_t* order, int32_t begin, int32_t end,
                           const Use& use) {
  for (int32_t k = begin + static_cast<int32_t>(threadIdx.x) / kLanes; k < end; k += kTeams) {
    const int32_t u = order[k];
    const int64_t first = a.col_ptr[u], count = a.col_ptr[u + 1] - first;
    use(k, a.row_idx + first, count > kHub ? 0 : static_cast<int32_t>(count));
  }
}

// The lanes of the thread's team.
__device__ unsigned TeamMask() {
  return ((1u << kLanes) - 1) << (threadIdx.x % 32 / kLanes * kLanes);
}

// Sum over the block, for all of its threads.
__device__ int32_t BlockSum(int32_t own) {
  __shared__ int32_t of_warps[kSearchThreads / 32];
  own = __reduce_add_sync(~0u, own);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  return __reduce_add_sync(~0u, of_warps[threadIdx.x % 32]);
}

// Exclusive sums over the block's threads.
__device__ int32_t BlockScan(int32_t own) {
  __shared__ int32_t of_warps[kSearchThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int32_t sum = own;
  for (int step = 1; step < 32; step *= 2) {
    const int32_t before = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += before;
  }
  __syncthreads();
  if (lane == 31) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int32_t before = __reduce_add_sync(~0u, lane < warp ? of_warps[lane] : 0);
  return before + sum - own;
}

// One step: gives the neighbours of a level that nobody has seen their places behind it, those of
// its first unknown first; returns their number. `parent`: the place of the first one that saw an
// unknown; `count`: of n elements, `sums`: of the grid's blocks.
__device__ int32_t Step(cg::grid_group& grid, const PatternRef& a, Level level, int32_t* order,
                        int32_t* parent, int32_t* count, int32_t* sums) {
  const auto blocks = static_cast<int32_t>(gridDim.x), block = static_cast<int32_t>(blockIdx.x);
  const int32_t each = (level.end - level.begin + blocks - 1) / blocks;
  const int32_t begin = min(level.end, level.begin + block * each);
  const int32_t end = min(level.end, begin + each);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  ForColumns(a, order, begin, end, [&](int32_t k, const int32_t* rows, int32_t length) {
    for (int32_t p = lane; p < length; p += kLanes) {
      if (parent[rows[p]] > k) atomicMin(parent + rows[p], k);
    }
  });
  grid.sync();
  int32_t own = 0;
  const unsigned team = TeamMask();
  ForColumns(a, order, begin, end, [&](int32_t k, const int32_t* rows, int32_t length) {
    int32_t children = 0;
    for (int32_t p = lane; p < length; p += kLanes) children += parent[rows[p]] == k ? 1 : 0;
    children = __reduce_add_sync(team, children);
    if (lane == 0) {
      count[k] = children;
      own += children;
    }
  });
  own = BlockSum(own);
  if (threadIdx.x == 0) sums[block] = own;
  grid.sync();
  int32_t before = 0, all = 0;
  for (int32_t b = static_cast<int32_t>(threadIdx.x); b < blocks; b += kSearchThreads) {
    all += sums[b];
    if (b < block) before += sums[b];
  }
  all = BlockSum(all);
  before = BlockSum(before);
  for (int32_t from = begin; from < end; from += kSearchThreads) {
    const int32_t k = from + static_cast<int32_t>(threadIdx.x);
    const int32_t children = k < end ? count[k] : 0;
    const int32_t at = BlockScan(children);
    if (k < end) count[k] = level.end + before + at;
    before += BlockSum(children);
  }
  __syncthreads();
  ForColumns(a, order, begin, end, [&](int32_t k, const int32_t* rows, int32_t length) {
    int32_t at = count[k];
    for (int32_t p = 0; p < length; p += kLanes) {
      const bool child = p + lane < length && parent[rows[p + lane]] == k;
      const unsigned those = __ballot_sync(team, child);
      const unsigned earlier = those & ((1u << threadIdx.x % 32) - 1);
      if (child) order[at + __popc(earlier)] = rows[p + lane];
      at += __popc(those);
    }
  });
  grid.sync();
  return all;
}

// Begun by a cooperative launch. `order`, `count`: of n elements; `parent`: the same, all unseen.
__global__ void __launch_bounds__(kSearchThreads, 1)
    SearchKernel(PatternRef a, int node, int32_t* order, int32_t* parent, int32_t* count,
                 int32_t* sums, Search* search) {
  cg::grid_group grid = cg::this_grid();
  const int64_t thread = int64_t{blockIdx.x} * kSearchThreads + threadIdx.x;
  const int64_t threads = int64_t{gridDim.x} * kSearchThreads;
  int32_t placed = 0, longest = 0;
  int steps = 0;
  for (int component = 0; component < kMostStarts && steps < kMostSteps; ++component) {
    // The first unknown that nobody has seen and that has neighbours outside its node.
    for (int64_t i = thread * node; i < a.n; i += threads * node) {
      if (parent[i] != kUnseen || a.col_ptr[i + 1] - a.col_ptr[i] <= node) continue;
      atomicMin(search->start + component, static_cast<int32_t>(i));
      break;
    }
    grid.sync();
    int32_t start = search->start[component];
    if (start == kUnseen) break;
    for (const bool again : {false, true}) {
      if (thread < node) {
        order[placed + thread] = start + static_cast<int32_t>(thread);
        parent[start + thread] = -1;
      }
      grid.sync();
      Level level{placed, placed + node};
      int own_steps = 0;
      while (level.begin < level.end && steps < kMostSteps) {
        const int32_t next = Step(grid, a, level, order, parent, count, sums);
        level = {level.end, level.end + next};
        ++own_steps;
        ++steps;
      }
      if (again || own_steps > kAgainSteps || steps >= kMostSteps) {
        placed = level.end;
        longest = max(longest, own_steps);
        break;
      }
      start = order[level.end - 1] / node * node;
      for (int64_t k = placed + thread; k < level.end; k += threads) parent[order[k]] = kUnseen;
      grid.sync();
    }
  }
  if (thread == 0) {
    search->placed = placed;
    search->steps = longest;
  }
}

__global__ void UnseenKernel(const int32_t* parent, int64_t n, int32_t* unseen) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) unseen[i] = parent[i] == kUnseen ? 1 : 0;
}
// `before`: how many unseen ones are before each.
__global__ void RestKernel(const int32_t* parent, const int32_t* before, int64_t n, int32_t placed,
                           int32_t* order) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n && parent[i] == kUnseen) order[placed + before[i]] = static_cast<int32_t>(i);
}
__global__ void PlaceKernel(const int32_t* order, int64_t n, int32_t* place) {
  const int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (k < n) place[order[k]] = static_cast<int32_t>(k);
}

__global__ void LengthKernel(PatternRef a, const int32_t* order, int64_t* length) {
  const int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (k < a.n) length[k] = a.col_ptr[order[k] + 1] - a.col_ptr[order[k]];
}
// A team a column; its rows come in any order.
__global__ void PermuteKernel(PatternRef a, const int32_t* order, const int32_t* place,
                              const int64_t* col_ptr, int32_t* row_idx) {
  const int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  if (k >= a.n) return;
  const int64_t from = a.col_ptr[order[k]], at = col_ptr[k], count = col_ptr[k + 1] - at;
  for (int64_t p = threadIdx.x % kLanes; p < count; p += kLanes) {
    row_idx[at + p] = place[a.row_idx[from + p]];
  }
}
// A team a row.
__global__ void PermutedValuesKernel(PatternRef a, const double* values, const int32_t* order,
                                     const int64_t* row_ptr, const int32_t* cols, double* to) {
  const int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  if (k >= a.n) return;
  for (int64_t p = row_ptr[k] + threadIdx.x % kLanes; p < row_ptr[k + 1]; p += kLanes) {
    to[p] = EntryAt(a, values, order[k], order[cols[p]]);
  }
}

__global__ void CarryKernel(const int32_t* order, int64_t n, const double* from, double* to) {
  const int64_t k = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (k < n) to[k] = from[order[k]];
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

std::optional<UnknownOrder> FindOrder(Context& context, const PatternRef& a, int node) {
  if (a.n == 0 || a.n >= kUnseen) return std::nullopt;
  UnknownOrder made{{context, a.n}, {context, a.n}};
  const Buffer<int32_t> parent(context, a.n);
  // Used before the places are known, and then for the rest: n + 1 of them.
  const Buffer<int32_t> count(context, a.n + 1);
  const Buffer<int32_t> sums(context, context.multiprocessors);
  const Buffer<Search> search(context, 1);
  parent.Fill(0x7f);
  search.Fill(0x7f);
  PatternRef pattern = a;
  int32_t *order = made.order.get(), *parents = parent.get(), *counts = count.get(),
          *of_blocks = sums.get();
  Search* own = search.get();
  void* arguments[] = {&pattern, &node, &order, &parents, &counts, &of_blocks, &own};
  Check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&SearchKernel),
                                    dim3(static_cast<unsigned>(context.multiprocessors)),
                                    dim3(kSearchThreads), arguments, 0, context.stream),
        "cudaLaunchCooperativeKernel");
  const Search found = Read(context, search, 0);
  if (found.steps < kLeastSteps) return std::nullopt;
  if (found.placed < a.n) {
    UnseenKernel<<<Blocks(a.n), kThreads, 0, context.stream>>>(parents, a.n, counts);
    CheckLaunch("UnseenKernel");
    Scan(context, count, a.n + 1);
    RestKernel<<<Blocks(a.n), kThreads, 0, context.stream>>>(parents, counts, a.n, found.placed,
                                                             order);
    CheckLaunch("RestKernel");
  }
  PlaceKernel<<<Blocks(a.n), kThreads, 0, context.stream>>>(order, a.n, made.place.get());
  CheckLaunch("PlaceKernel");
  return made;
}

Matrix PermuteByRows(Context& context, const PatternRef& a, int64_t nnz, const double* values,
                     const UnknownOrder& order) {
  Matrix made;
  {
    const Buffer<int64_t> col_ptr(context, a.n + 1);
    const Buffer<int32_t> row_idx(context, nnz);
    LengthKernel<<<Blocks(a.n), kThreads, 0, context.stream>>>(a, order.order.get(), col_ptr.get());
    CheckLaunch("LengthKernel");
    Scan(context, col_ptr, a.n + 1);
    PermuteKernel<<<Blocks(a.n * kLanes), kThreads, 0, context.stream>>>(
        a, order.order.get(), order.place.get(), col_ptr.get(), row_idx.get());
    CheckLaunch("PermuteKernel");
    // Rows may come in any order: there are no values yet.
    made = Transpose(context, {a.n, col_ptr.get(), row_idx.get()}, nnz, nullptr);
  }
  made.values = Buffer<double>(context, nnz);
  PermutedValuesKernel<<<Blocks(a.n * kLanes), kThreads, 0, context.stream>>>(
      a, values, order.order.get(), made.col_ptr.get(), made.row_idx.get(), made.values.get());
  CheckLaunch("PermutedValuesKernel");
  return made;
}

void Carry(const Context& context, const UnknownOrder& order, const double* from, double* to) {
  const int64_t n = order.order.size();
  CarryKernel<<<Blocks(n), kThreads, 0, context.stream>>>(order.order.get(), n, from, to);
  CheckLaunch("CarryKernel");
}

}  // namespace spaid::cuda
