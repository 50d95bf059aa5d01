// One row of G, grown from the diagonal by one index a step to at most 32 entries, by a warp: what
// rows_kernel_cuda.h does, with as few instructions a step as there can be, in as little room.
//
// The room has no column of A for a new pivot: its entries go where that column of L will be, and
// −1 where the pivot's own row of L has it, so that the product with that row is the whole of
// Σ_u L_ju L_pu − a_jp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/fsai/cuda/row_parts_cuda.h"

namespace spaid::cuda::fsai {

// kHeld: gradients of so many passes are in registers; 0: all in the room, and any number of them.
template <class Real, int kHeld>
class Grower {
  static constexpr int kSize = Vector<Real>::kSize;
  // Entries of A that a lane looks up at once.
  static constexpr int kEntries = kHeld > 0 ? 1 : 3;
  static constexpr uint32_t kEmpty = 0xffff;
  static constexpr Real kInfinity = static_cast<Real>(INFINITY);
  using Key = typename Traits<Real>::Key;
  using Bits = typename Key::Bits;
  struct alignas(16) Pick {
    Gradient<Real> gradient;
    int32_t slot;
  };

 public:
  __device__ Grower(const Work<Real>& work, char* room)
      : w_(work), lane_(static_cast<int>(threadIdx.x) % 32) {
    const GrowLayout at = LayOutGrow<Real>(w_.shape);
    tiles_ = reinterpret_cast<Vector<Real>*>(room + at.tiles);
    yq_ = reinterpret_cast<Gradient<Real>*>(room + at.yq);
    index_ = reinterpret_cast<int32_t*>(room + at.index);
    passes_ = reinterpret_cast<int2*>(room + at.passes);
    pick_ = reinterpret_cast<Pick*>(room + at.pick);
    table_ = reinterpret_cast<uint16_t*>(room + at.table);
    table_bits_ = 31 - __clz(GrowTable(w_.shape));
  }

