// The basis of GMRES on a device, and the passes through it. For .cu files.
//
// Classical Gram-Schmidt reads the basis once a pass: first the products with all of it, then their
// subtraction, which also measures how much is left along the basis. The last block of a pass to
// end computes the scalars that depend on its sums, in an order that is the same in every run.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/krylov/cuda/solve.h"

namespace spaid::cuda::basis {

inline constexpr int kMostBlocks = 512;  // one a multiprocessor; SolveDeviceBytes counts their sums
inline constexpr int kTogether = 8;      // basis vectors that a thread loads before it waits
inline constexpr int kChunk = 128;       // sums that a warp has in shared memory at once
inline constexpr int kTile = 32;         // elements of a vector that a warp keeps in shared memory
// A pass that needs the basis twice keeps it in shared memory where that holds tiles of so many
// warps; else it is read again from the second-level cache or from memory.
inline constexpr int kFewestWarps = 4;
// Limit on the part of v, the remainder of A M v_k, that still lies along the basis, relative to v:
// a greater one is subtracted in a second pass. Simon 1984: up to sqrt(eps) orthogonality is as
// good as complete. The remainder is measured, in the pass that makes v; the share of A M v_k that
// cancelled (gmres.cc) would only bound it, and asks for a second pass in nearly every iteration of
// a Laplacian where none is needed.
inline constexpr double kOrthogonal = 1e-10;
// Second passes in a row, at most. A pass leaves along the basis the part it subtracts times the
// basis's own loss of orthogonality. Where A M v_k cancels to less than 1e-10 of itself, that is
// too much after two passes, too, and a basis with such a vector is lost within a few iterations
// more.
inline constexpr int kMostSeconds = 4;
// A remainder below this share of ‖A M v_k‖ is rounding.
inline constexpr double kExhausted = 10 * DBL_EPSILON;

// The state of a cycle, on the device.
struct Cycle {
  int32_t columns;       // columns of the basis that are done
  int32_t again;         // second passes of the column in work, the one due included
  int32_t update;        // columns in the update of x that is due
  double before, after;  // norms of A M v_k and of its remainder
  double largest;        // largest R_jj so far
};

// The basis and its small arrays, on the device. It is kept unscaled, v_j = inverse_j u_j, which
// spares a pass: the norm of a vector is known only once all of it has been written.
struct Basis {
  int64_t n, stride;
  int32_t m;  // columns, at most
  Cycle* cycle;
  double* u;           // stride x (m + 1); zeros from n on
  double* inverse;     // m + 1: 1 / ‖u_j‖
  double* h;           // m: coefficients of the column in work
  double* correction;  // m: their corrections by a second pass
  double* factor;      // m: multiples of u_j that are subtracted
  double *cosine, *sine;
  double* g;        // m + 1: the residual, rotated
  double* weight;   // m: weights of u_j in the update
  double* r;        // columns of R, j + 1 elements each
  double* partial;  // blocks x (m + 1): sums with each u_j, and sums of squares
  unsigned* arrived;

  __device__ double* Column(int64_t j) const { return u + j * stride; }
  __device__ double* RColumn(int64_t j) const { return r + j * (j + 1) / 2; }
  __device__ double* Squares() const { return partial + int64_t{m} * gridDim.x; }
};

// Sums eight values, each over all lanes: lane l gets the sum of value l / 4. Every step leaves
// half as many values, summed over twice as many lanes.
__device__ inline double SumEight(double (&value)[8], int lane) {
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & 4 * half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const double other = upper ? value[i] : value[i + half];
      const double own = upper ? value[i + half] : value[i];
      value[i] = own + __shfl_xor_sync(~0u, other, 4 * half);
    }
  }
  double sum = value[0];
  sum += __shfl_xor_sync(~0u, sum, 2);
  return sum + __shfl_xor_sync(~0u, sum, 1);
}

__device__ inline double SumWarp(double sum) {
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

// Adds up the partial sums of the grid's blocks; called by a warp.
__device__ inline double SumOfBlocks(const double* partial, int lane) {
  double sum = 0;
#pragma unroll 8
  for (unsigned b = static_cast<unsigned>(lane); b < gridDim.x; b += 32) {
    sum += __ldcg(partial + b);
  }
  return SumWarp(sum);
}

// True in the last block to arrive; what the others wrote before is visible to it.
__device__ inline bool IsLast(unsigned* arrived) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// This thread's elements of the basis vectors: one, or several that are 32 apart.
struct Elements {
  const double* at;
  int64_t stride;
  __device__ double operator()(int64_t j, int e) const { return at[j * stride + 32 * e]; }
};

// w -= Σ factor_j u_j, j < count.
__device__ inline double Subtract(const Elements& u, const double* factor, int count, double w) {
  for (int j = 0; j < count; j += kTogether) {
    double own[kTogether];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) own[t] = j + t < count ? u(j + t, 0) : 0.0;
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      if (j + t < count) w = fma(-__ldg(factor + j + t), own[t], w);
    }
  }
  return w;
}

