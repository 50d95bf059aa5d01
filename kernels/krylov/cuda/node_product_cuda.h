// The products of dia_cuda.h and node_rows_cuda.h, with the epilogues of product_cuda.h. For .cu
// files.
//
// A thread goes through blocks of one node's rows; where that is much work, the warps of a block of
// threads share it out among them, each the same nodes, and add up in the end.
#pragma once

#include "kernels/krylov/cuda/dia_cuda.h"
#include "kernels/krylov/cuda/node_rows_cuda.h"
#include "kernels/krylov/cuda/product_cuda.h"

namespace spaid::cuda {
namespace node_product {

inline constexpr int kWarps = kProductThreads / 32;

// How the second-level cache treats what is read: as what comes again soon, or not at all.
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

// Adds to the rows of the node at `place`, for kVectors interleaved vectors, every groups-th of its
// blocks, from number `group` on, in this order.
template <int kNode, int kVectors, class Ref>
__device__ void AddBlocks(const Ref& a, int32_t place, int group, const double* x,
                          double (&sums)[kNode * kVectors]) {
  using Value = typename Ref::ValueType;
  constexpr int kSquare = kNode * kNode, kX = kNode * kVectors;
  // Blocks that a thread asks for before it waits for the first of them.
  constexpr int kTogether = kNode == 1 ? 9 : kNode == 2 ? 3 : 2;
  const uint64_t policy = a.streams ? Pass() : Keep();
  const auto row = a.RowAt(place);
  for (int k = group; k < row.count; k += kTogether * a.groups) {
    Value values[kTogether][kSquare];
    double xs[kTogether][kX];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const auto block = a.BlockAt(row, place, k + u * a.groups);
#pragma unroll
      for (int e = 0; e < kSquare; ++e) {
        values[u][e] = block.in ? Load(block.values + e * a.Stride(), policy) : Value{0};
      }
#pragma unroll
      for (int e = 0; e < kX; ++e) {
        xs[u][e] = block.in ? __ldg(x + int64_t{block.column} * kX + e) : 0.0;
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
          for (int v = 0; v < kVectors; ++v) {
            double& sum = sums[r * kVectors + v];
            sum = fma(value, xs[u][c * kVectors + v], sum);
          }
        }
      }
    }
  }
}

template <int kNode, int kVectors, class Ref, class Epilogue>
__global__ void __launch_bounds__(kProductThreads, kNodeResident)
    NodeKernel(__grid_constant__ const Ref a, const double* __restrict__ x, double* __restrict__ y,
               Epilogue epilogue) {
  if (epilogue.Skip()) return;
  constexpr int kX = kNode * kVectors;
  __shared__ double partial[kWarps][kX][33];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int slice = warp / a.groups, group = warp % a.groups;
  const int tile = kProductThreads / a.groups;  // nodes
  double sums[Epilogue::kSums] = {};
  for (int64_t begin = int64_t{blockIdx.x} * tile; begin < a.nodes;
       begin += int64_t{gridDim.x} * tile) {
    const int64_t place = begin + slice * 32 + lane;
    double own[kX] = {};
    if (place < a.nodes) {
      AddBlocks<kNode, kVectors>(a, static_cast<int32_t>(place), group, x, own);
    }
    if (kX == 1 && a.groups == 1) {
      if (place < a.nodes) {
        const int64_t i = a.NodeAt(place);
        y[i] = own[0];
        epilogue.Row(i, own[0], sums);
      }
      continue;
    }
#pragma unroll
    for (int e = 0; e < kX; ++e) partial[warp][e][lane] = own[e];
    __syncthreads();
    const int count = static_cast<int>(min(int64_t{tile}, a.nodes - begin)) * kX;
    for (int t = static_cast<int>(threadIdx.x); t < count; t += kProductThreads) {
      const int of = t / kX, e = t % kX;
      double sum = 0;
      for (int g = 0; g < a.groups; ++g) sum += partial[of / 32 * a.groups + g][e][of % 32];
      const int64_t i = a.NodeAt(begin + of) * kX + e;
      y[i] = sum;
      epilogue.Row(i, sum, sums);
    }
    __syncthreads();
  }
  epilogue.Finish(sums);
}

template <int kNode, class Ref, class Epilogue>
void LaunchNodes(const Branch& branch, int blocks, const Ref& a, const double* x, double* y,
                 const Epilogue& epilogue) {
  Launch(branch, &NodeKernel<kNode, 1, Ref, Epilogue>, blocks, 1, kProductThreads, 0, a, x, y,
         epilogue);
}

template <class Ref, class Epilogue>
void LaunchDia(const Branch& branch, int node, int blocks, const Ref& a, const double* x, double* y,
               const Epilogue& epilogue) {
  static_assert(kMaxNode == 3);
  if (node == 1) LaunchNodes<1>(branch, blocks, a, x, y, epilogue);
  if (node == 2) LaunchNodes<2>(branch, blocks, a, x, y, epilogue);
  if (node == 3) LaunchNodes<3>(branch, blocks, a, x, y, epilogue);
}

}  // namespace node_product

// As LaunchProduct of rows, with the same promises.
template <class Value, class Epilogue>
void LaunchProduct(const Branch& branch, const Dia<Value>& a, const double* x, double* y,
                   const Epilogue& epilogue) {
  using namespace node_product;
  if (a.is_half()) {
    LaunchDia(branch, a.node(), a.blocks(), HalfDiaRef<Value>{a.ref()}, x, y, epilogue);
  } else {
    LaunchDia(branch, a.node(), a.blocks(), a.ref(), x, y, epilogue);
  }
}

template <class Value, class Epilogue>
void LaunchProduct(const Branch& branch, const NodeRows<Value>& a, const double* x, double* y,
                   const Epilogue& epilogue) {
  using namespace node_product;
  if (a.node() == 2) LaunchNodes<2>(branch, a.blocks(), a.ref(), x, y, epilogue);
  if (a.node() == 3) LaunchNodes<3>(branch, a.blocks(), a.ref(), x, y, epilogue);
}

}  // namespace spaid::cuda