  __device__ void Run() {
    uint32_t turn = Take();
    while (turn < static_cast<uint32_t>(w_.count)) {
      const uint32_t next = Take();
      const int64_t row =
          w_.rows != nullptr ? w_.rows[turn] : w_.first + static_cast<int64_t>(turn);
      const bool fits = Make(row);
      if (fits) {
        Finish(row);
      } else if (lane_ == 0) {
        w_.overflow[atomicAdd(w_.overflow_count, 1u)] = static_cast<int32_t>(row);
      }
      if (w_.taken != nullptr && lane_ == 0) {
        w_.taken[turn] = fits ? make_int2(count_, next_tile_) : make_int2(0, 0);
      }
      __syncwarp();
      turn = next;
    }
    if (lane_ < w_.k_max + 2) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&w_.log_sums[lane_]),
                static_cast<unsigned long long>(log_sum_));
    }
    if (lane_ == 0) atomicAdd(w_.products, static_cast<unsigned long long>(products_));
  }

 private:
  __device__ uint32_t Take() {
    uint32_t turn = 0;
    if (lane_ == 0) turn = atomicAdd(w_.queue, 1u);
    return __shfl_sync(kAllLanes, turn, 0);
  }

  // Makes L, z, ψ; false: no room.
  __device__ bool Make(int64_t row) {
    row_ = static_cast<int32_t>(row);
    count_ = next_tile_ = open_ = pivots_ = 0;
    not_spd_ = converged_ = false;
    // The last pivot needs no column; A's own row needs one.
    blocks_ = max((w_.k_max - 1 + kSize - 1) / kSize, 1);
    {
      auto* const table = reinterpret_cast<int4*>(table_);
      for (int t = lane_; t < GrowTable(w_.shape) / 8; t += 32)
        table[t] = make_int4(-1, -1, -1, -1);
    }
#pragma unroll
    for (int p = 0; p < kHeld; ++p) held_[p] = {};
    __syncwarp();
    int length = 0;
    const Entry<Real>* const entries = RowOf(w_, row, length);
    Entry<Real> first[kEntries];
    Fetch(entries, length, 0, first);
    const Real diagonal = __shfl_sync(kAllLanes, first[0].value, 0);
    if (!Scatter(entries, length, first, 0)) return false;
    // The diagonal alone: the gradient is A's row.
    best_ = {0, 0, 0};
    const auto begin = [&](int p) -> Real {
      Real& x = tiles_[passes_[p].x + lane_].x[0];
      const Real y = x;
      x = 0;
      return y;
    };
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        if (p < open_) held_[p].y = begin(p);
      }
    } else {
      for (int p = 0; p < open_; ++p) {
        const int at = p * kPassSlots + lane_;
        yq_[at].y = begin(p);
        Consider(Key::Of(yq_[at].y), index_[at], at);
      }
    }
    __syncwarp();
    a_ii_ = psi_ = static_cast<double>(diagonal);
    least_psi_ = 16 * Traits<Real>::kRoundoff * a_ii_;
    wanted_psi_ = w_.epsilon * a_ii_;
    per_noise_ = InverseRoot(diagonal) / (8 * Traits<Real>::kRoundoff);
    own_psi_ = psi_;
    while (true) {
      converged_ = psi_ <= wanted_psi_;
      if (converged_ || pivots_ == w_.k_max) break;
      int32_t index = 0;
      if (!Choose(index)) break;
      const int before = pivots_;
      if (!Pivot(index)) return false;
      if (pivots_ == before) break;
      // Of lane t: after t steps.
      if (lane_ >= pivots_) own_psi_ = psi_;
    }
    __syncwarp();
    return true;
  }

  // The largest |y|, of those the lowest index; what there is of it into *pick_, which is to be
  // read behind the next barrier. False: nothing to choose.
  __device__ bool Choose(int32_t& index) {
    constexpr int32_t kNone = 0x7fffffff;
    if constexpr (kHeld > 0) {
      Bits most = 0;
#pragma unroll
      for (int p = 0; p < kHeld; ++p) most = max(most, Key::Of(held_[p].y));
      most = Key::Max(most);
      if (most == 0) return false;
      int32_t own[kHeld];
      int32_t lowest = kNone;
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        own[p] = kNone;
        if (Key::Of(held_[p].y) == most) own[p] = index_[p * kPassSlots + lane_];
        lowest = min(lowest, own[p]);
      }
      index = static_cast<int32_t>(__reduce_min_sync(kAllLanes, static_cast<uint32_t>(lowest)));
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        if (own[p] == index) *pick_ = {held_[p], p * kPassSlots + lane_};
      }
    } else {
      const Bits most = Key::Max(best_.bits);
      if (most == 0) return false;
      const int32_t own = best_.bits == most ? best_.index : kNone;
      index = static_cast<int32_t>(__reduce_min_sync(kAllLanes, static_cast<uint32_t>(own)));
      if (own == index) *pick_ = {yq_[best_.slot], best_.slot};
    }
    return true;
  }

  __device__ void Consider(Bits bits, int32_t index, int slot) {
    if (bits > best_.bits || (bits == best_.bits && index < best_.index)) {
      best_ = {bits, index, slot};
    }
  }

  // This lane's entries from `begin` on; past the end their index is n.
  __device__ void Fetch(const Entry<Real>* entries, int length, int begin,
                        Entry<Real> (&entry)[kEntries]) const {
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      const int at = begin + 32 * e + lane_;
      entry[e] = {};
      entry[e].index = static_cast<int32_t>(w_.n);
      if (at < length) entry[e] = entries[at];
    }
  }

  // A row of A, where column `k` of L will be; new candidates get slots. `first`: the first of its
  // entries. False: no room.
  __device__ bool Scatter(const Entry<Real>* entries, int length,
                          const Entry<Real> (&first)[kEntries], int k) {
    const int block = k / kSize * kTileVectors, t = k % kSize;
    Entry<Real> entry[kEntries];
#pragma unroll
    for (int e = 0; e < kEntries; ++e) entry[e] = first[e];
    // The pivot's own is the row's first.
    if (lane_ == 0) entry[0].value = -1;
    for (int begin = 0;;) {
      int slot[kEntries];
      if (!Find(entry, slot, k / kSize)) return false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (slot[e] >= 0) {
          const int at = passes_[slot[e] / kPassSlots].x + slot[e] % kPassSlots + block;
          tiles_[at].x[t] = entry[e].value;
        }
      }
      begin += 32 * kEntries;
      if (begin >= length) break;
      Fetch(entries, length, begin, entry);
      // They ascend.
      bool any = false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) any = any || entry[e].index < row_;
      if (!__any_sync(kAllLanes, any)) break;
    }
    __syncwarp();
    return true;
  }

  // The slots of those entries that are left of row_, −1 of others. False: no room.
  __device__ bool Find(const Entry<Real> (&entry)[kEntries], int (&slot)[kEntries], int block) {
    const uint32_t mask = (1u << table_bits_) - 1;
    uint32_t place[kEntries];
    bool open[kEntries], fresh[kEntries];
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      place[e] = static_cast<uint32_t>(entry[e].index) * 0x9e3779b1u >> (32 - table_bits_);
      open[e] = entry[e].index < row_;
      fresh[e] = false;
      slot[e] = -1;
    }
    bool any = true;
    while (any) {
      any = false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (!open[e]) continue;
        const uint32_t there = table_[place[e]];
        fresh[e] = there == kEmpty;
        const bool found = !fresh[e] && index_[there] == entry[e].index;
        if (found) slot[e] = static_cast<int>(there);
        open[e] = !fresh[e] && !found;
        if (open[e]) place[e] = (place[e] + 1) & mask;
        any = any || open[e];
      }
      any = __any_sync(kAllLanes, any);
    }
    unsigned newcomers = 0;
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      const unsigned of_e = __ballot_sync(kAllLanes, fresh[e]);
      if (fresh[e]) slot[e] = count_ + __popc(of_e & ((1u << lane_) - 1));
      count_ += __popc(of_e);
      newcomers |= of_e;
    }
    if (newcomers == 0) return true;
    if (count_ > w_.shape.slots) return false;
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      if (fresh[e]) index_[slot[e]] = entry[e].index;
    }
    while (true) {
      // Of those that want one empty place, the one whose slot is read back has it.
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (fresh[e]) table_[place[e]] = static_cast<uint16_t>(slot[e]);
      }
      __syncwarp();
      any = false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        fresh[e] = fresh[e] && table_[place[e]] != slot[e];
        any = any || fresh[e];
      }
      if (!__any_sync(kAllLanes, any)) break;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        while (fresh[e] && table_[place[e]] != kEmpty) place[e] = (place[e] + 1) & mask;
      }
      __syncwarp();
    }
    return OpenPasses(block);
  }

  // Tiles, from that block on, of the passes up to count_ candidates, all zero.
  __device__ bool OpenPasses(int block) {
    if (open_ * kPassSlots >= count_) return true;
    const int added = blocks_ - block;
    for (; open_ * kPassSlots < count_; ++open_) {
      if (next_tile_ + added > w_.shape.tiles) return false;
      if (lane_ == 0) passes_[open_] = make_int2((next_tile_ - block) * kTileVectors, block);
      for (int b = 0; b < added; ++b) tiles_[(next_tile_ + b) * kTileVectors + lane_] = {};
      if (kHeld == 0) yq_[open_ * kPassSlots + lane_] = {};
      next_tile_ += added;
    }
    __syncwarp();
    return true;
  }

  // `index` joins P. False: no room.
  __device__ bool Pivot(int32_t index) {
    const int k = pivots_;
    int length = 0;
    const Entry<Real>* const entries = RowOf(w_, index, length);
    const bool last = k + 1 == w_.k_max;
    Entry<Real> first[kEntries];
    Fetch(entries, last ? 1 : length, 0, first);
    __syncwarp();
    const Pick own = *pick_;
    const Real diagonal = __shfl_sync(kAllLanes, first[0].value, 0);
    const Real pivot = diagonal - own.gradient.q;
    const Real root = InverseRoot(pivot);
    const Real z = -own.gradient.y * root;
    const double psi = fma(static_cast<double>(-z), static_cast<double>(z), psi_);
    // An infinite or NaN pivot has no such root, either.
    constexpr Real kLimit = 16 * Traits<Real>::kRoundoff;
    if (!(pivot > kLimit * diagonal && root > 0 && psi > least_psi_)) {
      not_spd_ = true;
      return true;
    }
    // Not more than what rounding leaves of a y that is zero.
    const Real noise = own.gradient.y * per_noise_;
    if (noise * noise <= diagonal) return true;
    if (!last && !Scatter(entries, length, first, k)) return false;
    psi_ = psi;
    const int2 place = [&] {
      const int2 pass = passes_[own.slot / kPassSlots];
      return make_int2(pass.x + own.slot % kPassSlots, pass.y);
    }();
    if (lane_ == k) {
      mine_.z = z;
      mine_.root = root;
      mine_.place = place;
      own_index_ = index;
    }
    ++pivots_;
    if (last) return true;
    best_ = {0, 0, 0};
    if constexpr (kHeld > 0) {
#ifdef SPAID_JOINT
      if (open_ == 1) {
        Column<1>(0, own.slot, place, k, root, z);
      } else if (kHeld == 2 || open_ == 2) {
        Column<2 <= kHeld ? 2 : 1>(0, own.slot, place, k, root, z);
      } else if (kHeld == 3 || open_ == 3) {
        Column<3 <= kHeld ? 3 : 1>(0, own.slot, place, k, root, z);
      } else {
        Column<4 <= kHeld ? 4 : 1>(0, own.slot, place, k, root, z);
      }
#else
#pragma unroll
      for (int p = 0; p < kHeld; ++p) {
        if (p < open_) Column<1>(p, own.slot, place, k, root, z);
      }
#endif
    } else {
      int p = 0;
      for (; p + 4 <= open_; p += 4) Column<4>(p, own.slot, place, k, root, z);
      if (p + 3 == open_) Column<3>(p, own.slot, place, k, root, z);
      if (p + 2 == open_) Column<2>(p, own.slot, place, k, root, z);
      if (p + 1 == open_) Column<1>(p, own.slot, place, k, root, z);
    }
    __syncwarp();
    return true;
  }

  // Column k of L and the gradients of kPasses passes from `pass` on. `slot`, `place`: of the pivot
  // and its row of L.
  template <int kPasses>
  __device__ __forceinline__ void Column(int pass, int slot, int2 place, int k, Real root, Real z) {
    const int own = k / kSize * kTileVectors;
    const Vector<Real>* const pivot_row = tiles_ + place.x;
    Vector<Real>* column[kPasses];
    int first[kPasses];
    Real sum[kPasses][2];
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const int2 tile = passes_[pass + p];
      column[p] = tiles_ + tile.x + lane_;
      first[p] = max(tile.y, place.y) * kTileVectors;
      sum[p][0] = sum[p][1] = 0;
    }
    const auto add = [&](int p, const Vector<Real>& x, int b) {
      const Vector<Real> v = column[p][b];
#pragma unroll
      for (int t = 0; t < kSize; ++t) sum[p][t % 2] -= x.x[t] * v.x[t];
    };
    // Of those that began before the last one.
