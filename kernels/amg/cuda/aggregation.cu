#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/amg/cuda/aggregation.h"
#include "kernels/amg/cuda/keys.h"
#include "kernels/amg/cuda/lanes.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

constexpr uint64_t kRoot = 0, kNone = ~uint64_t{0}, kUnknown = 1;  // no key is any of them
constexpr int kFlags = 3;
// Rows of more neighbours than that are summed by all threads of a block.
constexpr int64_t kLongRow = 128;

struct GraphRef {
  int64_t n;
  const int64_t* ptr;
  const int32_t* neighbours;
  const double* weights;
  const int32_t* leader;

  __device__ bool Coupled(int64_t i) const { return ptr[i] < ptr[i + 1]; }
};

// State of the search for roots. What blocks write for one another is read past the caches of the
// multiprocessors.
struct Search {
  GraphRef graph;
  int level;
  uint64_t *own, *nearest;
  int32_t* root_of;
  // Whether nodes are still undecided, by rounds in turn.
  int32_t* undecided;
  SumSpace space;

  // Whether the second phase is about a node.
  __device__ bool Left(int64_t i) const { return root_of[i] < 0 && graph.Coupled(i); }
};

template <int kLanes>
__device__ uint64_t Least(const LaneGroup<kLanes>& group, const Search& of, const uint64_t* keys,
                          int64_t i) {
  uint64_t least = group.lane == 0 ? __ldcg(keys + i) : kNone;
  for (int64_t p = of.graph.ptr[i] + group.lane; p < of.graph.ptr[i + 1]; p += kLanes) {
    const uint64_t other = __ldcg(keys + of.graph.neighbours[p]);
    least = other < least ? other : least;
  }
  return group.Best(least, [](uint64_t x, uint64_t y) { return x < y ? x : y; });
}

// The key of a node that may become a root in this phase; kNone: it may not.
template <int kLanes, bool kSecond>
__device__ uint64_t FirstKey(const LaneGroup<kLanes>& group, const Search& of, int64_t i) {
  if constexpr (!kSecond) {
    return of.graph.Coupled(i) ? AggregationKey(i, of.level) : kNone;
  } else {
    if (!of.Left(i)) return kNone;
    int too = 0;
    const int64_t begin = of.graph.ptr[i], end = of.graph.ptr[i + 1];
    for (int64_t p = begin + group.lane; p < end; p += kLanes) {
      too += of.Left(of.graph.neighbours[p]) ? 1 : 0;
    }
    too = group.Best(too, [](int x, int y) { return x + y; });
    return too >= 2 && 3 * int64_t{too} >= 2 * (end - begin) ? AggregationKey(i, of.level) : kNone;
  }
}

// One phase: roots, and who their neighbours are. Cooperative: all blocks run at once.
template <int kLanes, bool kSecond>
__global__ void __launch_bounds__(kThreads) PhaseKernel(Search of) {
  __shared__ unsigned barriers;
  if (threadIdx.x == 0) barriers = 0;
  __syncthreads();
  of.space.barriers = &barriers;
  const LaneGroup<kLanes> group;
  const int64_t n = of.graph.n;
  group.ForRows(n, [&](int64_t i) {
    const bool open = !kSecond || of.Left(i);
    const uint64_t key = FirstKey<kLanes, kSecond>(group, of, i);
    if (group.lane != 0) return;
    of.own[i] = key;
    of.nearest[i] = open ? kUnknown : kNone;
  });
  GridBarrier(of.space);
  for (int round = 0;; ++round) {
    if (blockIdx.x == 0 && threadIdx.x == 0) of.undecided[(round + 1) % kFlags] = 0;
    group.ForRows(n, [&](int64_t i) {
      const uint64_t before = of.nearest[i];  // this group's own
      if (before == kNone || before == kRoot) return;
      const uint64_t least = Least(group, of, of.own, i);
      if (group.lane == 0) of.nearest[i] = least;
      __syncwarp(group.mask);
    });
    GridBarrier(of.space);
    bool any = false;
    group.ForRows(n, [&](int64_t i) {
      const uint64_t own = of.own[i];
      if (own == kNone || own == kRoot) return;
      const uint64_t least = Least(group, of, of.nearest, i);
      if (least == kRoot || least == own) {
        if (group.lane == 0) of.own[i] = least == kRoot ? kNone : kRoot;
        __syncwarp(group.mask);
      } else {
        any = true;
      }
    });
    if (__syncthreads_or(any ? 1 : 0) != 0 && threadIdx.x == 0) {
      __stcg(of.undecided + round % kFlags, 1);
    }
    GridBarrier(of.space);
    if (__ldcg(of.undecided + round % kFlags) == 0) break;
  }
  // No two roots are within distance two: a node is near one at most.
  group.ForRows(n, [&](int64_t i) {
    if (kSecond ? !of.Left(i) : !of.graph.Coupled(i)) return;
    int32_t root = -1;
    for (int64_t p = of.graph.ptr[i] + group.lane; p < of.graph.ptr[i + 1]; p += kLanes) {
      const int32_t j = of.graph.neighbours[p];
      if (__ldcg(of.own + j) == kRoot) root = j;
    }
    root = group.Best(root, [](int32_t x, int32_t y) { return max(x, y); });
    if (root < 0 && __ldcg(of.own + i) == kRoot) root = static_cast<int32_t>(i);
    if (group.lane == 0 && root >= 0) of.root_of[i] = root;
    __syncwarp(group.mask);
  });
}

