// Cholesky factorisation of one symmetric positive definite matrix, with a few right-hand sides, by
// one block of four warps: lower tiles of 8 x 8 (TileIndex) in shared memory; in the factor
// diagonal tiles hold their inverses. Up to eight right-hand sides are the rows of one more row of
// tiles below, and are substituted forward as the factor is made.
//
// Left-looking by columns of tiles: sums stay in registers, and while three warps form those of a
// column, the fourth makes its diagonal tile.
#pragma once

#include "kernels/static_spai/cuda/dia.h"
#include "kernels/static_spai/cuda/tile_factor.h"

namespace spaid::cuda {

class NodeFactor {
 public:
  static constexpr int kWarps = 4;
  static constexpr int kMaxTiles = 12;  // in each direction of the matrix

  // Index of (row r, column c) in a tile: two halves of four columns, so that lanes have no bank
  // conflicts when they read operands.
  __host__ __device__ static constexpr int Place(int r, int c) {
    return c / 4 * 32 + r * 4 + c % 4;
  }
  // Doubles that the tiles of matrix and right-hand sides take.
  __host__ __device__ static constexpr int Size(int tiles) {
    return 64 * (TileIndex(tiles, tiles));
  }

  // `ratios`: as long as the matrix in whole tiles.
  __device__ NodeFactor(double* tiles, double* ratios, int size)
      : tiles_(tiles),
        ratios_(ratios),
        size_(size),
        warp_(static_cast<int>(threadIdx.x / 32)),
        lane_(static_cast<int>(threadIdx.x % 32)),
        transposed_(Place(lane_ % 4, lane_ / 4)),
        sums_(Place(lane_ / 4, 2 * (lane_ % 4))) {}

  // Element c of right-hand side t.
  __device__ double& Side(int t, int c) const { return Tile(size_, c / 8)[Place(t, c % 8)]; }

  // Called by all threads, once the tiles are there. Tiles are padded with ones on the diagonal.
  // False: a scaled pivot is not over the limit; else the smallest of them and their product, the
  // same in all threads.
  __device__ bool Factor(double limit, double& pivot, double& determinant) const {
    for (int a = static_cast<int>(threadIdx.x); a < 8 * size_; a += 32 * kWarps) {
      ratios_[a] = 1 / Tile(a / 8, a / 8)[Place(a % 8, a % 8)];
    }
    __syncthreads();
    for (int k = 0; k < size_; ++k) {
      if (warp_ == 0) {
        if (k > 0) UpdateDiagonal(k);
        FactorDiagonal(k);
      } else if (k > 0) {
        UpdateColumn(k);
      }
      __syncthreads();
      for (int i = k + 1 + warp_; i <= size_; i += kWarps) Scale(i, k);
      __syncthreads();
    }
    bool fine = true;
    pivot = determinant = 1;
    for (int a = lane_; a < 8 * size_; a += 32) {
      const double ratio = ratios_[a];
      fine = fine && ratio > limit;
      pivot = fmin(pivot, ratio);
      determinant *= ratio;
    }
    pivot = WarpMin(pivot);
    determinant = WarpProduct(determinant);
    return __all_sync(kAllLanes, fine) != 0;
  }

  // Xᵀ := Yᵀ L⁻¹ for the right-hand sides, from the last tile on. Every warp makes the next tile;
  // warps update the tiles before it by turns.
  __device__ void SubstituteBack() const {
    const int column = lane_ % 4;
    double c0 = 0, c1 = 0;
    for (int k = size_ - 1; k >= 0; --k) {
      __syncthreads();
      if (warp_ == 0 && k + 1 < size_) StoreSums(Tile(size_, k + 1), c0, c1);
      const double* const own = Tile(size_, k);
      const double* const inverse = Tile(k, k);
      c0 = c1 = 0;
      MultiplyTiles(own[lane_], inverse[transposed_], c0, c1);
      MultiplyTiles(own[lane_ + 32], inverse[transposed_ + 16], c0, c1);
      // Moves it from the lanes that have a result to those that need it as an operand.
      const int first = lane_ - column + column / 2;
      const double even0 = __shfl_sync(kAllLanes, c0, first);
      const double odd0 = __shfl_sync(kAllLanes, c1, first);
      const double even1 = __shfl_sync(kAllLanes, c0, first + 2);
      const double odd1 = __shfl_sync(kAllLanes, c1, first + 2);
      const double x0 = -(column % 2 == 0 ? even0 : odd0);
      const double x1 = -(column % 2 == 0 ? even1 : odd1);
      for (int i = k - 1 - warp_; i >= 0; i -= kWarps) {
        const double* const l = Tile(k, i);
        auto* const sum = reinterpret_cast<double2*>(Tile(size_, i) + sums_);
        double2 c = *sum;
        MultiplyTiles(x0, l[transposed_], c.x, c.y);
        MultiplyTiles(x1, l[transposed_ + 16], c.x, c.y);
        *sum = c;
      }
    }
    __syncthreads();
    if (warp_ == 0) StoreSums(Tile(size_, 0), c0, c1);
    __syncthreads();
  }

