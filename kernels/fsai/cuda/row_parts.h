// Building blocks of the kernels that make a row of G: numbers and their order, rows of A, and the
// output of a row of at most 32 pivots.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

inline constexpr unsigned kAllLanes = ~0u;

__device__ inline float InverseRoot(float x) { return rsqrtf(x); }
__device__ inline double InverseRoot(double x) { return rsqrt(x); }

// |y| as an unsigned integer in the same order; 0: nothing to choose.
struct Key32 {
  using Bits = uint32_t;
  static __device__ Bits Of(float y) { return __float_as_uint(y) & 0x7fffffffu; }
  static __device__ Bits Max(Bits bits) { return __reduce_max_sync(kAllLanes, bits); }
};
struct Key64 {
  using Bits = uint64_t;
  static __device__ Bits Of(double y) {
    return static_cast<uint64_t>(__double_as_longlong(y)) & 0x7fffffffffffffffull;
  }
  static __device__ Bits Max(Bits bits) {
    const auto high = static_cast<uint32_t>(bits >> 32);
    const uint32_t most = __reduce_max_sync(kAllLanes, high);
    const uint32_t low = high == most ? static_cast<uint32_t>(bits) : 0;
    return static_cast<uint64_t>(most) << 32 | __reduce_max_sync(kAllLanes, low);
  }
};

template <class Real>
struct Traits;
template <>
struct Traits<float> {
  using Key = Key32;
  static constexpr float kRoundoff = 0x1p-24f;
};
template <>
struct Traits<double> {
  using Key = Key64;
  static constexpr double kRoundoff = 0x1p-53;
};

template <class Real>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(Real));
  Real x[kSize];
};
template <class Real>
struct alignas(2 * sizeof(Real)) Gradient {
  Real y;
  Real q;  // Σ L_jt²; infinite: j is in P
};

template <class Bits>
struct Best {
  Bits bits;
  int32_t index, slot;
};

// The entries of a row of A, `length` of them.
template <class Real>
__device__ const Entry<Real>* RowOf(const Work<Real>& work, int64_t row, int& length) {
  if (work.a.stride > 0) {
    length = work.a.stride;
    return work.a.entries + row * work.a.stride;
  }
  const int64_t begin = work.a.ptr[row];
  length = static_cast<int>(work.a.ptr[row + 1] - begin);
  return work.a.entries + begin;
}

// The entries that column `row` of M begins with.
template <class Real>
__device__ const Entry<Real>* OwnOf(const Work<Real>& work, int64_t row, int& length) {
  const int64_t begin = work.own.ptr[row];
  length = static_cast<int>(work.own.ptr[row + 1] - begin);
  return work.own.entries + begin;
}

// Index of the first entry of row `row` in the output.
template <class Real>
__device__ int64_t OutOf(const Work<Real>& work, int64_t row) {
  const int64_t out = (row - work.first_out) * work.out_stride;
  return work.initial_ptr == nullptr
             ? out
             : out + work.initial_ptr[row] - work.initial_ptr[work.first_out];
}

__device__ inline double SumOfWarp(double x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// A row's pivots, at most 32: lane k has the data of the k-th.
template <class Real>
struct FewPivots {
  Real z = 0, root = 0;
  // The pivot's row of L: its offset in bytes, as if it began with block 0 (with a pool: its slot),
  // and a bit for each column that is stored.
  uint32_t at = 0, columns = 0;
  Real beside = 0;  // the last pivot's entry in the column before it, or 0

  // Solves Lᵀ g̃ = z for the `count` pivots; returns lane k's entry of g̃. Drops entries below
  // `post_filter` ‖g‖, and adds their cost to ψ; `kept`: a bit for each entry left. kGrown: not all
  // columns are stored; `columns` and `beside` say which.
  template <bool kGrown>
  __device__ Real Solve(const char* tiles, uint32_t lane, int count, double post_filter,
                        double& psi, unsigned& kept) const {
    constexpr uint32_t kSize = Vector<Real>::kSize;
    const char* const column =
        tiles + (lane / kSize * (16 * kTileVectors) + lane % kSize * sizeof(Real));
    return SolveBy<kGrown>([&](uint32_t row) { return column + row; }, lane, count, post_filter,
                           psi, kept);
  }

  // The same; place(at): address of this lane's column in the row of L at `at`.
  template <bool kGrown, class Place>
  __device__ Real SolveBy(const Place& place, uint32_t lane, int count, double post_filter,
                          double& psi, unsigned& kept) const {
    const auto factor = [&](int k) -> Real {
      const uint32_t row = __shfl_sync(kAllLanes, at, k);
      bool has = static_cast<int>(lane) < k;
      if constexpr (kGrown) has = __shfl_sync(kAllLanes, columns, k) >> lane & 1;
      return has ? *reinterpret_cast<const Real*>(place(row)) : 0;
    };
    const int end = max(count - 1, 0);
    Real last = 0;
    if constexpr (kGrown) {
      last = __shfl_sync(kAllLanes, beside, end);
      if (static_cast<int>(lane) != count - 2) last = 0;
    }
    const bool pivot = static_cast<int>(lane) < count;
    Real g = pivot ? z : 0;
    if constexpr (kGrown) g -= last * __shfl_sync(kAllLanes, g * root, end);
    for (int k = count - 1; k > 0; --k) {
      const Real of_k = __shfl_sync(kAllLanes, g * root, k);
      g -= factor(k) * of_k;
    }
    g = pivot ? g * root : 0;
    kept = count == 32 ? kAllLanes : (1u << count) - 1;
    if (post_filter > 0) {
      const double norm = SumOfWarp(static_cast<double>(g) * static_cast<double>(g));
      const bool keep = pivot && !(fabs(static_cast<double>(g)) < post_filter * sqrt(1 + norm));
      kept = __ballot_sync(kAllLanes, keep);
      if (!keep) g = 0;
      // ψ with the entries left: ψ + ‖Lᵀ g̃ − z‖².
      Real v = pivot && root > 0 ? g / root : 0;
      if constexpr (kGrown) v += last * __shfl_sync(kAllLanes, g, end);
      for (int k = count - 1; k > 0; --k) {
        const Real of_k = __shfl_sync(kAllLanes, g, k);
        v += factor(k) * of_k;
      }
      const double error = pivot ? static_cast<double>(v) - static_cast<double>(z) : 0;
      psi += SumOfWarp(error * error);
    }
    return g;
  }
};

// Writes a row of G: lane t's entry at position `rank` if bit t of `kept` is set, and the diagonal.
template <class Real>
__device__ void WriteFew(const Work<Real>& work, int64_t row, uint32_t lane, unsigned kept,
                         int rank, int32_t index, Real g, double psi) {
  const double scale = rsqrt(psi);
  const int64_t out = OutOf(work, row);
  if (kept >> lane & 1) {
    work.out_idx[out + rank] = index;
    work.out_values[out + rank] = static_cast<Real>(static_cast<double>(g) * scale);
  }
  if (lane == 0) {
    const int entries = __popc(kept);
    work.out_idx[out + entries] = static_cast<int32_t>(row);
    work.out_values[out + entries] = static_cast<Real>(scale);
    work.out_count[row - work.first_out] = entries + 1;
  }
}

}  // namespace spaid::cuda::fsai
