// Grows one row of G with many candidates, as grow_kernel.h does. A pass of 32 candidates gets a
// tile of L when a column is made that needs it, from a pool that all rows of a block share.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/growing_row.h"
#include "kernels/fsai/cuda/tile_pool.h"

namespace spaid::cuda::fsai {

// Slots of a row, at most: each lane takes the tile of one pass.
inline constexpr int kMostPoolSlots = 32 * kPassSlots;
// Warps of a block, at most.
template <class Real>
inline constexpr int kPoolWarps = sizeof(Real) == 4 ? 14 : 8;

// kHeld: gradients of so many passes are in registers, a multiple of kTogether; 0: all of them, any
// number, are in the workspace. kStride: rows of A have one length.
template <class Real, int kHeld, bool kStride, Form kForm>
class PoolGrower : GrowingRow<PoolGrower<Real, kHeld, kStride, kForm>, Real, 3, kStride, kForm> {
  using Base = GrowingRow<PoolGrower, Real, 3, kStride, kForm>;
  friend Base;
  using Base::below_;
  using Base::count_;
  using Base::index_;
  using Base::kColumn;
  using Base::kEntries;
  using Base::kNone;
  using Base::kSize;
  using Base::lane_;
  using Base::least_psi_;
  using Base::mine_;
  using Base::opened_;
  using Base::pivots_;
  using Base::psi_;
  using Base::row_;
  using Base::table_;
  using Base::w_;
  using Base::wanted_psi_;
  using typename Base::End;
  using typename Base::Entries;
  using typename Base::RowOfA;
  // Passes that are processed together.
  static constexpr int kTogether = 4;
  using Key = typename Traits<Real>::Key;
  using Bits = typename Key::Bits;

 public:
  // `tiles`: number in the pool, which precedes the workspaces.
  __device__ PoolGrower(const Work<Real>& work, char* shared, int64_t workspace_bytes,
                        int32_t tiles)
      : Base(work), pool_(shared, tiles) {
    const PoolLayout at = LayOutPool<Real>(w_.shape);
    char* const workspace = shared + TilePool::Bytes(tiles) + threadIdx.x / 32 * workspace_bytes;
    tiles_ = pool_.tiles();
    lists_ = reinterpret_cast<uint32_t*>(workspace + at.lists);
    first_ = reinterpret_cast<uint32_t*>(workspace + at.first);
    in_ = reinterpret_cast<uint32_t*>(workspace + at.in);
    pivot_row_ = reinterpret_cast<Vector<Real>*>(workspace + at.pivot_row);
    y_ = reinterpret_cast<Real*>(workspace + at.y);
    index_ = reinterpret_cast<int32_t*>(workspace + at.index);
    table_ = reinterpret_cast<int16_t*>(workspace + at.table);
    listed_ = static_cast<uint32_t>(PoolListed(w_.shape));
    blocks_ = static_cast<uint32_t>(PoolBlocks<Real>(w_.shape));
  }

  __device__ void Run() {
    pool_.Begin();
    __syncthreads();
    uint32_t turn = this->Take();
    while (turn < static_cast<uint32_t>(w_.count)) {
      const uint32_t next = this->Take();
      const int64_t row = this->RowOfTurn(turn);
      End end = End::kNone;
      while ((end = Make(static_cast<int32_t>(row))) == End::kGaveUp) {
        GiveTiles();
        pool_.AwaitAnother(lane_);
      }
      __syncwarp();
      if (end != End::kWorkspaceFull) {
        EndRow(row, end);
      } else {
        this->PassOn();
      }
      if (w_.taken != nullptr) SetTaken(turn, end);
      GiveTiles();
      pool_.RowEnds(lane_);
      turn = next;
    }
    pool_.WarpEnds(lane_);
    this->AddSums();
  }

 private:
  // Sizes that the row would have taken with grow_kernel.h.
  __device__ void SetTaken(uint32_t turn, End end) {
    const auto blocks = static_cast<uint32_t>(GrowBlocks<Real>(w_.shape));
    uint32_t tiles = 0;
    for (uint32_t p = lane_; p * 32 < opened_; p += 32) tiles += blocks - min(first_[p], blocks);
    tiles = __reduce_add_sync(kAllLanes, tiles);
    if (lane_ != 0) return;
    w_.taken[turn] = end != End::kWorkspaceFull
                         ? make_int2(static_cast<int>(count_), static_cast<int>(tiles))
                         : make_int2(0, 0);
  }

