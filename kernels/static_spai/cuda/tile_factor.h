// Cholesky factorisation of one symmetric positive definite matrix by one block of threads: lower
// tiles of 8 x 8, TileIndex, each row by row, in shared or global memory. In the factor, diagonal
// tiles hold their inverses.
#pragma once

#include "kernels/static_spai/cuda/tiles.h"

namespace spaid::cuda {

__host__ __device__ constexpr int TileIndex(int i, int j) { return i * (i + 1) / 2 + j; }

// Results that the block's threads share.
struct FactorFacts {
  double pivot, determinant;  // the smallest scaled pivot, and the product of all
  double eigenvalue;          // of TileFactor::SmallestEigenvalue
  int fine;
};

// Called by all threads of the block unless it says one warp.
template <int kWarps>
class TileFactor {
 public:
  // `diagonal` receives that of the matrix; both arrays are whole tiles long.
  __device__ TileFactor(double* tiles, double* diagonal, int n2, double limit, FactorFacts& shared)
      : tiles_(tiles),
        diagonal_(diagonal),
        n2_(n2),
        limit_(limit),
        shared_(shared),
        warp_(static_cast<int>(threadIdx.x / 32)),
        lane_(static_cast<int>(threadIdx.x % 32)) {}

  // Blocked right-looking Cholesky by tiles. False: a scaled pivot is not over the limit.
  __device__ bool Factor() const {
    const int tiles = (n2_ + 7) / 8;
    for (int a = static_cast<int>(threadIdx.x); a < 8 * tiles; a += 32 * kWarps) {
      diagonal_[a] = Tile(a / 8, a / 8)[a % 8 * 9];
    }
    return Eliminate();
  }

