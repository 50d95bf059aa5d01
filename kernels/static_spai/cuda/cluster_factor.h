// Cholesky factorisation of one symmetric positive definite matrix by the blocks of a cluster:
// lower tiles of 8 x 8 in global memory (TileIndex, each row by row). Panels of eight columns of
// tiles: every block factors the diagonal block of 64 x 64 for itself, which costs less than
// waiting for one that does it for all; warps share the rows below, and the tiles to their right.
// In the factor, diagonal blocks hold their inverses.
#pragma once

#include "kernels/base/cuda/cluster.h"
#include "kernels/static_spai/cuda/tile_factor.h"

namespace spaid::cuda {

// Called by all threads of the cluster; sizes and results are the same in all of them.
class ClusterFactor {
 public:
  static constexpr int kWarps = 16;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kSide = 8;  // tiles of a diagonal block in each direction
  static constexpr int kRows = 8 * kSide;
  static_assert(kThreads % kRows == 0 && kThreads <= 8 * kRows, "SolveDiagonal");

  struct Shared {
    double tiles[kSide * (kSide + 1) / 2 * 64], inverse[kSide * (kSide + 1) / 2 * 64];
    double diagonal[kRows];
    double x[kMaxWidth][kRows];
    double sums[kWarps];
    FactorFacts facts;
  };

  // `diagonal`: that of the matrix. Both arrays are whole tiles long, padded with zeros.
  __device__ ClusterFactor(double* tiles, const double* diagonal, int n2, Shared& shared)
      : tiles_(tiles),
        diagonal_(diagonal),
        n2_(n2),
        count_((n2 + 7) / 8),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(Cluster::rank() * kWarps + thread_ / 32),
        warps_(Cluster::size() * kWarps),
        operand_(lane_ / 4 * 8 + lane_ % 4),
        transposed_(lane_ % 4 * 8 + lane_ / 4),
        sums_(lane_ / 4 * 8 + 2 * (lane_ % 4)) {}

  // Factors, once all of the matrix is there. False: a scaled pivot is not over the limit.
  __device__ bool Factor(double limit) {
    for (int first = 0; first < count_; first += kSide) {
      const int side = Side(first);
      LoadBlock(first);
      if (thread_ < 8 * side) shared_.diagonal[thread_] = diagonal_[8 * first + thread_];
      __syncthreads();
      const bool fine = TileFactor<kWarps>(shared_.tiles, shared_.diagonal,
                                           min(n2_ - 8 * first, kRows), limit, shared_.facts)
                            .Eliminate();
      pivot_ = fmin(pivot_, shared_.facts.pivot);
      determinant_ *= shared_.facts.determinant;
      if (!fine) return false;
      SolvePanel(first);
      Cluster::Sync();
      if (Cluster::rank() == 0) StoreBlock(first, shared_.tiles);  // all have read it
      UpdateRest(first);
      Cluster::Sync();
    }
    for (int first = Cluster::rank() * kSide; first < count_; first += Cluster::size() * kSide) {
      __syncthreads();
      LoadBlock(first);
      __syncthreads();
      Invert(Side(first));
      __syncthreads();
      StoreBlock(first, shared_.inverse);
    }
    Cluster::Sync();
    return true;
  }
  // The smallest scaled pivot.
  __device__ double pivot() const { return pivot_; }