#pragma unroll
    for (int p = 0; p < kPasses - 1; ++p) {
      for (int b = first[p]; b < first[kPasses - 1]; b += kTileVectors) add(p, pivot_row[b], b);
    }
#pragma unroll 2
    for (int b = first[kPasses - 1]; b <= own; b += kTileVectors) {
      const Vector<Real> x = pivot_row[b];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) add(p, x, b);
    }
#pragma unroll
    for (int p = 0; p < kPasses; ++p) {
      const int at = (pass + p) * kPassSlots + lane_;
      const Real l = (sum[p][0] + sum[p][1]) * root;
      Gradient<Real> yq = kHeld > 0 ? held_[kHeld > 0 ? pass + p : 0] : yq_[at];
      yq.y = yq.q < kInfinity ? yq.y + l * z : 0;
      yq.q += l * l;
      if (at == slot) {
        yq = {0, kInfinity};  // its row of L is being read
      } else {
        column[p][own].x[k % kSize] = l;
      }
      if constexpr (kHeld > 0) {
        held_[pass + p] = yq;
      } else {
        yq_[at] = yq;
        Consider(Key::Of(yq.y), index_[at], at);
      }
    }
  }

  // Solves Lᵀ g̃ = z, writes the row.
  __device__ void Finish(int64_t row) {
    if (not_spd_ && lane_ == 0) {
      atomicAdd(w_.not_spd_count, 1u);
      atomicMin(w_.first_not_spd, row_);
    }
    if (converged_ && lane_ == 0) atomicAdd(w_.converged_count, 1u);
    unsigned kept = 0;
    const Real g = mine_.Solve(tiles_, lane_, pivots_, w_.post_filter, psi_, kept);
    int rank = 0;
    for (int k = 0; k < pivots_; ++k) {
      const int32_t other = __shfl_sync(kAllLanes, own_index_, k);
      rank += (kept >> k & 1) != 0 && other < own_index_ ? 1 : 0;
    }
    WriteFew(w_, row, lane_, kept, rank, own_index_, g, psi_);
    // Of lane k_max + 1: in the end.
    const double psi = lane_ <= w_.k_max ? own_psi_ : psi_;
    log_sum_ += __double2ll_rn(log(psi / a_ii_) * w_.log_scale);
    if (lane_ == 0) w_.psi_ratio[row] = psi_ / a_ii_;
    unsigned products = 0;
    for (int p = lane_; p < open_; p += 32) {
      const int columns = pivots_ - passes_[p].y * kSize;
      products += static_cast<unsigned>(columns * columns / 2);
    }
    products_ += __reduce_add_sync(kAllLanes, products);
  }

  const Work<Real>& w_;
  const int lane_;
  Vector<Real>* tiles_;
  Gradient<Real>* yq_;
  int32_t* index_;
  int2* passes_;
  Pick* pick_;
  uint16_t* table_;
  int table_bits_;

  int32_t row_ = 0;
  int count_ = 0, next_tile_ = 0, open_ = 0, blocks_ = 0, pivots_ = 0;
  bool not_spd_ = false, converged_ = false;
  double a_ii_ = 0, psi_ = 0, least_psi_ = 0, wanted_psi_ = 0;
  Real per_noise_ = 0;
  uint64_t products_ = 0;  // with L, each of 32 candidates
  Gradient<Real> held_[kHeld > 0 ? kHeld : 1];
  Best<Bits> best_{};
  // Lane k has those of the k-th pivot.
  FewPivots<Real> mine_;
  int32_t own_index_ = 0;
  double own_psi_ = 0;
  int64_t log_sum_ = 0;
};

#ifndef SPAID_BLOCKS3
#define SPAID_BLOCKS3 6
#endif
template <class Real, int kHeld>
__global__ void __launch_bounds__(kWarpTeamThreads, kHeld == 0 ? 2
                                                    : kHeld == 3 && sizeof(Real) == 4
                                                        ? SPAID_BLOCKS3
                                                        : 4)
    FsaiGrowKernel(const __grid_constant__ Work<Real> work, int64_t room_bytes) {
  extern __shared__ char rooms[];
  Grower<Real, kHeld>(work, rooms + threadIdx.x / 32 * room_bytes).Run();
}

}  // namespace spaid::cuda::fsai