  // Makes L, z, ψ, in one loop that begins with the row's own entries: a second copy of its code
  // would not fit the instruction cache.
  __device__ End Make(int32_t row) {
    this->Begin(row);
    held_tiles_ = 0;
    for (uint32_t t = lane_; t < blocks_ * listed_; t += 32) lists_[t] = pool_.zero();
    for (uint32_t t = lane_; t < listed_; t += 32) in_[t] = ~0u;
#pragma unroll
    for (int p = 0; p < kHeld; ++p) held_[p] = 0;
    __syncwarp();
    auto steps = static_cast<uint32_t>(w_.k_max);
    Real per_noise = 0, y = 0;
    uint32_t slot = 0;
    int32_t index = row;
#pragma unroll 1
    for (bool own = true;; own = false) {
      const RowOfA of_p = own ? this->OwnRow() : this->RowAt(index);
      Entries entry;
      this->Fetch(of_p, 0, entry);
      const uint32_t k = pivots_;
      bool column = true;
      Real root = 0, z = 0;
      if (own) {
        const Real diagonal = __shfl_sync(kAllLanes, entry[0].value, 0);
        this->BeginPsi(diagonal);
        per_noise = InverseRoot(diagonal) / (8 * Traits<Real>::kRoundoff);
      } else {
        const Vector<Real> x = PivotRow(slot, k);
        const Real q = SumOfSquares(x);
        const Real diagonal = __shfl_sync(kAllLanes, entry[0].value, 0);
        const Real pivot = diagonal - q;
        root = InverseRoot(pivot);
        z = -y * root;
        const auto z_exact = static_cast<double>(z);
        const double psi = fma(-z_exact, z_exact, psi_);
        // Also false for an infinite or NaN pivot.
        constexpr Real kLimit = 16 * Traits<Real>::kRoundoff;
        if (!(pivot > kLimit * diagonal && root > 0 && (kColumn || psi > least_psi_))) {
          return End::kNotSpd;
        }
        // No more than rounding leaves of a y that is zero.
        const Real noise = y * per_noise;
        const bool forced = kColumn && k == 0;
        if (!forced && noise * noise <= diagonal) return End::kDone;
        const bool little =
            kColumn ? psi <= wanted_psi_ : w_.min_gain > 0 && psi > (1 - w_.min_gain) * psi_;
        psi_ = kColumn ? fmax(psi, least_psi_) : psi;
        if (lane_ == k) {
          mine_.z = z;
          mine_.root = root;
          mine_.at = slot;
        }
        pivots_ = k + 1;
        if (little) {
          if constexpr (kColumn) return End::kConverged;
          break;
        }
        // The last pivot needs no column.
        column = pivots_ < steps;
        if (column && !BeginColumn(slot, k, x)) return End::kGaveUp;
      }
      if (column) {
        if (const End end = Scatter(of_p, entry, k); end != End::kNone) return end;
        if (own) {
          BeginGradients();
        } else {
          Columns(slot, k, root, z);
        }
      }
      if constexpr (kColumn) {
        if (own) {
          steps = static_cast<uint32_t>(min(w_.k_max + 1, w_.most));
          // The column's own index follows the diagonal, so that it is the first candidate.
          y = __shfl_sync(kAllLanes, kHeld > 0 ? held_[0] : y_[0], 0);
          slot = 0;
          most_ = 0;
          continue;
        }
      }
      if (pivots_ == steps || psi_ <= wanted_psi_ || !Choose(index, slot, y)) break;
    }
    return psi_ <= wanted_psi_ ? End::kConverged : End::kDone;
  }

  static __device__ Vector<Real> VectorAt(const char* at) {
    return *reinterpret_cast<const Vector<Real>*>(at);
  }
  static __device__ void Subtract(Real (&sum)[2], const Vector<Real>& x, const Vector<Real>& v) {
#pragma unroll
    for (uint32_t t = 0; t < kSize; ++t) sum[t % 2] -= x.x[t] * v.x[t];
  }