// sums_j += u_jᵀ w over the elements of a warp, j < count.
template <int kEach>
__device__ void AddProducts(const Elements& u, int count, const double (&w)[kEach], int lane,
                            double* sums) {
  for (int j = 0; j < count; j += kTogether) {
    double own[kTogether][kEach], product[kTogether];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
#pragma unroll
      for (int e = 0; e < kEach; ++e) own[t][e] = j + t < count ? u(j + t, e) : 0.0;
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      product[t] = 0;
#pragma unroll
      for (int e = 0; e < kEach; ++e) product[t] = fma(own[t][e], w[e], product[t]);
    }
    const double sum = SumEight(product, lane);
    if (lane % 4 == 0) sums[j + lane / 4] += sum;
  }
}

// Finishes a column: applies the rotations before it, makes its own, and updates the residual.
// Called by all threads of a block; `shared`: 3 elements for each of them.
template <int kThreads>
__device__ void FinishColumn(const Basis& basis, SolveState& state, double* shared) {
  Cycle& cycle = *basis.cycle;
  const int k = cycle.columns, thread = static_cast<int>(threadIdx.x);
  double* const column = basis.RColumn(k);
  double *const below = shared, *const cosine = below + kThreads, *const sine = cosine + kThreads;
  double last = basis.h[0];  // used by thread 0
  for (int first = 0; first < k; first += kThreads) {
    const int i = first + thread;
    if (i < k) {
      below[thread] = basis.h[i + 1];
      cosine[thread] = basis.cosine[i];
      sine[thread] = basis.sine[i];
    }
    __syncthreads();
    if (thread == 0) {
      for (int t = 0; t < min(kThreads, k - first); ++t) {
        const double upper = cosine[t] * last + sine[t] * below[t];
        last = -sine[t] * last + cosine[t] * below[t];
        below[t] = upper;
      }
    }
    __syncthreads();
    if (i < k) column[i] = below[thread];
    __syncthreads();
  }
  if (thread != 0) return;

  const double before = cycle.before, after = cycle.after, residual = basis.g[k];
  const bool exhausted = after <= kExhausted * before;
  const double length = exhausted ? fabs(last) : hypot(last, after);
  cycle.largest = fmax(cycle.largest, length);
  if (exhausted && length <= 100 * DBL_EPSILON * fmax(cycle.largest, before)) {
    // A M has no inverse on the space. The column is not used: the residual does not change.
    CountIteration(state, fabs(residual));
    state.status = SegmentEnd::kExhausted;
    return;
  }
  const double c = last / length, s = exhausted ? 0 : after / length;
  column[k] = length;
  basis.cosine[k] = c;
  basis.sine[k] = s;
  basis.g[k] = c * residual;
  basis.g[k + 1] = -s * residual;
  basis.inverse[k + 1] = 1 / after;
  cycle.columns = k + 1;
  CountIteration(state, fabs(s * residual));
  if (state.status == SegmentEnd::kNonFinite) {
    cycle.columns = 0;  // x remains what it was when the cycle began
  } else if (exhausted) {
    state.status = SegmentEnd::kExhausted;
  } else if (state.status == SegmentEnd::kRunning && cycle.columns == basis.m) {
    state.status = SegmentEnd::kPaused;
  }
}

enum class Pass {
  kProducts,  // products of y = A M u_k with the basis
  kFirst,     // u_(k+1) = A M v_k less its part along the basis; products of the remainder
  kSecond,    // subtracts those, too; where one is not enough, the next iteration is another one
};

template <Pass kPass>
inline constexpr int kThreadsOf = kPass == Pass::kFirst ? 512 : 1024;  // a block