  // x := (L Lᵀ)⁻¹ x for `width` vectors at distances of `stride`, zero beyond n2; `y`: scratch like
  // x. Call it when x is visible to all.
  __device__ void Substitute(double* x, double* y, int64_t stride, int width) const {
    for (int first = 0; first < count_; first += kSide) {
      Row row;
      int i = first + kSide + warp_;
      if (i < count_) LoadRow(i, first, row);  // loaded while the diagonal is solved
      SolveDiagonal<false>(first, x, y, stride, width);
      for (; i < count_; i += warps_) {
        if (i >= first + kSide + warps_) LoadRow(i, first, row);
        for (int t = 0; t < width; ++t) {
          double sum = 0;
#pragma unroll
          for (int d = 0; d < kSide; ++d) {
            const double* const own = &shared_.x[t][8 * d + 2 * (lane_ % 4)];
            sum += row.l[d].x * own[0] + row.l[d].y * own[1];
          }
          sum += __shfl_xor_sync(kAllLanes, sum, 1);
          sum += __shfl_xor_sync(kAllLanes, sum, 2);
          if (lane_ % 4 == 0) x[t * stride + 8 * i + lane_ / 4] -= sum;
        }
      }
      Cluster::Sync();
    }
    for (int first = (count_ - 1) / kSide * kSide; first >= 0; first -= kSide) {
      Row column;
      int j = warp_;
      if (j < first) LoadColumn(first, j, column);
      SolveDiagonal<true>(first, y, x, stride, width);
      for (; j < first; j += warps_) {
        if (j >= warps_) LoadColumn(first, j, column);
        for (int t = 0; t < width; ++t) {
          double2 sum = {0, 0};
#pragma unroll
          for (int d = 0; d < kSide; ++d) {
            if (first + d >= count_) continue;
            const double own = shared_.x[t][8 * d + lane_ / 4];
            sum.x += column.l[d].x * own;
            sum.y += column.l[d].y * own;
          }
#pragma unroll
          for (int step = 4; step < 32; step *= 2) {
            sum.x += __shfl_xor_sync(kAllLanes, sum.x, step);
            sum.y += __shfl_xor_sync(kAllLanes, sum.y, step);
          }
          if (lane_ < 4) {
            y[t * stride + 8 * j + 2 * lane_] -= sum.x;
            y[t * stride + 8 * j + 2 * lane_ + 1] -= sum.y;
          }
        }
      }
      Cluster::Sync();
    }
  }

  // As GroupSolver::SmallestEigenvalue, after Factor. `z`, `y`: scratch of whole tiles.
  __device__ double SmallestEigenvalue(double* z, double* y) const {
    if (determinant_ / 3 >= checks::kGoodEigenvalue) return determinant_ / 3;
    for (int a = Cluster::rank() * kThreads + thread_; a < 8 * count_;
         a += Cluster::size() * kThreads) {
      z[a] = a < n2_ ? StartSign(a) : 0.0;
    }
    Cluster::Sync();
    // Vectors are not scaled in between: after the test of the pivots three steps cannot overflow.
    double norm = 1;
    const auto step = [&] {
      Substitute(z, y, 0, 1);
      const double before = norm;
      norm = Norm(z);
      Cluster::Sync();
      return norm / before;
    };
    const double first = checks::kStartShare * step();
    if (first * checks::kGoodEigenvalue <= 1) return 1 / first;
    step();
    return 1 / step();
  }

 private:
  struct Row {
    double2 l[kSide];
  };
  // Elements of a diagonal block that a thread moves.
  static constexpr int kBlockShare = (kSide * (kSide + 1) / 2 * 64 + kThreads - 1) / kThreads;

  __device__ double* Tile(int i, int j) const { return tiles_ + int64_t{TileIndex(i, j)} * 64; }
  __device__ int Side(int first) const { return min(kSide, count_ - first); }

  // Calls use(n, at, element) for this thread's elements of a diagonal block; `at`: its index in
  // shared memory.
  template <class Use>
  __device__ void ForBlock(int first, const Use& use) const {
    const int side = Side(first), size = TileIndex(side, 0) * 64;
#pragma unroll
    for (int n = 0; n < kBlockShare; ++n) {
      const int at = thread_ + n * kThreads;
      int r = 0;
      while (at >= TileIndex(r + 1, 0) * 64) ++r;
      if (at < size) use(n, at, Tile(first + r, first) + (at - TileIndex(r, 0) * 64));
    }
  }
  __device__ void LoadBlock(int first) const {
    double own[kBlockShare];  // all loaded at once
    ForBlock(first, [&](int n, int, const double* from) { own[n] = *from; });
    ForBlock(first, [&](int n, int at, const double*) { shared_.tiles[at] = own[n]; });
  }
  __device__ void StoreBlock(int first, const double* from) const {
    ForBlock(first, [&](int, int at, double* to) { *to = from[at]; });
  }

