#include <bit>
#include <utility>
#include <vector>

#include "kernels/amg/cuda/lanes.h"
#include "kernels/amg/cuda/near_null.h"
#include "kernels/amg/cuda/scaling.h"
#include "kernels/amg/scaling.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/sparse/cuda/transpose.h"
#include "kernels/sparse/make_rows.h"

namespace spaid::cuda {
namespace {

using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

constexpr int64_t kBlock = kernels::kRowsOfOneThread;  // of the host's sums
constexpr int kLanes = 8;                              // of a row

// Holds the answers to what the host asks of all rows.
struct Findings {
  unsigned long long first_bad = ~0ull;  // row whose diagonal entry is zero, or of the other sign
  unsigned long long beta = 0;           // its bits
  int32_t varies = 0;                    // the near-null vector is not constant
  double first_diagonal = 0, first_near = 0;
};

// Diagonal and S, and of what the matrix is like.
__global__ void __launch_bounds__(kThreads)
    DiagonalKernel(PatternRef a, const double* __restrict__ values, bool symmetric,
                   double* __restrict__ diagonal, double* __restrict__ scale, Findings* found) {
  const double first = EntryAt(a, values, 0, 0);
  const LaneGroup<kLanes> group;
  group.ForRows(a.n, [&](int64_t i) {
    double sum = 0;
    for (int64_t p = a.col_ptr[i]; p < a.col_ptr[i + 1]; p += kLanes) {
      const auto there = static_cast<int>(min(a.col_ptr[i + 1] - p, int64_t{kLanes}));
      sum = group.AddInOrder(sum, group.lane < there ? fabs(values[p + group.lane]) : 0, there);
    }
    if (group.lane != 0) return;
    const double d = EntryAt(a, values, i, static_cast<int32_t>(i));
    diagonal[i] = d;
    if (i == 0) found->first_diagonal = d;
    if (d == 0 || (symmetric && (d > 0) != (first > 0))) {
      atomicMin(&found->first_bad, static_cast<unsigned long long>(i));
    }
    if (symmetric) scale[i] = 1 / sqrt(fabs(d));
    const double over = sum / fabs(d);
    // Bits of numbers that are not negative are in their order.
    if (over > 0 && over > __longlong_as_double(static_cast<long long>(
                               *static_cast<volatile unsigned long long*>(&found->beta)))) {
      atomicMax(&found->beta, static_cast<unsigned long long>(__double_as_longlong(over)));
    }
  });
}

// Â on the pattern of A; in place.
__global__ void __launch_bounds__(kThreads)
    ScaleKernel(PatternRef a, const double* __restrict__ scale, double sign, double* values) {
  const int64_t lane = ThreadOfGrid() % 8;
  for (int64_t i = ThreadOfGrid() / 8; i < a.n; i += ThreadsOfGrid() / 8) {
    for (int64_t p = a.col_ptr[i] + lane; p < a.col_ptr[i + 1]; p += 8) {
      const int32_t j = a.row_idx[p];
      values[p] = j == i ? 1 : sign * values[p] * (scale[i] * scale[j]);
    }
  }
}

// c = given / S.
__global__ void __launch_bounds__(kThreads)
    NearNullKernel(int64_t n, const double* __restrict__ given, const double* __restrict__ scale,
                   double* __restrict__ near_null, Findings* found) {
  const auto element = [&](int64_t i) {
    const double value = given != nullptr ? given[i] : 1;
    return scale != nullptr ? value / scale[i] : value;
  };
  const double first = element(0);
  bool varies = false;
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const double value = element(i);
    near_null[i] = value;
    varies |= value != first;
  }
  if (varies) found->varies = 1;
  if (ThreadOfGrid() == 0) found->first_near = first;
}

// c_i (A c)_i, and the same of ones.
__global__ void __launch_bounds__(kThreads)
    EnergyKernel(PatternRef a, const double* __restrict__ values, const double* __restrict__ c,
                 double* __restrict__ energy, double* __restrict__ of_ones) {
  for (int64_t i = ThreadOfGrid(); i < a.n; i += ThreadsOfGrid()) {
    double sum = 0, ones = 0;
#pragma unroll 4
    for (int64_t p = a.col_ptr[i]; p < a.col_ptr[i + 1]; ++p) {
      sum = __dadd_rn(sum, __dmul_rn(values[p], c[a.row_idx[p]]));
      ones = __dadd_rn(ones, values[p]);
    }
    energy[i] = __dmul_rn(c[i], sum);
    of_ones[i] = ones;
  }
}

// The host's sums of its blocks of rows: a warp each.
__global__ void __launch_bounds__(kThreads)
    BlockSumsKernel(int64_t n, const double* __restrict__ c, const double* __restrict__ energy,
                    const double* __restrict__ of_ones, double* __restrict__ sums) {
  const LaneGroup<32> warp;
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  warp.ForRows(blocks, [&](int64_t k) {
    const int64_t end = (k + 1) * kBlock < n ? (k + 1) * kBlock : n;
    double all = 0, squares = 0, ones = 0;
#pragma unroll 4
    for (int64_t first = k * kBlock; first < end; first += 32) {
      const int64_t i = first + warp.lane;
      const int count = end - first < 32 ? static_cast<int>(end - first) : 32;
      const bool there = i < end;
      all = warp.AddInOrder(all, there ? energy[i] : 0, count);
      squares = warp.AddInOrder(squares, there ? __dmul_rn(c[i], c[i]) : 0, count);
      ones = warp.AddInOrder(ones, there ? of_ones[i] : 0, count);
    }
    if (warp.lane != 0) return;
    sums[k] = all;
    sums[blocks + k] = squares;
    sums[2 * blocks + k] = ones;
  });
}

double Sum(std::span<const double> of) {
  double sum = 0;
  for (const double part : of) sum += part;
  return sum;
}

}  // namespace