// The root whose aggregate each node belongs to, or is coupled to most. Nodes with long rows are
// listed, and wait.
__global__ void __launch_bounds__(kThreads)
    JoinKernel(GraphRef graph, const int32_t* __restrict__ root_of, int32_t* __restrict__ joined,
               int32_t* __restrict__ waiting, int32_t* __restrict__ waiting_count) {
  for (int64_t i = ThreadOfGrid(); i < graph.n; i += ThreadsOfGrid()) {
    int32_t best = root_of[i];
    const int64_t begin = graph.ptr[i], end = graph.ptr[i + 1];
    if (best < 0 && end - begin > kLongRow) {
      waiting[atomicAdd(waiting_count, 1)] = static_cast<int32_t>(i);
    } else if (best < 0) {
      double most = 0;
      for (int64_t p = begin; p < end; ++p) {
        const int32_t root = root_of[graph.neighbours[p]];
        if (root < 0) continue;
        bool again = false;
        for (int64_t q = begin; q < p && !again; ++q) again = root_of[graph.neighbours[q]] == root;
        if (again) continue;
        double sum = graph.weights[p];
        for (int64_t q = p + 1; q < end; ++q) {
          if (root_of[graph.neighbours[q]] == root) sum += graph.weights[q];
        }
        if (best < 0 || sum > most || (sum == most && root < best)) best = root, most = sum;
      }
    }
    joined[i] = best;
  }
}

// The same of those, a node after the other by one block: each thread sums the couplings to roots
// of its own, in `sum`, which has a place for each node; `summed` says of which node it is.
__global__ void __launch_bounds__(kThreads)
    JoinLongKernel(GraphRef graph, const int32_t* __restrict__ root_of,
                   int32_t* __restrict__ joined, const int32_t* __restrict__ waiting,
                   const int32_t* __restrict__ waiting_count, double* __restrict__ sum,
                   int32_t* __restrict__ summed) {
  __shared__ int32_t roots[kThreads];
  __shared__ double weights[kThreads];
  __shared__ int32_t best_of[kThreads];
  __shared__ double most_of[kThreads];
  const auto own = static_cast<int32_t>(threadIdx.x);
  for (int32_t k = 0; k < *waiting_count; ++k) {
    const int32_t i = waiting[k];
    const int64_t end = graph.ptr[i + 1];
    int32_t best = -1;
    double most = 0;
    for (int pass = 0; pass < 2; ++pass) {
      const bool found = pass == 1;
      for (int64_t p = graph.ptr[i]; p < end; p += kThreads) {
        const int64_t at = p + own;
        roots[own] = at < end ? root_of[graph.neighbours[at]] : -1;
        weights[own] = at < end ? graph.weights[at] : 0;
        __syncthreads();
        for (int e = 0; e < kThreads; ++e) {
          const int32_t root = roots[e];
          if (root < 0 || root % kThreads != own) continue;
          if (found) {
            const double all = sum[root];
            if (best < 0 || all > most || (all == most && root < best)) best = root, most = all;
          } else if (summed[root] != i) {
            summed[root] = i;
            sum[root] = weights[e];
          } else {
            sum[root] += weights[e];
          }
        }
        __syncthreads();
      }
    }
    best_of[own] = best;
    most_of[own] = most;
    __syncthreads();
    if (own == 0) {
      for (int t = 1; t < kThreads; ++t) {
        if (best_of[t] < 0) continue;
        if (best < 0 || most_of[t] > most || (most_of[t] == most && best_of[t] < best)) {
          best = best_of[t], most = most_of[t];
        }
      }
      joined[i] = best;
    }
    __syncthreads();
  }
}

// Nodes without an aggregate join that of their leader; `first`: the smallest node of each.
__global__ void __launch_bounds__(kThreads)
    LeadersKernel(GraphRef graph, const int32_t* __restrict__ joined, int32_t* __restrict__ root_of,
                  int32_t* __restrict__ first, unsigned long long* __restrict__ isolated) {
  int alone = 0;
  for (int64_t i = ThreadOfGrid(); i < graph.n; i += ThreadsOfGrid()) {
    const int32_t leader = graph.leader[i];
    const int32_t root = joined[i] < 0 && leader >= 0 ? joined[leader] : joined[i];
    root_of[i] = root;
    if (root >= 0) {
      atomicMin(first + root, static_cast<int32_t>(i));
    } else {
      ++alone;
    }
  }
  for (int step = 16; step > 0; step /= 2) alone += __shfl_xor_sync(~0u, alone, step);
  if (threadIdx.x % 32 == 0 && alone > 0) {
    atomicAdd(isolated, static_cast<unsigned long long>(alone));
  }
}