 private:
  __device__ double* Tile(int i, int j) const { return tiles_ + TileIndex(i, j) * 64; }

  __device__ void StoreSums(double* tile, double c0, double c1) const {
    *reinterpret_cast<double2*>(tile + sums_) = {c0, c1};
  }

  // B_kk − Σ L_kj L_kjᵀ, in two independent accumulators.
  __device__ void UpdateDiagonal(int k) const {
    const double2 whole = *reinterpret_cast<const double2*>(Tile(k, k) + sums_);
    double2 even = {-whole.x, -whole.y}, odd = {0, 0};
    const double* l = Tile(k, 0) + lane_;
#pragma unroll 2
    for (int j = 0; j < k; ++j, l += 64) {
      const double low = l[0], high = l[32];
      MultiplyTiles(low, low, even.x, even.y);
      MultiplyTiles(high, high, odd.x, odd.y);
    }
    StoreSums(Tile(k, k), -even.x - odd.x, -even.y - odd.y);
    __syncwarp();
  }

  // B_ik − Σ L_ij L_kjᵀ for every third i > k, those of this warp at once.
  __device__ void UpdateColumn(int k) const {
    static_assert((kMaxTiles - 2) / (kWarps - 1) + 1 <= 4);
    const int first = k + warp_;
    if (first > size_) return;
    switch ((size_ - first) / (kWarps - 1)) {
      case 0:
        return UpdateTiles<1>(first, k);
      case 1:
        return UpdateTiles<2>(first, k);
      case 2:
        return UpdateTiles<3>(first, k);
      default:
        return UpdateTiles<4>(first, k);
    }
  }

  template <int kCount>
  __device__ void UpdateTiles(int first, int k) const {
    double2 sums[kCount];
    const double* left[kCount];
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      left[t] = Tile(first + t * (kWarps - 1), 0) + lane_;
      sums[t] = *reinterpret_cast<const double2*>(left[t] - lane_ + 64 * k + sums_);
      sums[t] = {-sums[t].x, -sums[t].y};
    }
    const double* right = Tile(k, 0) + lane_;
#pragma unroll 2
    for (int j = 0; j < k; ++j) {
      const double low = right[64 * j], high = right[64 * j + 32];
#pragma unroll
      for (int t = 0; t < kCount; ++t) {
        MultiplyTiles(left[t][64 * j], low, sums[t].x, sums[t].y);
        MultiplyTiles(left[t][64 * j + 32], high, sums[t].x, sums[t].y);
      }
    }
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      StoreSums(Tile(first + t * (kWarps - 1), k), -sums[t].x, -sums[t].y);
    }
  }

  // L_ik = B_ik L_kk⁻ᵀ.
  __device__ void Scale(int i, int k) const {
    double* const tile = Tile(i, k);
    const double* const inverse = Tile(k, k);
    double c0 = 0, c1 = 0;
    MultiplyTiles(tile[lane_], inverse[lane_], c0, c1);
    MultiplyTiles(tile[lane_ + 32], inverse[lane_ + 32], c0, c1);
    __syncwarp();
    StoreSums(tile, c0, c1);
  }

  // Called by one warp. Every lane factors the whole tile, so that none waits for another; lane r
  // then makes column r of the inverse.
  __device__ void FactorDiagonal(int k) const {
    double* const tile = Tile(k, k);
    double l[36], inverses[8];
    const auto at = [](int r, int c) { return r * (r + 1) / 2 + c; };
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int c = 0; c <= r; ++c) l[at(r, c)] = tile[Place(r, c)];
    }
    double ratio = 1;  // lane r: the pivot of row r
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const double pivot = l[at(j, j)];
      if ((lane_ & 7) == j) ratio = pivot;
      inverses[j] = InverseRoot(pivot);
#pragma unroll
      for (int r = j + 1; r < 8; ++r) l[at(r, j)] *= inverses[j];
#pragma unroll
      for (int c = j + 1; c < 8; ++c) {
#pragma unroll
        for (int r = c; r < 8; ++r) l[at(r, c)] -= l[at(r, j)] * l[at(c, j)];
      }
    }
    const int column = lane_ & 7;
    double z[8];  // L z = e_column
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      double sum = r == column ? 1 : 0;
#pragma unroll
      for (int c = 0; c < r; ++c) sum -= l[at(r, c)] * z[c];
      z[r] = sum * inverses[r];
    }
    __syncwarp();
    if (lane_ < 8) {
#pragma unroll
      for (int r = 0; r < 8; ++r) tile[Place(r, column)] = z[r];
      ratios_[8 * k + column] *= ratio;
    }
  }

  double* const tiles_;
  double* const ratios_;  // pivots relative to the diagonal
  const int size_, warp_, lane_;
  // Index of this lane's elements in a tile: if it is the right operand and not transposed (the
  // second:
  // + 16; for other operands lane_, and + 32), and of its two sums.
  const int transposed_, sums_;
};

}  // namespace spaid::cuda