  // Moves a tile from the lanes that have its sums to those that need it as an operand.
  __device__ double2 Operand(const double2& c) const {
    const int column = lane_ % 4, from = lane_ - column + column / 2;
    const double even0 = __shfl_sync(kAllLanes, c.x, from);
    const double odd0 = __shfl_sync(kAllLanes, c.y, from);
    const double even1 = __shfl_sync(kAllLanes, c.x, from + 2);
    const double odd1 = __shfl_sync(kAllLanes, c.y, from + 2);
    return column % 2 == 0 ? double2{even0, even1} : double2{odd0, odd1};
  }

  // L_i = B_i L_kk⁻ᵀ, a row of tiles by a warp.
  __device__ void SolvePanel(int first) const {
    for (int i = first + kSide + warp_; i < count_; i += warps_) {
      auto* const row = reinterpret_cast<double2*>(Tile(i, first) + sums_);
      double2 sums[kSide];
#pragma unroll
      for (int c = 0; c < kSide; ++c) sums[c] = row[32 * c];
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        const double* const inverse = shared_.tiles + TileIndex(c, c) * 64 + operand_;
        const double2 b = Operand(sums[c]);
        double2 l = {0, 0};
        MultiplyTiles(b.x, inverse[0], l.x, l.y);
        MultiplyTiles(b.y, inverse[4], l.x, l.y);
        row[32 * c] = l;
        const double2 left = Operand(l);
#pragma unroll
        for (int d = c + 1; d < kSide; ++d) {
          const double* const right = shared_.tiles + TileIndex(d, c) * 64 + operand_;
          MultiplyTiles(-left.x, right[0], sums[d].x, sums[d].y);
          MultiplyTiles(-left.y, right[4], sums[d].x, sums[d].y);
        }
      }
    }
  }