  // Block b of the pivot's row of L before column `k`, in lane b.
  __device__ Vector<Real> PivotRow(uint32_t slot, uint32_t k) const {
    if (lane_ > k / kSize || lane_ >= blocks_) return {};
    return VectorAt(tiles_ + (lists_[lane_ * listed_ + slot / 32] + slot % 32 * 16));
  }

  // Σ x² over the first lanes, as many as a row has blocks.
  static __device__ Real SumOfSquares(const Vector<Real>& x) {
    constexpr int kLanes = 32 / static_cast<int>(kSize);
    Real sum = 0;
#pragma unroll
    for (uint32_t t = 0; t < kSize; ++t) sum += x.x[t] * x.x[t];
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    return __shfl_sync(kAllLanes, sum, 0);
  }

  // With the diagonal alone the gradient is A's row.
  __device__ void BeginGradients() {
    const auto begin = [&](uint32_t p) -> Real {
      Real& x = *reinterpret_cast<Real*>(tiles_ + lists_[p] + 16 * lane_);
      const Real y = x;
      x = 0;
      most_ = fmax(most_, fabs(y));
      return y;
    };
    most_ = 0;
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        if (p * 32u >= opened_) break;
        held_[p] = begin(static_cast<uint32_t>(p));
      }
    } else {
      for (uint32_t at = lane_; at < opened_; at += 32) y_[at] = begin(at / 32);
    }
    __syncwarp();
  }

  // Chooses the largest |y|, among equal ones the lowest index. False: nothing to choose.
  __device__ bool Choose(int32_t& index, uint32_t& slot, Real& y) {
    const Bits bits = Key::Of(most_), most = Key::Max(bits);
    if (most == 0) return false;
    // The wanted |y|, in lanes that have it.
    const Real wanted = bits == most ? most_ : -1;
    most_ = 0;
    int count = 0;
    EachGradient([&](Real of_p, uint32_t p) {
      const bool is = fabs(of_p) == wanted;
      count += is ? 1 : 0;
      y = is ? of_p : y;
      slot = is ? p : slot;
    });
    const unsigned those = __ballot_sync(kAllLanes, count > 0);
    const bool alone = (those & (those - 1)) == 0 && !__any_sync(kAllLanes, count > 1);
    int from = __ffs(static_cast<int>(those)) - 1;
    slot = slot * 32 + lane_;
    if (!alone) {
      int32_t lowest = kNone;
      EachGradient([&](Real of_p, uint32_t p) {
        const uint32_t at = p * 32 + lane_;
        if (fabs(of_p) != wanted || index_[at] > lowest) return;
        lowest = index_[at];
        slot = at;
        y = of_p;
      });
      __syncwarp();
      const unsigned least = __reduce_min_sync(kAllLanes, static_cast<uint32_t>(lowest));
      const bool has = static_cast<uint32_t>(lowest) == least;
      from = __ffs(static_cast<int>(__ballot_sync(kAllLanes, has))) - 1;
    }
    slot = __shfl_sync(kAllLanes, slot, from);
    y = __shfl_sync(kAllLanes, y, from);
    index = index_[slot];
    return true;
  }

  template <class Look>
  __device__ __forceinline__ void EachGradient(const Look& look) const {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int first = 0; first < kHeld; first += kTogether) {
        if (first * 32u >= opened_) break;
#pragma unroll
        for (int p = first; p < first + kTogether; ++p) look(held_[p], static_cast<uint32_t>(p));
      }
    } else {
      for (uint32_t at = lane_; at < opened_; at += 32) look(y_[at], at / 32);
    }
  }

  // Stores a row of A where column `k` of L will be. New candidates get slots. `entry`: the row's
  // first entries, the diagonal before all. Returns kNone, or why the row cannot go on.
  __device__ __forceinline__ End Scatter(const RowOfA& row, Entries& entry, uint32_t k) {
    const uint32_t block = k / kSize;
    if (lane_ == 0) entry[0].index = kNone;
    for (int begin = 0;;) {
      int slot[kEntries];
      if (const End end = this->Find(entry, slot, block); end != End::kNone) return end;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        const auto s = static_cast<uint32_t>(max(slot[e], 0));
        char* const to = tiles_ + (lists_[block * listed_ + s / 32] + s % 32 * 16 +
                                   k % kSize * static_cast<uint32_t>(sizeof(Real)));
        if (slot[e] >= 0) *reinterpret_cast<Real*>(to) = entry[e].value;
      }
      begin += 32 * kEntries;
      if (begin >= row.length) break;
      this->Fetch(row, begin, entry);
      if constexpr (kColumn) continue;
      // Indices ascend.
      bool any = false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) any |= entry[e].index < row_;
      if (!__any_sync(kAllLanes, any)) break;
    }
    __syncwarp();
    return End::kNone;
  }

  // Takes tiles for column `k` of L, if it is a block's first; marks the pivot as in P, and stores
  // its row of L, `x`, with −1 for the new column. False: this row has to give up.
  __device__ bool BeginColumn(uint32_t slot, uint32_t k, Vector<Real> x) {
    const uint32_t block = k / kSize;
    if (k > 0 && k % kSize == 0 && !TakeTiles(block, 0, opened_ / 32)) return false;
    if (lane_ == 0) in_[slot / 32] |= 1u << slot % 32;
    if (lane_ <= block) {
#pragma unroll
      for (uint32_t t = 0; t < kSize; ++t) {
        if (lane_ * kSize + t == k) x.x[t] = -1;
      }
      pivot_row_[lane_] = x;
    }
    return true;
  }

  // Takes the tiles of a block of columns for `count` passes from `pass` on, at most 32, and zeroes
  // them. False: this row has to give up.
  __device__ bool TakeTiles(uint32_t block, uint32_t pass, uint32_t count) {
    uint32_t offset = 0;
    if (!pool_.Take(lane_, count, offset)) return false;
    if (lane_ < count) lists_[block * listed_ + pass + lane_] = offset;
    held_tiles_ += count;
#pragma unroll 1
    for (uint32_t t = 0; t < count; ++t) {
      const uint32_t of_t = __shfl_sync(kAllLanes, offset, static_cast<int>(t));
      *reinterpret_cast<Vector<Real>*>(tiles_ + (of_t + 16 * lane_)) = {};
    }
    __syncwarp();
    return true;
  }

  __device__ void GiveTiles() {
    __syncwarp();
    const uint32_t places = blocks_ * listed_;
    for (uint32_t begin = 0; begin < places; begin += 32) {
      const uint32_t offset = begin + lane_ < places ? lists_[begin + lane_] : pool_.zero();
      pool_.Give(lane_, offset != pool_.zero(), offset);
    }
    __syncwarp();
  }

  // Opens the passes up to count_ candidates, beginning with that block of columns.
  __device__ End OpenPasses(uint32_t block) {
    const uint32_t from = opened_ / 32, count = (count_ - opened_ + 31) / 32;
    if (count_ > static_cast<uint32_t>(w_.shape.slots) || held_tiles_ + count > pool_.count()) {
      return End::kWorkspaceFull;
    }
    if (lane_ < count) {
      first_[from + lane_] = block;
      in_[from + lane_] = 0;
    }
    for (uint32_t p = from; kHeld == 0 && p < from + count; ++p) y_[p * 32 + lane_] = 0;
    opened_ += 32 * count;
    return TakeTiles(block, from, count) ? End::kNone : End::kGaveUp;
  }

  // Computes column `k` of L, and updates the gradients. `slot`: the pivot's.
  __device__ __forceinline__ void Columns(uint32_t slot, uint32_t k, Real root, Real z) {
    const uint32_t first = first_[slot / 32];
    const auto group = [&](int p, Real* y) {
      if (opened_ <= p * 32u + 64) {
        Column<2>(p, first, k, root, z, y);
      } else {
        Column<kTogether>(p, first, k, root, z, y);
      }
    };
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int p = 0; p < kHeld; p += kTogether) {
        if (p * 32u < opened_) group(p, held_ + p);
      }
    } else {
      for (int p = 0; p * 32u < opened_; p += kTogether) {
        Real y[kTogether] = {};
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          const uint32_t at = static_cast<uint32_t>(p + t) * 32 + lane_;
          if (at < opened_) y[t] = y_[at];
        }
        group(p, y);
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
          const uint32_t at = static_cast<uint32_t>(p + t) * 32 + lane_;
          if (at < opened_) y_[at] = y[t];
        }
      }
    }
    __syncwarp();
  }

  // The same for kPasses passes, by their lists, which have the zero tile for blocks that are not
  // stored; `y`: their gradients. `pivot_first`: the first block of the pivot's row.
  template <int kPasses>
  __device__ __forceinline__ void Column(int pass, uint32_t pivot_first, uint32_t k, Real root,
                                         Real z, Real* y) {
    const uint32_t end = k / kSize + 1;
    const uint32_t* const list = lists_ + pass;
    char* const column = tiles_ + 16 * lane_;
    Real sum[kPasses][2] = {};
    uint32_t at[4] = {};
    const auto block = [&](uint32_t b) {
      const uint4 tiles = *reinterpret_cast<const uint4*>(list + b * listed_);
      at[0] = tiles.x;
      at[1] = tiles.y;
      at[2] = tiles.z;
      at[3] = tiles.w;
      const Vector<Real> x = pivot_row_[b];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) Subtract(sum[p], x, VectorAt(column + at[p]));
    };
    // The first of the passes began no later than the others.
    uint32_t b = max(first_[pass], pivot_first);
    // An odd number of blocks.
    if (((end - b) & 1) != 0) block(b++);