__global__ void __launch_bounds__(kThreads)
    FirstsKernel(int64_t n, const int32_t* __restrict__ root_of, const int32_t* __restrict__ first,
                 int32_t* __restrict__ number) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int32_t root = root_of[i];
    number[i] = root >= 0 && first[root] == i ? 1 : 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    NumbersKernel(int64_t n, const int32_t* __restrict__ root_of, const int32_t* __restrict__ first,
                  const int32_t* __restrict__ number, int32_t* __restrict__ of_node) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int32_t root = root_of[i];
    of_node[i] = root >= 0 ? number[first[root]] : -1;
  }
}

template <int kLanes, bool kSecond>
void LaunchPhase(const Context& context, Search search) {
  const auto* const kernel = reinterpret_cast<const void*>(&PhaseKernel<kLanes, kSecond>);
  int resident = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, 0),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int64_t rows_a_block = kThreads / kLanes;
  const int blocks =
      static_cast<int>(std::clamp<int64_t>((search.graph.n + rows_a_block - 1) / rows_a_block, 1,
                                           int64_t{resident} * context.multiprocessors));
  void* arguments[] = {&search};
  Check(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                                    arguments, 0, context.stream),
        "cudaLaunchCooperativeKernel");
}

// A few lanes a row pay where rows are longer than on grids.
template <bool kSecond>
void LaunchPhase(const Context& context, const Search& search, bool long_rows) {
  if (long_rows) return LaunchPhase<8, kSecond>(context, search);
  LaunchPhase<2, kSecond>(context, search);
}

}  // namespace

Aggregates Aggregate(Context& context, const StrongGraph& strong, int level) {
  const int64_t n = strong.n;
  const GraphRef graph{n, strong.ptr.get(), strong.neighbours.get(), strong.weights.get(),
                       strong.leader.get()};
  const Buffer<int32_t> root_of(context, n), joined(context, n), first(context, n),
      number(context, n + 1);
  {
    const Buffer<uint64_t> own(context, n), nearest(context, n);
    const Buffer<int32_t> flags(context, kFlags);
    const Buffer<unsigned> arrived(context, 2);
    root_of.Fill(0xff);
    const Search search{graph,
                        level,
                        own.get(),
                        nearest.get(),
                        root_of.get(),
                        flags.get(),
                        SumSpace{nullptr, arrived.get()}};
    const bool long_rows = strong.most_entries > 10 * n;
    const auto run = [&](auto second) {
      flags.Fill(0);
      arrived.Fill(0);
      LaunchPhase<second>(context, search, long_rows);
    };
    run(std::false_type{});
    run(std::true_type{});
  }
  const int blocks = Blocks(context, n, kThreads);
  const Buffer<int32_t> waiting(context, n), waiting_count(context, 1);
  waiting_count.Fill(0);
  JoinKernel<<<blocks, kThreads, 0, context.stream>>>(graph, root_of.get(), joined.get(),
                                                      waiting.get(), waiting_count.get());
  CheckLaunch("JoinKernel");
  {
    const Buffer<double> sum(context, n);
    first.Fill(0xff);  // of no node yet
    JoinLongKernel<<<1, kThreads, 0, context.stream>>>(graph, root_of.get(), joined.get(),
                                                       waiting.get(), waiting_count.get(),
                                                       sum.get(), first.get());
    CheckLaunch("JoinLongKernel");
  }
  const Buffer<unsigned long long> isolated(context, 1);
  isolated.Fill(0);
  first.Fill(0x7f);  // larger than any node
  LeadersKernel<<<blocks, kThreads, 0, context.stream>>>(graph, joined.get(), root_of.get(),
                                                         first.get(), isolated.get());
  CheckLaunch("LeadersKernel");
  FirstsKernel<<<blocks, kThreads, 0, context.stream>>>(n, root_of.get(), first.get(),
                                                        number.get());
  CheckLaunch("FirstsKernel");
  Scan(context, number, n + 1);
  Aggregates made;
  made.of_node = Buffer<int32_t>(context, n);
  NumbersKernel<<<blocks, kThreads, 0, context.stream>>>(n, root_of.get(), first.get(),
                                                         number.get(), made.of_node.get());
  CheckLaunch("NumbersKernel");
  int32_t count = 0;
  unsigned long long alone = 0;
  context.Download({number.To(&count, 1, n), isolated.To(&alone, 1)});
  made.count = count;
  made.isolated = static_cast<int64_t>(alone);
  return made;
}

}  // namespace spaid::cuda