  // B_ij −= L_i L_jᵀ for all tiles right of the panel, two rows and four columns of them by a warp.
  __device__ void UpdateRest(int first) const {
    constexpr int kHigh = 2, kWide = 4;
    const int begin = first + kSide;
    int down = 0, right = warp_;
    for (;;) {
      while (right > down * kHigh / kWide) {
        right -= down * kHigh / kWide + 1;
        ++down;
      }
      const int i = begin + kHigh * down, j = begin + kWide * right;
      if (i >= count_) return;
      const double* rows[kHigh];
      const double* columns[kWide];
#pragma unroll
      for (int r = 0; r < kHigh; ++r) rows[r] = Tile(min(i + r, count_ - 1), first) + operand_;
#pragma unroll
      for (int c = 0; c < kWide; ++c) columns[c] = Tile(min(j + c, count_ - 1), first) + operand_;
      double2 sums[kHigh][kWide] = {};
#pragma unroll 2
      for (int k = 0; k < kSide; ++k) {
        double2 left[kHigh], over[kWide];
#pragma unroll
        for (int r = 0; r < kHigh; ++r) left[r] = {rows[r][64 * k], rows[r][64 * k + 4]};
#pragma unroll
        for (int c = 0; c < kWide; ++c) over[c] = {columns[c][64 * k], columns[c][64 * k + 4]};
#pragma unroll
        for (int r = 0; r < kHigh; ++r) {
#pragma unroll
          for (int c = 0; c < kWide; ++c) {
            MultiplyTiles(left[r].x, over[c].x, sums[r][c].x, sums[r][c].y);
            MultiplyTiles(left[r].y, over[c].y, sums[r][c].x, sums[r][c].y);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kHigh; ++r) {
#pragma unroll
        for (int c = 0; c < kWide; ++c) {
          if (i + r >= count_ || j + c > i + r) continue;
          auto* const to = reinterpret_cast<double2*>(Tile(i + r, j + c) + sums_);
          const double2 b = *to;
          *to = {b.x - sums[r][c].x, b.y - sums[r][c].y};
        }
      }
      right += warps_;
    }
  }

  // Inverts shared_.tiles, where diagonal tiles hold inverses, into shared_.inverse: a warp of this
  // block a column of tiles.
  __device__ void Invert(int side) const {
    const int c = thread_ / 32;
    if (c >= side) return;
    const auto l = [&](int i, int j) { return shared_.tiles + TileIndex(i, j) * 64; };
    const auto x = [&](int i) { return shared_.inverse + TileIndex(i, c) * 64; };
    for (int at = lane_; at < 64; at += 32) x(c)[at] = l(c, c)[at];
    for (int r = c + 1; r < side; ++r) {
      __syncwarp();
      double2 sum = {0, 0};
      for (int d = c; d < r; ++d) {
        MultiplyTiles(-l(r, d)[operand_], x(d)[transposed_], sum.x, sum.y);
        MultiplyTiles(-l(r, d)[operand_ + 4], x(d)[transposed_ + 32], sum.x, sum.y);
      }
      auto* const to = reinterpret_cast<double2*>(x(r) + sums_);
      *to = sum;
      __syncwarp();
      sum = {0, 0};
      MultiplyTiles(l(r, r)[operand_], x(r)[transposed_], sum.x, sum.y);
      MultiplyTiles(l(r, r)[operand_ + 4], x(r)[transposed_ + 32], sum.x, sum.y);
      __syncwarp();
      *to = sum;
    }
  }

  __device__ void LoadRow(int i, int first, Row& row) const {
    const auto* const from = reinterpret_cast<const double2*>(Tile(i, first) + sums_);
#pragma unroll
    for (int d = 0; d < kSide; ++d) row.l[d] = from[32 * d];
  }
  __device__ void LoadColumn(int first, int j, Row& column) const {
#pragma unroll
    for (int d = 0; d < kSide; ++d) {
      if (first + d < count_)
        column.l[d] = *reinterpret_cast<const double2*>(Tile(first + d, j) + sums_);
    }
  }

  // shared_.x = L_kk⁻¹ from, or L_kk⁻ᵀ from, with a few threads a row, by each block for itself;
  // the first block stores it in `to`.
  template <bool kTransposed>
  __device__ void SolveDiagonal(int first, const double* from, double* to, int64_t stride,
                                int width) const {
    constexpr int kParts = kThreads / kRows, kShare = 8 / kParts;
    const int side = Side(first), r = thread_ / kParts, part = thread_ % kParts;
    double l[kSide][kShare];
#pragma unroll
    for (int d = 0; d < kSide; ++d) {
      const bool own = kTransposed ? d >= r / 8 && d < side : d <= r / 8 && r / 8 < side;
#pragma unroll
      for (int i = 0; i < kShare; ++i) {
        const int c = part + i * kParts;
        l[d][i] = !own          ? 0
                  : kTransposed ? Tile(first + d, first + r / 8)[c * 8 + r % 8]
                                : Tile(first + r / 8, first + d)[r % 8 * 8 + c];
      }
    }
    __syncthreads();  // shared_.x of the block before is used
    for (int t = 0; t < width; ++t) {
      const double* const own = from + t * stride + 8 * first + part;
      double sum = 0;
#pragma unroll
      for (int d = 0; d < kSide; ++d) {
        if (d >= side) continue;
#pragma unroll
        for (int i = 0; i < kShare; ++i) sum += l[d][i] * own[8 * d + i * kParts];
      }
#pragma unroll
      for (int step = 1; step < kParts; step *= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, step);
      }
      if (part == 0) {
        shared_.x[t][r] = sum;
        if (Cluster::rank() == 0 && r < 8 * side) to[t * stride + 8 * first + r] = sum;
      }
    }
    __syncthreads();
  }

  __device__ double Norm(const double* z) const {
    double sum = 0;
    for (int a = thread_; a < n2_; a += kThreads) sum += z[a] * z[a];
    sum = WarpSum(sum);
    __syncthreads();
    if (lane_ == 0) shared_.sums[thread_ / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared_.sums[w];
    return sqrt(sum);
  }

  double* const tiles_;
  const double* const diagonal_;
  const int n2_, count_;  // count_: tiles in each direction
  Shared& shared_;
  const int thread_, lane_;
  const int warp_, warps_;  // within the cluster
  // Index of this lane's elements in a tile: as an operand (the second half: + 4), as a right
  // operand that is not transposed (+ 32), and of its two sums.
  const int operand_, transposed_, sums_;
  double pivot_ = 1, determinant_ = 1;
};

}  // namespace spaid::cuda