#pragma unroll 1
    for (; b < end; b += 2) {
      block(b);
      block(b + 1);
    }
    // The last block has the column. Rows of indices in P do not change any more, nor does the zero
    // tile.
    const uint4 those = *reinterpret_cast<const uint4*>(in_ + pass);
    const uint32_t in[4] = {those.x, those.y, those.z, those.w};
    const uint32_t within = k % kSize * static_cast<uint32_t>(sizeof(Real));
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const bool is_in = (in[p] & (below_ + 1)) != 0;
      const Real l = (sum[p][0] + sum[p][1]) * root;
      if (!is_in) *reinterpret_cast<Real*>(column + (at[p] + within)) = l;
      y[p] = is_in ? 0 : y[p] + l * z;
      most_ = fmax(most_, fabs(y[p]));
    }
  }

  // Solves Lᵀ g̃ = z, writes the row.
  __device__ void EndRow(int64_t row, End end) {
    int32_t index = kNone;
    if (lane_ < pivots_) {
      if constexpr (!kColumn) mine_.columns = below_;
      index = index_[mine_.at];
    }
    const auto place = [&](uint32_t at) {
      return tiles_ + (lists_[lane_ / kSize * listed_ + at / 32] + at % 32 * 16 +
                       lane_ % kSize * static_cast<uint32_t>(sizeof(Real)));
    };
    this->Finish(
        row, end, index,
        [&](unsigned& kept) {
          return mine_.template SolveBy<true>(place, lane_, static_cast<int>(pivots_),
                                              w_.post_filter, psi_, kept);
        },
        [&](uint32_t p) { return first_[p] * kSize; });
  }

  TilePool pool_;
  char* tiles_;
  // lists_: offset of the tile of each block and pass, in bytes from tiles_. first_: first block of
  // each pass. in_: a bit for each candidate of a pass that is in P or does not exist. pivot_row_:
  // the last pivot's row of L.
  uint32_t *lists_, *first_, *in_;
  Vector<Real>* pivot_row_;
  Real* y_;
  uint32_t listed_, blocks_;

  uint32_t held_tiles_ = 0;
  Real held_[kHeld > 0 ? kHeld : 1];
  Real most_ = 0;  // largest |y| of this lane
};

// `tiles`: number in the pool.
template <class Real, int kHeld, bool kStride, Form kForm>
__global__ void __launch_bounds__(32 * kPoolWarps<Real>, 1)
    FsaiPoolKernel(const __grid_constant__ Work<Real> work, int64_t workspace_bytes,
                   int32_t tiles) {
  extern __shared__ char shared[];
  PoolGrower<Real, kHeld, kStride, kForm>(work, shared, workspace_bytes, tiles).Run();
}

}  // namespace spaid::cuda::fsai
