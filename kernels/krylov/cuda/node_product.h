// y = A x for the layouts of dia.h and bsr.h, with the epilogues of product.h. For .cu files.
//
// A thread goes through the blocks of one node's rows; where that is much work, several warps of a
// block of threads share the blocks of the same nodes, and add up their sums in the end.
#pragma once

#include <type_traits>

#include "kernels/krylov/cuda/bsr.h"
#include "kernels/krylov/cuda/dia.h"
#include "kernels/krylov/cuda/product.h"

namespace spaid::cuda {
namespace node_product {

using product::kWritesItself;
using product::SlotSums;

inline constexpr int kWarps = kProductThreads / 32;

// Eviction policies of the second-level cache: for data that is read again soon, or not at all.
__device__ inline uint64_t Keep() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint64_t Pass() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline double Load(const double* at, uint64_t policy) {
  double value;
  asm("ld.global.nc.L2::cache_hint.f64 %0, [%1], %2;" : "=d"(value) : "l"(at), "l"(policy));
  return value;
}
__device__ inline float Load(const float* at, uint64_t policy) {
  float value;
  asm("ld.global.nc.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(at), "l"(policy));
  return value;
}

// Blocks that a thread loads before it waits for the first of them.
template <int kColumns, int kNode>
inline constexpr int kBlocksTogether = kColumns > 1 ? (kNode == 1 ? 4 : 1)
                                       : kNode == 1 ? 9
                                       : kNode == 2 ? 3
                                                    : 2;

// Adds to the sums of the rows of the node at `place`, for kColumns interleaved vectors, the
// products of every groups-th of its blocks, from block `group` on, in this order.
template <int kColumns, int kNode, class Ref, class X>
__device__ void AddBlocks(const Ref& a, int32_t place, int group, const X* x,
                          double (&sums)[kNode * kColumns]) {
  using Value = typename Ref::ValueType;
  constexpr int kSquare = kNode * kNode;
  constexpr int kTogether = kBlocksTogether<kColumns, kNode>;
  const uint64_t policy = a.streams ? Pass() : Keep();
  const auto row = a.RowAt(place);
  for (int k = group; k < row.count; k += kTogether * a.groups) {
    Value values[kTogether][kSquare];
    double xs[kTogether][kNode * kColumns];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const auto block = a.BlockAt(row, place, k + u * a.groups);
#pragma unroll
      for (int e = 0; e < kSquare; ++e) {
        values[u][e] = block.in ? Load(block.values + e * a.Stride(), policy) : Value{0};
      }
#pragma unroll
      for (int c = 0; c < kNode; ++c) {
        const X* const from = x + (int64_t{block.column} * kNode + c) * kColumns;
        product::LoadRow<kColumns>(from, block.in, &xs[u][c * kColumns]);
      }
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const bool mirror = a.IsMirror(k + u * a.groups);
#pragma unroll
      for (int r = 0; r < kNode; ++r) {
#pragma unroll
        for (int c = 0; c < kNode; ++c) {
          const double value = mirror ? values[u][c * kNode + r] : values[u][r * kNode + c];
#pragma unroll
          for (int v = 0; v < kColumns; ++v) {
            double& sum = sums[r * kColumns + v];
            sum = fma(value, xs[u][c * kColumns + v], sum);
          }
        }
      }
    }
  }
}

// The sums of an epilogue: in registers where shared memory is needed for partial sums, else there.
template <int kColumns, int kSums>
struct RegisterSums {
  double sums[kColumns][kSums] = {};
  template <class Epilogue>
  __device__ void Row(const Epilogue& epilogue, int64_t at, double y, int slot) {
    epilogue.Row(at, y, sums[slot]);
  }
  template <class Epilogue>
  __device__ void Finish(const Epilogue& epilogue) {
    epilogue.Finish(sums);
  }
};
template <int kColumns, int kNode, int kSums>
using EpilogueSums = std::conditional_t<kNode == 1 || kSums == 0, SlotSums<kColumns, kSums>,
                                        RegisterSums<kColumns, kSums>>;

// The product of a thread's nodes, or, where warps share blocks, of its part of them; in the end a
// thread adds up rows of the block's nodes, slot by slot. Where `runs` is false, nothing is done
// for the thread's column.
template <int kColumns, int kNode, class Ref, class X, class Epilogue>
__device__ void Multiply(const Ref& a, const X* x, X* y, bool runs, const Epilogue& epilogue) {
  __shared__ double partial[kWarps][kNode * kColumns][33];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int slice = warp / a.groups, group = warp % a.groups;
  const int tile = kProductThreads / a.groups;  // nodes
  const int column = Column<kColumns>();
  EpilogueSums<kColumns, kNode, Epilogue::kSums> sums;
  for (int64_t begin = int64_t{blockIdx.x} * tile; begin < a.nodes;
       begin += int64_t{gridDim.x} * tile) {
    const int64_t place = begin + slice * 32 + lane;
    double own[kNode * kColumns] = {};
    if (place < a.nodes) {
      AddBlocks<kColumns, kNode>(a, static_cast<int32_t>(place), group, x, own);
    }
    if (kColumns == 1 && kNode == 1 && a.groups == 1) {
      if (place < a.nodes) {
        const int64_t i = a.NodeAt(place);
        if constexpr (!kWritesItself<Epilogue>) y[i] = static_cast<X>(own[0]);
        sums.Row(epilogue, i, own[0], 0);
      }
      continue;
    }
#pragma unroll
    for (int e = 0; e < kNode * kColumns; ++e) partial[warp][e][lane] = own[e];
    __syncthreads();
    const int count = static_cast<int>(min(int64_t{tile}, a.nodes - begin)) * kNode;
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) {
      for (int t = warp * 32 + LaneOf<kColumns>(slot); runs && t < count; t += kProductThreads) {
        const int of = t / kNode, e = t % kNode;
        double sum = 0;
        for (int g = 0; g < a.groups; ++g) {
          sum += partial[of / 32 * a.groups + g][e * kColumns + column][of % 32];
        }
        const int64_t at = (a.NodeAt(begin + of) * kNode + e) * kColumns + column;
        if constexpr (!kWritesItself<Epilogue>) y[at] = static_cast<X>(sum);
        sums.Row(epilogue, at, sum, slot);
      }
    }
    __syncthreads();
  }
  sums.Finish(epilogue);
}

// Resident blocks a multiprocessor, at least.
template <int kColumns, int kNode>
inline constexpr int kNodeBlocks = kColumns == 1 ? kNodeResident
                                   : kNode == 1  ? 4
                                                 : 2;

template <int kColumns, int kNode, class Ref, class X, class Epilogue>
__global__ void __launch_bounds__(kProductThreads, (kNodeBlocks<kColumns, kNode>))
    NodeKernel(__grid_constant__ const Ref a, const X* __restrict__ x, X* __restrict__ y,
               Epilogue epilogue) {
  const bool runs = !epilogue.Skip();
  if (!AnyRuns<kColumns>(runs)) return;
  Multiply<kColumns, kNode>(a, x, y, runs, epilogue);
}

template <int kColumns, int kNode, class Ref, class X, class Epilogue>
void LaunchNodes(const Branch& branch, int blocks, const Ref& a, const X* x, X* y,
                 const Epilogue& epilogue) {
  Launch(branch, &NodeKernel<kColumns, kNode, Ref, X, Epilogue>, blocks, 1, kProductThreads, 0, a,
         x, y, epilogue);
}

template <int kColumns, class Ref, class X, class Epilogue>
void LaunchDia(const Branch& branch, int node, int blocks, const Ref& a, const X* x, X* y,
               const Epilogue& epilogue) {
  static_assert(kMaxNode == 3);
  if (node == 1) LaunchNodes<kColumns, 1>(branch, blocks, a, x, y, epilogue);
  if (node == 2) LaunchNodes<kColumns, 2>(branch, blocks, a, x, y, epilogue);
  if (node == 3) LaunchNodes<kColumns, 3>(branch, blocks, a, x, y, epilogue);
}

}  // namespace node_product

// As LaunchProduct of product.h, with the same promises.
template <int kColumns = 1, class Value, class X, class Epilogue>
void LaunchProduct(const Branch& branch, const Dia<Value>& a, const X* x, X* y,
                   const Epilogue& epilogue) {
  using namespace node_product;
  if (a.is_half()) {
    LaunchDia<kColumns>(branch, a.node(), a.blocks(), HalfDiaRef<Value>{a.ref()}, x, y, epilogue);
  } else {
    LaunchDia<kColumns>(branch, a.node(), a.blocks(), a.ref(), x, y, epilogue);
  }
}

template <int kColumns = 1, class Value, class X, class Epilogue>
void LaunchProduct(const Branch& branch, const Bsr<Value>& a, const X* x, X* y,
                   const Epilogue& epilogue) {
  using namespace node_product;
  if (a.node() == 2) LaunchNodes<kColumns, 2>(branch, a.blocks(), a.ref(), x, y, epilogue);
  if (a.node() == 3) LaunchNodes<kColumns, 3>(branch, a.blocks(), a.ref(), x, y, epilogue);
}

}  // namespace spaid::cuda
