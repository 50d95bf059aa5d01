#include <algorithm>
#include <type_traits>

#include "kernels/amg/cuda/lanes.h"
#include "kernels/amg/cuda/near_null.h"
#include "kernels/amg/scaling.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

constexpr int kLanes = 8;  // of a row
constexpr int kSums = 2 * kernels::kMostNearNull;

// In place; `units`: there is nothing yet.
__global__ void __launch_bounds__(kThreads)
    VectorsKernel(int64_t n, int count, bool units, const double* __restrict__ scale,
                  double* __restrict__ vectors) {
  for (int64_t e = ThreadOfGrid(); e < n * count; e += ThreadsOfGrid()) {
    const int64_t i = e % n;
    const double value = !units ? vectors[e] : i % count == e / n ? 1 : 0;
    vectors[e] = scale != nullptr ? value / scale[i] : value;
  }
}

// The motions of a body, by columns: the host's RigidBodyModes.
__global__ void __launch_bounds__(kThreads)
    MotionsKernel(int64_t nodes, int dimension, const double* __restrict__ centred,
                  double* __restrict__ vectors) {
  const int64_t n = nodes * dimension;
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t node = i / dimension;
    const int own = static_cast<int>(i % dimension);
    const double x = centred[node], y = centred[nodes + node];
    for (int k = 0; k < dimension; ++k) vectors[k * n + i] = k == own ? 1 : 0;
    vectors[dimension * n + i] = own == 0 ? -y : own == 1 ? x : 0;
    if (dimension == 2) continue;
    const double z = centred[2 * nodes + node];
    vectors[4 * n + i] = own == 1 ? -z : own == 2 ? y : 0;
    vectors[5 * n + i] = own == 2 ? -x : own == 0 ? z : 0;
  }
}

// The sums of c_i (A c)_i and of c_i² of each vector, kMost of them at the most, over the rows of
// each block. kUnits: each unknown of a node has its own vector.
template <int kMost, bool kUnits>
__global__ void __launch_bounds__(kThreads)
    EnergiesKernel(PatternRef a, const double* __restrict__ values, int count,
                   const double* __restrict__ vectors, double* __restrict__ of_blocks) {
  __shared__ double of_warps[layout::kWarps][kSums];
  const LaneGroup<kLanes> group;
  double energies[kMost] = {}, squares[kMost] = {};
  group.ForRows(a.n, [&](int64_t i) {
    double sums[kMost] = {};
#pragma unroll 4
    for (int64_t p = a.col_ptr[i] + group.lane; p < a.col_ptr[i + 1]; p += kLanes) {
      const double value = values[p];
      const int32_t j = a.row_idx[p];
      if constexpr (kUnits) {
        const int own = j % count;
        const double part = value * vectors[own * a.n + j];
#pragma unroll
        for (int k = 0; k < kMost; ++k) sums[k] += k == own ? part : 0;
      } else {
#pragma unroll
        for (int k = 0; k < kMost; ++k) {
          if (k < count) sums[k] = fma(value, vectors[k * a.n + j], sums[k]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kMost; ++k) {
      if (k >= count || (kUnits && i % count != k)) continue;
      const double own = vectors[k * a.n + i];
      energies[k] = fma(own, sums[k], energies[k]);  // of the lane's entries
      if (group.lane == 0) squares[k] = fma(own, own, squares[k]);
    }
  });
  __syncwarp();
  const LaneGroup<32> warp;
  const auto plus = [](double x, double y) { return x + y; };
  double* const own = of_warps[threadIdx.x / 32];
  if (warp.lane < kSums) own[warp.lane] = 0;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < kMost; ++k) {
    const double energy = warp.Best(energies[k], plus), square = warp.Best(squares[k], plus);
    if (warp.lane != 0) continue;
    own[k] = energy;
    own[kernels::kMostNearNull + k] = square;
  }
  __syncthreads();
  if (threadIdx.x >= kSums) return;
  double sum = 0;
  for (int w = 0; w < layout::kWarps; ++w) sum += of_warps[w][threadIdx.x];
  of_blocks[blockIdx.x * kSums + threadIdx.x] = sum;
}

// Adds them up: a warp each.
__global__ void __launch_bounds__(32 * kSums)
    TotalsKernel(int blocks, const double* __restrict__ of_blocks, double* __restrict__ sums) {
  const int k = static_cast<int>(threadIdx.x) / 32;
  double sum = 0;
  for (int b = layout::Lane(); b < blocks; b += 32) sum += of_blocks[b * kSums + k];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (layout::Lane() == 0) sums[k] = sum;
}

}  // namespace

NearVectors MakeNearVectors(Context& context, const RowMatrix& a, const Buffer<double>& scale,
                            const kernels::GivenVectors& given, int count) {
  const int64_t n = a.n;
  NearVectors made;
  made.values = Buffer<double>(context, n * count);
  const Buffer<double> centred(context, static_cast<int64_t>(given.centred.size()));
  if (centred.size() > 0) {
    const int dimension = count == 3 ? 2 : 3;
    centred.CopyIn(given.centred.data(), centred.size());
    MotionsKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(
        n / dimension, dimension, centred.get(), made.values.get());
    CheckLaunch("MotionsKernel");
  } else if (!given.ones()) {
    made.values.CopyIn(given.values.data(), n * count);
  }
  VectorsKernel<<<Blocks(context, n * count, kThreads), kThreads, 0, context.stream>>>(
      n, count, given.ones(), scale.get(), made.values.get());
  CheckLaunch("VectorsKernel");
  const int blocks = std::min(8 * context.multiprocessors, Blocks(context, n, kThreads / kLanes));
  const Buffer<double> of_blocks(context, int64_t{kSums} * blocks), sums(context, kSums);
  const auto sum = [&](auto most, auto units) {
    EnergiesKernel<most, units><<<blocks, kThreads, 0, context.stream>>>(
        a.pattern(), a.values.get(), count, made.values.get(), of_blocks.get());
  };
  const auto launch = [&](auto units) {
    if (count <= 3) return sum(std::integral_constant<int, 3>{}, units);
    if (count <= 6) return sum(std::integral_constant<int, 6>{}, units);
    sum(std::integral_constant<int, kernels::kMostNearNull>{}, units);
  };
  given.ones() ? launch(std::true_type{}) : launch(std::false_type{});
  CheckLaunch("EnergiesKernel");
  TotalsKernel<<<1, 32 * kSums, 0, context.stream>>>(blocks, of_blocks.get(), sums.get());
  CheckLaunch("TotalsKernel");
  double there[kSums] = {};
  context.Download({sums.To(there, kSums)});
  for (int k = 0; k < count; ++k) {
    const double energy = there[k], squares = there[kernels::kMostNearNull + k];
    made.rayleigh = std::max(made.rayleigh, squares > 0 ? energy / squares : 0);
  }
  return made;
}

}  // namespace spaid::cuda
