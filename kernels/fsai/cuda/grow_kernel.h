// Grows one row of G with at most 4 passes of candidates (grow_pool_kernel.h has larger ones) from
// the diagonal, by one index a step to at most 32 entries, by a warp: the algorithm of
// rows_kernel.h with as few instructions a step, and as small a workspace, as possible.
//
// The workspace has no separate column of A for a new pivot: its entries are stored where that
// column of L will be, with −1 in the pivot's own row of L, so that the product with that row is
// all of Σ_u L_ju L_pu − a_jp. Only A's own row, and the last column of L, of which only the last
// pivot's entry is read, are stored beside the tiles.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/growing_row.h"

namespace spaid::cuda::fsai {

// kHeld: passes, at most, whose gradients are in registers. kStride: rows of A have one length, at
// most 32.
template <class Real, int kHeld, bool kStride, Form kForm>
class Grower : GrowingRow<Grower<Real, kHeld, kStride, kForm>, Real, 1, kStride, kForm> {
  using Base = GrowingRow<Grower, Real, 1, kStride, kForm>;
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
  static constexpr uint32_t kTileBytes = 16 * kTileVectors;
  static constexpr Real kInfinity = static_cast<Real>(INFINITY);
  using Key = typename Traits<Real>::Key;
  using Bits = typename Key::Bits;
  struct alignas(16) Pick {
    Gradient<Real> gradient;
    uint32_t slot;
  };
  // Place of a new column of L.
  enum class To { kTiles, kBeside, kNowhere };

 public:
  __device__ Grower(const Work<Real>& work, char* workspace) : Base(work) {
    const GrowLayout at = LayOutGrow<Real>(w_.shape);
    tiles_ = workspace + at.tiles;
    index_ = reinterpret_cast<int32_t*>(workspace + at.index);
    passes_ = reinterpret_cast<uint2*>(workspace + at.passes);
    pick_ = reinterpret_cast<Pick*>(workspace + at.pick);
    beside_ = reinterpret_cast<Real*>(workspace + at.beside);
    table_ = reinterpret_cast<int16_t*>(workspace + at.table);
    blocks_ = GrowBlocks<Real>(w_.shape);
  }

  __device__ void Run() {
    uint32_t turn = this->Take();
    while (turn < static_cast<uint32_t>(w_.count)) {
      const uint32_t next = this->Take();
      const int64_t row = this->RowOfTurn(turn);
      const End end = Make(static_cast<int32_t>(row));
      __syncwarp();
      if (end != End::kWorkspaceFull) {
        EndRow(row, end);
      } else {
        this->PassOn();
      }
      if (w_.taken != nullptr && lane_ == 0) {
        w_.taken[turn] = end != End::kWorkspaceFull
                             ? make_int2(static_cast<int>(count_), next_tile_)
                             : make_int2(0, 0);
      }
      __syncwarp();
      turn = next;
    }
    this->AddSums();
  }

 private:
  // Makes L, z, ψ.
  __device__ End Make(int32_t row) {
    this->Begin(row);
    next_tile_ = 0;
#pragma unroll
    for (int p = 0; p < kHeld; ++p) held_[p] = {};
    __syncwarp();
    Entries entry;
    const RowOfA own = this->OwnRow();
    this->Fetch(own, 0, entry);
    const Real diagonal = __shfl_sync(kAllLanes, entry[0].value, 0);
    if (!Scatter<To::kBeside>(own, entry, 0)) return End::kWorkspaceFull;
    BeginGradients();
    this->BeginPsi(diagonal);
    per_noise_ = InverseRoot(diagonal) / (8 * Traits<Real>::kRoundoff);
    auto steps = static_cast<uint32_t>(w_.k_max);
    if constexpr (kColumn) {
      steps = static_cast<uint32_t>(min(w_.k_max + 1, w_.most));
      // The column's own index follows the diagonal, so that it is the first candidate.
      if (lane_ == 0) *pick_ = {held_[0], 0};
      __syncwarp();
    }
    for (; pivots_ + 2 < steps; ++pivots_) {
      if (const End end = Step<To::kTiles>(); end != End::kNone) return end;
    }
    if (pivots_ + 2 == steps) {
      if (const End end = Step<To::kBeside>(); end != End::kNone) return end;
      ++pivots_;
    }
    // The last pivot needs no column.
    if (pivots_ + 1 == steps) {
      if (const End end = Step<To::kNowhere>(); end != End::kNone) return end;
      ++pivots_;
    }
    return psi_ <= wanted_psi_ ? End::kConverged : End::kDone;
  }