std::optional<UnitScaled> ScaleToUnitDiagonal(Context& context, RowMatrix a, bool symmetric,
                                              const kernels::GivenVectors& given, int block) {
  const int64_t n = a.n;
  const int rows_grid = Blocks(context, n, kThreads);
  UnitScaled made;
  made.rows = std::move(a);
  const PatternRef pattern = made.rows.pattern();
  double* const values = made.rows.values.get();
  const Buffer<Findings> there(context, 1);
  Findings found;
  there.CopyIn(&found, 1);
  const Buffer<double> diagonal(context, n);
  if (symmetric) made.scale = Buffer<double>(context, n);
  DiagonalKernel<<<Blocks(context, n, kThreads / kLanes), kThreads, 0, context.stream>>>(
      pattern, values, symmetric, diagonal.get(), made.scale.get(), there.get());
  CheckLaunch("DiagonalKernel");
  context.Download({there.To(&found, 1)});
  if (found.first_bad != ~0ull) return std::nullopt;
  made.beta = std::bit_cast<double>(found.beta);
  if (symmetric) {
    made.sign = found.first_diagonal < 0 ? -1 : 1;
    ScaleKernel<<<Blocks(context, n, kThreads / 8), kThreads, 0, context.stream>>>(
        pattern, made.scale.get(), made.sign, values);
    CheckLaunch("ScaleKernel");
  }
  made.near_count = given.ones() ? block : given.count;
  if (made.near_count > 1) {
    NearVectors several = MakeNearVectors(context, made.rows, made.scale, given, made.near_count);
    made.near_null = std::move(several.values);
    made.rayleigh = several.rayleigh;
    return made;
  }
  Buffer<double> from(context, static_cast<int64_t>(given.values.size())), near(context, n);
  from.CopyIn(given.values.data(), from.size());
  NearNullKernel<<<rows_grid, kThreads, 0, context.stream>>>(n, from.get(), made.scale.get(),
                                                             near.get(), there.get());
  CheckLaunch("NearNullKernel");
  const Buffer<double> energy(context, n), of_ones(context, n);
  EnergyKernel<<<rows_grid, kThreads, 0, context.stream>>>(pattern, values, near.get(),
                                                           energy.get(), of_ones.get());
  CheckLaunch("EnergyKernel");
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const Buffer<double> sums(context, 3 * blocks);
  BlockSumsKernel<<<Blocks(context, blocks, layout::kWarps), kThreads, 0, context.stream>>>(
      n, near.get(), energy.get(), of_ones.get(), sums.get());
  CheckLaunch("BlockSumsKernel");
  std::vector<double> of_blocks(static_cast<size_t>(3 * blocks));
  context.Download({there.To(&found, 1), sums.To(of_blocks.data(), 3 * blocks)});
  const auto part = [&](int64_t k) {
    return Sum(
        std::span(of_blocks).subspan(static_cast<size_t>(k * blocks), static_cast<size_t>(blocks)));
  };
  const double squares = part(1);
  made.rayleigh = std::max(0.0, squares > 0 ? part(0) / squares : 0);
  bool constant = found.varies == 0 && found.first_near != 0;
  if (given.ones()) {
    const double plain = part(2) / static_cast<double>(n);
    if (plain < kernels::kMuchLessRayleigh * made.rayleigh) {
      made.rayleigh = plain;
      constant = true;
    }
  }
  if (!constant) made.near_null = std::move(near);
  return made;
}

}  // namespace spaid::cuda
