#include <algorithm>
#include <vector>

#include "kernels/amg/cuda/lanes.h"
#include "kernels/amg/cuda/near_null.h"
#include "kernels/amg/scaling.h"
#include "kernels/sparse/make_rows.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

constexpr int64_t kBlock = kernels::kRowsOfOneThread;  // of the host's sums
constexpr int kLanes = 8;                              // of a row

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

// c_i (A c)_i of each vector.
__global__ void __launch_bounds__(kThreads)
    EnergiesKernel(PatternRef a, const double* __restrict__ values, int count,
                   const double* __restrict__ vectors, double* __restrict__ energies) {
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t i) {
    double sums[kernels::kMostNearNull] = {};
    for (int64_t p = a.col_ptr[i] + group.lane; p < a.col_ptr[i + 1]; p += kLanes) {
      const double value = values[p];
      const int64_t j = a.row_idx[p];
#pragma unroll
      for (int k = 0; k < kernels::kMostNearNull; ++k) {
        if (k < count) sums[k] = fma(value, vectors[k * a.n + j], sums[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kernels::kMostNearNull; ++k) {
      if (k >= count) continue;
      const double sum = group.Best(sums[k], [](double x, double y) { return x + y; });
      if (group.lane == 0) energies[k * a.n + i] = vectors[k * a.n + i] * sum;
    }
  });
}

// The host's sums of its blocks of rows: of energies, then of squares.
__global__ void __launch_bounds__(kThreads)
    BlockSumsKernel(int64_t n, int count, const double* __restrict__ vectors,
                    const double* __restrict__ energies, double* __restrict__ sums) {
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  for (int64_t e = ThreadOfGrid(); e < blocks * count; e += ThreadsOfGrid()) {
    const int64_t k = e / blocks, block = e % blocks;
    const int64_t end = k * n + min((block + 1) * kBlock, n);
    double energy = 0, squares = 0;
#pragma unroll 8
    for (int64_t i = k * n + block * kBlock; i < end; ++i) {
      energy = __dadd_rn(energy, energies[i]);
      squares = __dadd_rn(squares, __dmul_rn(vectors[i], vectors[i]));
    }
    sums[e] = energy;
    sums[blocks * count + e] = squares;
  }
}

}  // namespace

NearVectors MakeNearVectors(Context& context, const RowMatrix& a, const Buffer<double>& scale,
                            const kernels::NearNull& given, int count) {
  const int64_t n = a.n, blocks = (n + kBlock - 1) / kBlock;
  NearVectors made;
  made.values = Buffer<double>(context, n * count);
  if (!given.ones()) made.values.CopyIn(given.values.data(), n * count);
  VectorsKernel<<<Blocks(context, n * count, kThreads), kThreads, 0, context.stream>>>(
      n, count, given.ones(), scale.get(), made.values.get());
  CheckLaunch("VectorsKernel");
  const Buffer<double> energies(context, n * count), sums(context, 2 * blocks * count);
  EnergiesKernel<<<Blocks(context, n, kThreads / kLanes), kThreads, 0, context.stream>>>(
      a.pattern(), a.values.get(), count, made.values.get(), energies.get());
  CheckLaunch("EnergiesKernel");
  BlockSumsKernel<<<Blocks(context, blocks * count, kThreads), kThreads, 0, context.stream>>>(
      n, count, made.values.get(), energies.get(), sums.get());
  CheckLaunch("BlockSumsKernel");
  std::vector<double> there(static_cast<size_t>(2 * blocks * count));
  context.Download({sums.To(there.data(), 2 * blocks * count)});
  const auto sum = [&](int64_t k) {
    double all = 0;
    for (int64_t b = k * blocks; b < (k + 1) * blocks; ++b) all += there[static_cast<size_t>(b)];
    return all;
  };
  for (int k = 0; k < count; ++k) {
    const double squares = sum(count + k);
    made.rayleigh = std::max(made.rayleigh, squares > 0 ? sum(k) / squares : 0);
  }
  return made;
}

}  // namespace spaid::cuda