  // Adds one pivot; a result other than kNone: there is none.
  template <To kTo>
  __device__ __forceinline__ End Step() {
    const uint32_t k = pivots_;
    if (psi_ <= wanted_psi_) return End::kConverged;
    int32_t index = row_;
    bool forced = false;
    if constexpr (kColumn) forced = k == 0;
    if (!forced && !Choose(index)) return End::kDone;
    const RowOfA of_p = this->RowAt(index);
    Entries entry;
    this->Fetch(of_p, 0, entry);
    __syncwarp();
    const Pick pick = *pick_;
    const Real diagonal = __shfl_sync(kAllLanes, entry[0].value, 0);
    const Real pivot = diagonal - pick.gradient.q;
    const Real root = InverseRoot(pivot);
    const Real z = -pick.gradient.y * root;
    const auto z_exact = static_cast<double>(z);
    const double psi = fma(-z_exact, z_exact, psi_);
    // Also false for an infinite or NaN pivot.
    constexpr Real kLimit = 16 * Traits<Real>::kRoundoff;
    if (!(pivot > kLimit * diagonal && root > 0 && (kColumn || psi > least_psi_))) {
      return End::kNotSpd;
    }
    // No more than rounding leaves of a y that is zero.
    const Real noise = pick.gradient.y * per_noise_;
    if (!forced && noise * noise <= diagonal) return End::kDone;
    // The last pivot needs no column.
    const bool little = kColumn ? psi <= wanted_psi_ : psi > (1 - w_.min_gain) * psi_;
    if (kTo != To::kNowhere && !little && !Scatter<kTo>(of_p, entry, k)) return End::kWorkspaceFull;
    psi_ = kColumn ? fmax(psi, least_psi_) : psi;
    if (lane_ == k) {
      mine_.z = z;
      mine_.root = root;
      own_slot_ = pick.slot;
    }
    if (little) {
      pivots_ = k + 1;
      return kColumn || psi_ <= wanted_psi_ ? End::kConverged : End::kDone;
    }
    if constexpr (kTo != To::kNowhere) Columns<kTo>(pick.slot, k, root, z);
    return End::kNone;
  }

  // Offset of column `k` of L from a row's begin, in bytes.
  __device__ static uint32_t PlaceOf(uint32_t k) {
    return k / kSize * kTileBytes + k % kSize * static_cast<uint32_t>(sizeof(Real));
  }

  // With the diagonal alone the gradient is A's row.
  __device__ void BeginGradients() {
    const auto begin = [&](int p) -> Real {
      Real& x = beside_[p * 32 + lane_];
      const Real y = x;
      x = 0;
      return y;
    };
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      if (p * 32u >= opened_) break;
      held_[p].y = begin(p);
    }
    __syncwarp();
  }

  // Chooses the largest |y|, among equal ones the lowest index, and stores it in *pick_, which may
  // be read after the next barrier. False: nothing to choose.
  __device__ bool Choose(int32_t& index) {
    Bits most = 0;
    int32_t own[kHeld];
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      most = max(most, Key::Of(held_[p].y));
      own[p] = index_[p * 32 + lane_];
    }
    most = Key::Max(most);
    if (most == 0) return false;
    int32_t lowest = kNone;
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      if (Key::Of(held_[p].y) != most) own[p] = kNone;
      lowest = min(lowest, own[p]);
    }
    index = static_cast<int32_t>(__reduce_min_sync(kAllLanes, static_cast<uint32_t>(lowest)));