  // The same if `diagonal` is filled already.
  __device__ bool Eliminate() const {
    const int tiles = (n2_ + 7) / 8;
    if (threadIdx.x == 0) shared_.fine = 1;
    __syncthreads();
    double lowest = 1, determinant = 1;  // used by warp 0
    if (warp_ == 0) FactorDiagonal(0, lowest, determinant);
    __syncthreads();
    for (int k = 0; k < tiles && shared_.fine != 0; ++k) {
      for (int i = k + 1 + warp_; i < tiles; i += kWarps) ScalePanel(i, k);
      __syncthreads();
      // Tiles (i, j), k < j <= i, one after the other. Warp 0 takes only the first, and with it the
      // next diagonal tile, for which all would wait.
      if (warp_ == 0) {
        if (k + 1 < tiles) {
          UpdateTile(k + 1, k + 1, k);
          __syncwarp();
          FactorDiagonal(k + 1, lowest, determinant);
        }
      } else {
        const int left = tiles - k - 1;
        int i = k + 1, j = k + 1 + warp_;
        for (int tile = warp_; tile < left * (left + 1) / 2; tile += kWarps - 1) {
          while (j > i) {
            j -= i - k;
            ++i;
          }
          UpdateTile(i, j, k);
          j += kWarps - 1;
        }
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      shared_.pivot = lowest;
      shared_.determinant = determinant;
    }
    __syncthreads();
    return shared_.fine != 0;
  }

  // x := (L Lᵀ)⁻¹ x by one warp; zero beyond n2.
  __device__ void Substitute(double* x) const {
    const int tiles = (n2_ + 7) / 8;
    const int r = lane_ & 7, part = lane_ / 8;  // a part has two of the eight columns
    for (int k = 0; k < tiles; ++k) {
      const double* const inverse = Tile(k, k) + r * 8 + 2 * part;
      double y = inverse[0] * x[8 * k + 2 * part] + inverse[1] * x[8 * k + 2 * part + 1];
      y += __shfl_xor_sync(kAllLanes, y, 8);
      y += __shfl_xor_sync(kAllLanes, y, 16);
      __syncwarp();
      if (lane_ < 8) x[8 * k + r] = y;
      __syncwarp();
      for (int row = 8 * (k + 1) + lane_; row < 8 * tiles; row += 32) {
        const double* const l = Tile(row / 8, k) + row % 8 * 8;
        double sum = x[row];
#pragma unroll
        for (int c = 0; c < 8; ++c) sum -= l[c] * x[8 * k + c];
        x[row] = sum;
      }
      __syncwarp();
    }
    for (int k = tiles - 1; k >= 0; --k) {
      const double* const inverse = Tile(k, k) + 2 * part * 8 + r;
      double y = inverse[0] * x[8 * k + 2 * part] + inverse[8] * x[8 * k + 2 * part + 1];
      y += __shfl_xor_sync(kAllLanes, y, 8);
      y += __shfl_xor_sync(kAllLanes, y, 16);
      __syncwarp();
      if (lane_ < 8) x[8 * k + r] = y;
      __syncwarp();
      for (int column = lane_; column < 8 * k; column += 32) {
        const double* const l = Tile(k, column / 8) + column % 8;
        double sum = x[column];
#pragma unroll
        for (int c = 0; c < 8; ++c) sum -= l[c * 8] * x[8 * k + c];
        x[column] = sum;
      }
      __syncwarp();
    }
  }

  // As GroupSolver::SmallestEigenvalue, after Factor. `z`: scratch of whole tiles.
  __device__ double SmallestEigenvalue(double* z) const {
    const double bound = shared_.determinant / 3;
    if (bound >= checks::kGoodEigenvalue) return bound;
    if (warp_ == 0) {
      const int size = (n2_ + 7) / 8 * 8;
      for (int a = lane_; a < size; a += 32) z[a] = a < n2_ ? StartSign(a) : 0.0;
      __syncwarp();
      const auto step = [&] {
        Substitute(z);
        double sum = 0;
        for (int a = lane_; a < size; a += 32) sum += z[a] * z[a];
        const double norm = sqrt(WarpSum(sum));
        for (int a = lane_; a < size; a += 32) z[a] /= norm;
        __syncwarp();
        return norm;
      };
      double inverse = checks::kStartShare * step();
      if (inverse * checks::kGoodEigenvalue > 1) {
        step();
        inverse = step();
      }
      if (lane_ == 0) shared_.eigenvalue = 1 / inverse;
    }
    __syncthreads();
    return shared_.eigenvalue;
  }

 private:
  __device__ double* Tile(int i, int j) const { return tiles_ + int64_t{TileIndex(i, j)} * 64; }

  // Called by one warp. Every lane factors the whole tile, so that none waits for another; lane r
  // then makes column r of the inverse.
  __device__ void FactorDiagonal(int k, double& lowest, double& determinant) const {
    double* const tile = Tile(k, k);
    double l[8][8], inverses[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int c = 0; c <= r; ++c) l[r][c] = tile[r * 8 + c];
    }
    bool fine = true;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const bool real = 8 * k + j < n2_;
      const double pivot = real ? l[j][j] : 1;
      const double whole = real ? diagonal_[8 * k + j] : 1;
      fine = fine && pivot > limit_ * whole;
      inverses[j] = rsqrt(pivot);
      const double ratio = pivot / whole;
      lowest = fmin(lowest, ratio);
      determinant *= ratio;
#pragma unroll
      for (int r = j + 1; r < 8; ++r) l[r][j] *= inverses[j];
#pragma unroll
      for (int c = j + 1; c < 8; ++c) {
#pragma unroll
        for (int r = c; r < 8; ++r) l[r][c] -= l[r][j] * l[c][j];
      }
    }
    const int column = lane_ & 7;
    double z[8];  // L z = e_column
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      double sum = r == column ? 1 : 0;
#pragma unroll
      for (int c = 0; c < r; ++c) sum -= l[r][c] * z[c];
      z[r] = sum * inverses[r];
    }
    __syncwarp();
    if (lane_ < 8) {
#pragma unroll
      for (int r = 0; r < 8; ++r) tile[r * 8 + column] = z[r];
    }
    if (lane_ == 0 && !fine) shared_.fine = 0;
  }

  // L_ik = B_ik L_kk⁻ᵀ.
  __device__ void ScalePanel(int i, int k) const {
    double* const tile = Tile(i, k);
    const double* const inverse = Tile(k, k);
    const int at = lane_ / 4 * 8 + lane_ % 4;
    double c0 = 0, c1 = 0;
    const double a0 = tile[at], a1 = tile[at + 4];
    MultiplyTiles(a0, inverse[at], c0, c1);
    MultiplyTiles(a1, inverse[at + 4], c0, c1);
    __syncwarp();
    *reinterpret_cast<double2*>(&tile[lane_ / 4 * 8 + 2 * (lane_ % 4)]) = {c0, c1};
  }

  // B_ij −= L_ik L_jkᵀ.
  __device__ void UpdateTile(int i, int j, int k) const {
    const double* const left = Tile(i, k);
    const double* const right = Tile(j, k);
    auto* const sum = reinterpret_cast<double2*>(Tile(i, j) + lane_ / 4 * 8 + 2 * (lane_ % 4));
    const int at = lane_ / 4 * 8 + lane_ % 4;
    double2 c = *sum;
    MultiplyTiles(-left[at], right[at], c.x, c.y);
    MultiplyTiles(-left[at + 4], right[at + 4], c.x, c.y);
    *sum = c;
  }

  double* const tiles_;
  double* const diagonal_;
  const int n2_;
  const double limit_;
  FactorFacts& shared_;
  const int warp_, lane_;
};

}  // namespace spaid::cuda