// One pass through the basis. `in`: the input of the next product, u_(k+1), times the diagonal
// where there is one. `staged`: tiles of basis vectors that kFirst's warps can have in shared
// memory, all warps together. Sums are formed by warps, tile by tile, in an order that depends on k
// and the grid alone.
template <Pass kPass>
__global__ void __launch_bounds__(kThreadsOf<kPass>, 1)
    BasisKernel(Basis basis, const double* y, const double* diagonal, double* in, int staged,
                SolveState* state) {
  Cycle& cycle = *basis.cycle;
  if (state->status != SegmentEnd::kRunning) return;
  const int again = cycle.again;
  if ((again > 0) != (kPass == Pass::kSecond)) return;
  constexpr bool kSubtracts = kPass != Pass::kProducts;
  constexpr int kThreads = kThreadsOf<kPass>, kWarps = kThreads / 32;
  constexpr int kEach = kPass == Pass::kProducts ? 2 : 1;  // elements of a thread in a tile
  extern __shared__ double2 stage[];
  __shared__ double shared[kWarps][kChunk];
  static_assert(kWarps * kChunk >= 3 * kThreads);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int k = cycle.columns, count = k + 1;
  const double scale = basis.inverse[k];
  double* const next = basis.Column(count);
  const int64_t tiles = (basis.n + 32 * kEach - 1) / (32 * kEach);
  const int fitting = staged / count;
  const bool stages = kPass == Pass::kFirst && count <= kChunk && fitting >= kFewestWarps;
  const int warps = stages ? min(kWarps, fitting) : kWarps;
  double* const own_stage = reinterpret_cast<double*>(stage) + int64_t{warp} * count * kTile;

  double squares = 0;
  for (int first = 0; first < count; first += kChunk) {
    const int sums = min(kChunk, count - first);
    for (int j = lane; j < kChunk; j += 32) shared[warp][j] = 0;
    __syncwarp();
    for (int64_t tile = blockIdx.x + int64_t{gridDim.x} * warp; warp < warps && tile < tiles;
         tile += int64_t{gridDim.x} * warps) {
      const int64_t at = tile * 32 * kEach + lane;
      if (stages) {
        // 16 bytes a thread, two vectors a warp.
        const int part = lane % 16 * 2;
        for (int j = lane / 16; j < count; j += 2) {
          __pipeline_memcpy_async(own_stage + j * kTile + part,
                                  basis.Column(j) + tile * kTile + part, 16);
        }
        __pipeline_commit();
      }
      double w[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int64_t i = at + 32 * e;
        if (kPass == Pass::kProducts || (kPass == Pass::kFirst && first == 0)) {
          w[e] = i < basis.n ? y[i] : 0;
          if (kPass == Pass::kFirst) w[e] *= scale;
        } else {
          w[e] = next[i];
        }
      }
      if (stages) {
        __pipeline_wait_prior(0);
        __syncwarp();
      }
      const Elements all =
          stages ? Elements{own_stage + lane, kTile} : Elements{basis.u + at, basis.stride};
      if (kSubtracts && first == 0) {
        w[0] = Subtract(all, basis.factor, count, w[0]);
        if (at < basis.n) {
          next[at] = w[0];
          in[at] = diagonal != nullptr ? diagonal[at] * w[0] : w[0];
        }
      }
      if (first == 0) {
#pragma unroll
        for (int e = 0; e < kEach; ++e) squares += w[e] * w[e];
      }
      AddProducts(Elements{all.at + first * all.stride, all.stride}, sums, w, lane, shared[warp]);
      if (stages) __syncwarp();
    }
    __syncthreads();
    if (thread < sums) {
      double sum = 0;
      for (int v = 0; v < kWarps; ++v) sum += shared[v][thread];
      basis.partial[int64_t{first + thread} * gridDim.x + blockIdx.x] = sum;
    }
    __syncthreads();
  }
  squares = SumWarp(squares);
  if (lane == 0) shared[0][warp] = squares;
  __syncthreads();
  if (thread == 0) {
    double sum = 0;
    for (int v = 0; v < kWarps; ++v) sum += shared[0][v];
    basis.Squares()[blockIdx.x] = sum;
  }
  if (!IsLast(basis.arrived)) return;

  // The last block: the totals, and the scalars that depend on them.
  __shared__ double left[kWarps], total;
  double along = 0;  // squared norm of the part left along the basis
  for (int j = warp; j < count; j += kWarps) {
    const double sum = SumOfBlocks(basis.partial + int64_t{j} * gridDim.x, lane);
    if (lane != 0) continue;
    const double inverse = basis.inverse[j];
    if (kPass == Pass::kProducts) {
      const double h = sum * inverse * scale;
      basis.h[j] = h;
      basis.factor[j] = h * inverse;
    } else {
      const double h = sum * inverse;
      basis.correction[j] = h;
      basis.factor[j] = h * inverse;
      along += h * h;
    }
  }
  if (lane == 0) left[warp] = along;
  if (warp == 0) {
    const double sum = SumOfBlocks(basis.Squares(), lane);
    if (lane == 0) total = sqrt(sum);
  }
  __syncthreads();
  const double norm = kPass == Pass::kProducts ? total * scale : total;
  if (!isfinite(norm)) {
    if (thread == 0) state->status = SegmentEnd::kNonFiniteAMv;
    return;
  }
  if (kPass == Pass::kProducts) {
    if (thread == 0) cycle.before = norm;
    return;
  }
  along = 0;
  for (int v = 0; v < kWarps; ++v) along += left[v];
  const bool another =
      sqrt(along) > kOrthogonal * norm && norm > kExhausted * cycle.before && again < kMostSeconds;
  if (another) {
    for (int j = thread; j < count; j += kThreads) basis.h[j] += basis.correction[j];
  }
  if (thread == 0) {
    cycle.after = norm;
    cycle.again = another ? again + 1 : 0;
  }
  __syncthreads();
  if (!another) FinishColumn<kThreads>(basis, *state, shared[0]);
}

}  // namespace spaid::cuda::basis