#pragma unroll
    for (int p = 0; p < kHeld; ++p) {
      if (own[p] == index) *pick_ = {held_[p], p * 32 + lane_};
    }
    return true;
  }

  // Stores a row of A where column `k` of L will be. New candidates get slots. `entry`: the row's
  // first entries. False: the workspace is full.
  template <To kTo>
  __device__ __forceinline__ bool Scatter(const RowOfA& row, Entries& entry, uint32_t k) {
    // The diagonal entry is the row's first.
    if (lane_ == 0) entry[0].value = -1;
    for (int begin = 0;;) {
      int slot[kEntries];
      if (this->Find(entry, slot, k / kSize) != End::kNone) return false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        const auto s = static_cast<uint32_t>(max(slot[e], 0));
        Real* to = beside_ + s;
        if constexpr (kTo == To::kTiles) {
          to = reinterpret_cast<Real*>(tiles_ + (passes_[s / 32].x + s % 32 * 16 + PlaceOf(k)));
        }
        if (slot[e] >= 0) *to = entry[e].value;
      }
      if constexpr (kStride) break;
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
    return true;
  }

  // Allocates tiles, from that block on, for the passes up to count_ candidates, all zero.
  __device__ End OpenPasses(uint32_t from) {
    const auto block = static_cast<int>(from);
    if (count_ > static_cast<uint32_t>(w_.shape.slots)) return End::kWorkspaceFull;
    const int added = blocks_ - block;
    for (; opened_ < count_; opened_ += 32) {
      if (next_tile_ + added > w_.shape.tiles) return End::kWorkspaceFull;
      if (lane_ == 0) {
        passes_[opened_ / 32] = make_uint2(static_cast<uint32_t>(next_tile_ - block) * kTileBytes,
                                           static_cast<uint32_t>(block) * kTileBytes);
      }
      auto* const tiles = reinterpret_cast<Vector<Real>*>(tiles_) + next_tile_ * kTileVectors;
#pragma unroll 1
      for (int b = 0; b < added; ++b) tiles[b * kTileVectors + static_cast<int>(lane_)] = {};
      beside_[opened_ + lane_] = 0;
      next_tile_ += added;
    }
    __syncwarp();
    return End::kNone;
  }

  // Computes column `k` of L, and updates the gradients. `slot`: the pivot's.
  template <To kTo>
  __device__ __forceinline__ void Columns(uint32_t slot, uint32_t k, Real root, Real z) {
    uint2 pivot = passes_[slot / 32];
    pivot.x += slot % 32 * 16;
    const auto column = [&](int p) { Column<kTo>(p, slot, pivot, k, root, z); };
    column(0);
    if (kHeld > 1 && opened_ > 32) {
      column(1);
      if (kHeld > 2 && opened_ > 64) {
        column(2);
        if (kHeld > 3 && opened_ > 96) column(3);
      }
    }
    __syncwarp();
  }

  template <To kTo>
  __device__ __forceinline__ void Column(int pass, uint32_t slot, uint2 pivot, uint32_t k,
                                         Real root, Real z) {
    // End of the blocks that are stored, in bytes.
    const uint32_t end =
        (kTo == To::kBeside ? (k + kSize - 1) / kSize : k / kSize + 1) * kTileBytes;
    const char* const pivot_row = tiles_ + pivot.x;
    const uint2 tile = passes_[pass];
    char* const column = tiles_ + (tile.x + 16 * lane_);
    Real sum[2] = {};
    Real* own = beside_ + (pass * 32 + lane_);
    if constexpr (kTo == To::kBeside) {
      sum[0] = *own;
    } else {
      own = reinterpret_cast<Real*>(column + PlaceOf(k));
    }
    const auto block = [&](uint32_t at) {
      const auto x = *reinterpret_cast<const Vector<Real>*>(pivot_row + at);
      const auto v = *reinterpret_cast<const Vector<Real>*>(column + at);
#pragma unroll
      for (uint32_t t = 0; t < kSize; ++t) sum[t % 2] -= x.x[t] * v.x[t];
    };
    uint32_t b = max(tile.y, pivot.y);
    // An odd number of blocks.
    static_assert((kTileBytes & 31) == 16);
    if (((end - b) & 16) != 0) {
      block(b);
      b += kTileBytes;
    }
#pragma unroll 1
    for (; b < end; b += 2 * kTileBytes) {
      block(b);
      block(b + kTileBytes);
    }
    const Real l = (sum[0] + sum[1]) * root;
    Gradient<Real> yq = held_[pass];
    // Rows of indices in P do not change any more, and the pivot's row is being read.
    const bool in = !(yq.q < kInfinity) || pass * 32 + lane_ == slot;
    yq.y = in ? 0 : yq.y + l * z;
    yq.q = in ? kInfinity : yq.q + l * l;
    if (!in) *own = l;
    held_[pass] = yq;
  }

  // Solves Lᵀ g̃ = z, writes the row.
  __device__ void EndRow(int64_t row, End end) {
    int32_t index = kNone;
    if (kColumn && lane_ < pivots_) index = index_[own_slot_];
    if (!kColumn && lane_ < pivots_) {
      const uint2 pass = passes_[own_slot_ / 32];
      mine_.at = pass.x + own_slot_ % 32 * 16;
      mine_.columns = below_ & ~((1u << pass.y / kTileBytes * kSize) - 1);
      if (static_cast<int>(lane_) == w_.k_max - 1) {
        mine_.columns &= below_ >> 1;
        mine_.beside = beside_[own_slot_];
      }
      index = index_[own_slot_];
    }
    this->Finish(
        row, end, index,
        [&](unsigned& kept) {
          return mine_.template Solve<true>(tiles_, lane_, static_cast<int>(pivots_),
                                            w_.post_filter, psi_, kept);
        },
        [&](uint32_t p) { return passes_[p].y / kTileBytes * kSize; });
  }

  char* tiles_;
  // For each pass: the offset of its tiles in bytes from tiles_, as if they began with block 0, and
  // the bytes before the first one.
  uint2* passes_;
  Pick* pick_;
  Real* beside_;
  int blocks_;

  int next_tile_ = 0;
  Real per_noise_ = 0;
  Gradient<Real> held_[kHeld];
  uint32_t own_slot_ = 0;
};

template <class Real, int kHeld, bool kStride, Form kForm>
__global__ void __launch_bounds__(kWarpTeamThreads, sizeof(Real) == 4 && kHeld < 4 ? 7 : 4)
    FsaiGrowKernel(const __grid_constant__ Work<Real> work, int64_t workspace_bytes) {
  extern __shared__ char workspaces[];
  Grower<Real, kHeld, kStride, kForm>(work, workspaces + threadIdx.x / 32 * workspace_bytes).Run();
}

}  // namespace spaid::cuda::fsai
