// Makes one row of G by a warp, or by a block: any row; grow_kernel.h has the usual ones.
//
// Greedy Cholesky: A[P,P] = L Lᵀ grows by a row and a column with each index that joins P, in the
// order in which they join. Every candidate j (a neighbour of P or of i) keeps the row that it
// would have in L: L_jt = (a_j,p_t − Σ_u<t L_ju L_p_t,u) / √s_t, s_t the pivot. A new index p needs
// one such column for all candidates, a dense product, and then the gradient is updated by one more
// product: y_j = a_ji + (A g̃)_j changes by L_jk z_k, with z_k = −y_p / √s_k, and ψ by −z_k². An
// index that is no candidate has a zero row in L and y = 0, so a candidate that comes later begins
// with zeros, and no row of A is read twice. g̃ itself is solved for once, in the end, from Lᵀ g̃ =
// z. On a given pattern the candidates are the pattern.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/fsai/cuda/row_parts.h"

namespace spaid::cuda::fsai {

inline constexpr int32_t kNobody = -1;
inline constexpr int kBlockWarps = kBlockThreads / 32;

// Memory shared by the warps of a block that makes one row.
template <class Bits>
struct BlockShared {
  Best<Bits> best[kBlockWarps];
  int32_t count, next_tile, slot, fits;
  int64_t row;
  double diagonal;
};

template <class Real, Team kTeam, bool kFew, bool kGrow, Form kForm>
class RowMaker {
  static constexpr bool kColumn = kForm == Form::kColumn;
  static_assert(kGrow || !kColumn);
  static constexpr bool kWarp = kTeam == fsai::Team::kWarp;
  static constexpr int kWarps = kWarp ? 1 : kBlockWarps;
  static constexpr int kSize = Vector<Real>::kSize;
  using Slot = std::conditional_t<kTeam == fsai::Team::kGlobal, uint32_t, uint16_t>;
  using Key = typename Traits<Real>::Key;
  using Bits = typename Key::Bits;
  using Shared = BlockShared<Bits>;

 public:
  __device__ RowMaker(const Work<Real>& work, char* workspace, Shared* shared)
      : w_(work),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(kWarp ? 0 : static_cast<int>(threadIdx.x) / 32),
        thread_(kWarp ? lane_ : static_cast<int>(threadIdx.x)) {
    const Layout at = LayOut<Real, Slot>(w_.shape, w_.per_step, kFew);
    tiles_ = reinterpret_cast<Vector<Real>*>(workspace + at.tiles);
    yq_ = reinterpret_cast<Gradient<Real>*>(workspace + at.yq);
    c_ = reinterpret_cast<Real*>(workspace + at.c);
    history_ = reinterpret_cast<double*>(workspace + at.history);
    sums_ = reinterpret_cast<int64_t*>(workspace + at.sums);
    z_ = reinterpret_cast<Real*>(workspace + at.z);
    index_ = reinterpret_cast<int32_t*>(workspace + at.index);
    passes_ = reinterpret_cast<int2*>(workspace + at.passes);
    pivot_rows_ = reinterpret_cast<int2*>(workspace + at.pivot_rows);
    pivot_index_ = reinterpret_cast<int32_t*>(workspace + at.pivot_index);
    picks_ = reinterpret_cast<int2*>(workspace + at.picks);
    keys_ = reinterpret_cast<int32_t*>(workspace + at.table);
    slots_ = reinterpret_cast<Slot*>(keys_ + w_.shape.table);
  }

  __device__ void Run() {
    for (int t = thread_; t < w_.k_max + 2; t += kWarps * 32) sums_[t] = 0;
    Sync();
    uint32_t turn = Take();
    while (turn < static_cast<uint32_t>(w_.count)) {
      const uint32_t next = kWarp ? Take() : 0;
      const int64_t row =
          w_.rows != nullptr ? w_.rows[turn] : w_.first + static_cast<int64_t>(turn);
      const bool fits = Make(row);
      if (warp_ == 0) {
        if (fits) {
          Finish(row);
        } else if (lane_ == 0) {
          w_.overflow[atomicAdd(w_.overflow_count, 1u)] = static_cast<int32_t>(row);
        }
        if (w_.taken != nullptr && lane_ == 0) {
          w_.taken[turn] = fits ? make_int2(count_, next_tile_) : make_int2(0, 0);
        }
      }
      Sync();
      turn = kWarp ? next : Take();
    }
    for (int t = thread_; t < w_.k_max + 2; t += kWarps * 32) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&w_.log_sums[t]),
                static_cast<unsigned long long>(sums_[t]));
    }
    if (lane_ == 0 && warp_ == 0) {
      atomicAdd(w_.products, static_cast<unsigned long long>(products_));
    }
  }

 private:
  __device__ static void Sync() {
    if (kWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  __device__ uint32_t Take() {
    uint32_t turn = 0;
    if (thread_ == 0) turn = atomicAdd(w_.queue, 1u);
    if (kWarp) return __shfl_sync(kAllLanes, turn, 0);
    if (thread_ == 0) shared_->row = turn;
    __syncthreads();
    turn = static_cast<uint32_t>(shared_->row);
    __syncthreads();
    return turn;
  }

  // Allocates tiles and slots of the passes up to `count_` candidates, all zero. Called by one
  // warp.
  __device__ bool OpenPasses(int block, int blocks) {
    for (; open_ * kPassSlots < count_; ++open_) {
      const int end = kGrow ? blocks : min(blocks, (open_ + 1) * kPassSlots / kSize);
      const int added = max(end - block, 0);
      if (next_tile_ + added > w_.shape.tiles) return false;
      if (lane_ == 0) passes_[open_] = make_int2((next_tile_ - block) * kTileVectors, block);
      const Vector<Real> zeros{};
      for (int b = 0; b < added; ++b) tiles_[(next_tile_ + b) * kTileVectors + lane_] = zeros;
      const int slot = open_ * kPassSlots + lane_;
      yq_[slot] = {};
      c_[slot] = 0;
      next_tile_ += added;
    }
    return true;
  }

  __device__ uint32_t PlaceOf(int32_t index) const {
    return static_cast<uint32_t>(index) * 0x9e3779b1u >> (32 - log_table_);
  }

  // Finds the slot of `index`, or, where there is none, adds one (`kAdd`) or returns −1. Called by
  // one warp, all lanes with different indices; `wanted`: whether this lane asks. Sets `fits_` to
  // false where the workspace is full.
  template <bool kAdd>
  __device__ int Find(int32_t index, bool wanted) {
    const auto mask = static_cast<uint32_t>(w_.shape.table - 1);
    uint32_t place = PlaceOf(index);
    bool open = wanted, added = false, found = false;
    while (__any_sync(kAllLanes, open)) {
      int32_t key = open ? keys_[place] : 0;
      if (kAdd) {
        // Among lanes that want one empty place, the one whose index is read back gets it.
        const bool empty = open && key == kNobody;
        if (empty) keys_[place] = index;
        __syncwarp();
        if (empty) key = keys_[place];
        added = added || (empty && key == index);
      }
      if (open) {
        found = key == index;
        open = !found && (kAdd || key != kNobody);
        if (!found) place = (place + 1) & mask;
      }
    }
    if (kAdd) {
      const unsigned newcomers = __ballot_sync(kAllLanes, added);
      const int slot = count_ + __popc(newcomers & ((1u << lane_) - 1));
      count_ += __popc(newcomers);
      if (count_ > w_.shape.slots) {
        fits_ = false;
        return -1;
      }
      if (added) {
        slots_[place] = static_cast<Slot>(slot);
        index_[slot] = index;
        return slot;
      }
    }
    return found ? static_cast<int>(slots_[place]) : -1;
  }

  // Adds row `row` of A, or the row by which column row_ begins (`own`), to c: its entries left of
  // row_, or all; new candidates get slots. Called by one warp. Returns the row's diagonal entry,
  // and its slot.
  __device__ Real Scatter(int64_t row, bool own, int block, int blocks, int& slot) {
    const int64_t below = kColumn ? w_.n : row_;
    int length = 0;
    const Entry<Real>* const entries =
        kColumn && own ? OwnOf(w_, row, length) : RowOf(w_, row, length);
    Real diagonal = 0;
    Entry<Real> nothing{};
    nothing.index = static_cast<int32_t>(w_.n);
    Entry<Real> next = lane_ < length ? entries[lane_] : nothing;
    for (int begin = 0; begin < length; begin += 32) {
      const Entry<Real> entry = next;
      // Loaded while this one is looked up.
      if (begin + 32 < length)
        next = begin + 32 + lane_ < length ? entries[begin + 32 + lane_] : nothing;
      const int at = Find<kGrow>(entry.index, entry.index < below);
      if (kGrow && (!fits_ || !OpenPasses(block, blocks))) {
        fits_ = false;
        return 0;
      }
      if (begin == 0) {
        diagonal = __shfl_sync(kAllLanes, entry.value, 0);
        slot = __shfl_sync(kAllLanes, at, 0);
      }
      if (kGrow) __syncwarp();
      if (at >= 0) c_[at] = entry.value;
    }
    return diagonal;
  }

  __device__ static void Consider(Best<Bits>& best, Bits bits, int32_t index, int slot) {
    if (bits > best.bits || (bits == best.bits && index < best.index)) best = {bits, index, slot};
  }

  // The team's best of its threads' bests.
  __device__ Best<Bits> BestOf(Best<Bits> best) const {
    best = BestOfWarp(best);
    if (kWarp) return best;
    if (lane_ == 0) shared_->best[warp_] = best;
    __syncthreads();
    best = lane_ < kWarps ? shared_->best[lane_] : Best<Bits>{0, 0, 0};
    best = BestOfWarp(best);
    __syncthreads();
    return best;
  }
  __device__ static Best<Bits> BestOfWarp(Best<Bits> best) {
    const Bits most = Key::Max(best.bits);
    const auto own = static_cast<uint32_t>(best.bits == most ? best.index : 0x7fffffff);
    const uint32_t lowest = __reduce_min_sync(kAllLanes, own);
    const unsigned has = __ballot_sync(kAllLanes, own == lowest);
    return {most, static_cast<int32_t>(lowest),
            __shfl_sync(kAllLanes, best.slot, __ffs(static_cast<int>(has)) - 1)};
  }

  // The best one after `last`.
  __device__ Best<Bits> NextBest(const Best<Bits>& last) const {
    Best<Bits> best{0, 0, 0};
    for (int slot = thread_; slot < count_; slot += kWarps * 32) {
      const Bits bits = Key::Of(yq_[slot].y);
      if (bits > last.bits || (bits == last.bits && index_[slot] <= last.index)) continue;
      Consider(best, bits, index_[slot], slot);
    }
    return BestOf(best);
  }

  // Chooses the indices of the next step into picks_; returns how many. `pick`: the first. `limit`:
  // pivots of the row, at most.
  __device__ int Choose(Best<Bits> pick, int limit) {
    int picked = 0;
    const int most = kColumn ? min(w_.per_step, limit - pivots_) : w_.per_step;
    for (int t = 0; t < most && pick.bits != 0; ++t) {
      int unused = 0;
      if (!Noise(yq_[pick.slot].y, RowOf(w_, pick.index, unused)[0].value)) {
        if (thread_ == 0) picks_[picked] = make_int2(pick.index, pick.slot);
        ++picked;
      }
      if (t + 1 < most) pick = NextBest(pick);
    }
    Sync();
    return picked;
  }

  // Makes L, z, ψ; false: the workspace is full.
  __device__ bool Make(int64_t row) {
    row_ = row;
    const int32_t* initial = nullptr;
    int initials = 0;
    if (w_.initial_ptr != nullptr) {
      const int64_t begin = w_.initial_ptr[row];
      initial = w_.initial_idx + begin;
      initials = static_cast<int>(w_.initial_ptr[row + 1] - begin) - (kColumn ? 0 : 1);
    } else if (kColumn) {
      initials = 1;
    }
    // No row has more entries below the diagonal than rows before it, no column more than rows.
    int limit = 0;
    if constexpr (kColumn) {
      const int64_t grown = initials + int64_t{w_.k_max} * w_.per_step;
      limit = static_cast<int>(min(
          max(static_cast<int64_t>(initials), min(grown, static_cast<int64_t>(w_.most))), w_.n));
    } else {
      limit = min(initials + (kGrow ? w_.k_max * w_.per_step : 0), static_cast<int>(row));
    }
    // The last pivot needs no column of L.
    const int blocks = (limit - 1 + kSize - 1) / kSize;
    count_ = next_tile_ = open_ = 0;
    fits_ = limit <= w_.shape.pivots;
    pivots_ = steps_ = 0;
    initials_ = initials;
    initial_ = initial;
    not_spd_ = converged_ = false;
    if (!fits_) return false;
    log_table_ = 31 - __clz(w_.shape.table);
    {
      auto* const keys = reinterpret_cast<int4*>(keys_);
      for (int t = thread_; t < w_.shape.table / 4; t += kWarps * 32) {
        keys[t] = make_int4(kNobody, kNobody, kNobody, kNobody);
      }
    }
    Sync();
    Real diagonal = 0;
    int unused = 0;
    if (warp_ == 0) {
      if (!kGrow) AddPattern(initial, initials, blocks);
      if (fits_) diagonal = Scatter(row, true, 0, blocks, unused);
    }
    if (!Publish(diagonal, unused)) return false;
    // With the diagonal alone the gradient is A's row.
    Best<Bits> best{0, 0, 0};
    for (int slot = thread_; slot < count_; slot += kWarps * 32) {
      const Real y = c_[slot];
      c_[slot] = 0;
      yq_[slot].y = y;
      Consider(best, Key::Of(y), index_[slot], slot);
    }
    Sync();
    a_ii_ = psi_ = static_cast<double>(diagonal);
    least_psi_ = 16 * Traits<Real>::kRoundoff * a_ii_;
    wanted_psi_ = w_.epsilon * a_ii_;
    if constexpr (kColumn) wanted_psi_ = fmax(wanted_psi_, least_psi_);
    per_noise_ = InverseRoot(diagonal) / (8 * Traits<Real>::kRoundoff);
    if (thread_ == 0) history_[0] = psi_;
    int picked = 0, turn = 0;
    double enough_psi = 0;  // a step that leaves more is the last
    while (true) {
      int32_t index = 0;
      int slot = -1;
      if (pivots_ < initials) {
        index = kColumn && initial == nullptr ? static_cast<int32_t>(row) : initial[pivots_];
        if (!kGrow) slot = pivots_;
      } else {
        if (!kGrow) break;
        if (turn == picked) {
          // A step is over, or the initial pattern.
          if (picked > 0) ++steps_;
          if (thread_ == 0) history_[steps_] = psi_;
          converged_ = psi_ <= wanted_psi_;
          if (converged_ || steps_ == w_.k_max || (picked > 0 && psi_ > enough_psi)) break;
          enough_psi = (1 - w_.min_gain) * psi_;
          Best<Bits> pick = BestOf(best);
          if (pick.bits == 0) break;
          turn = 0;
          if (w_.per_step == 1) {
            picked = 1;
            index = pick.index;
            slot = pick.slot;
          } else {
            picked = Choose(pick, limit);
            if (picked == 0) break;
          }
        }
        if (w_.per_step > 1) {
          index = picks_[turn].x;
          slot = picks_[turn].y;
        }
        ++turn;
      }
      best = {0, 0, 0};
      const int before = pivots_;
      if (!Pivot(index, slot, limit, blocks, best)) return false;
      if constexpr (kColumn) {
        if (turn == 0 && thread_ == 0) history_[0] = psi_;
      }
      if (pivots_ > before) continue;
      if (turn > 1) {
        ++steps_;
        if (thread_ == 0) history_[steps_] = psi_;
      }
      break;
    }
    Sync();
    return true;
  }

  // Passes warp 0's findings to all warps.
  __device__ bool Publish(Real& diagonal, int& slot) {
    if (kWarp) {
      __syncwarp();
      return fits_;
    }
    if (thread_ == 0) {
      shared_->count = count_;
      shared_->next_tile = next_tile_;
      shared_->slot = slot;
      shared_->fits = fits_ ? 1 : 0;
      shared_->diagonal = static_cast<double>(diagonal);
    }
    __syncthreads();
    count_ = shared_->count;
    next_tile_ = shared_->next_tile;
    slot = shared_->slot;
    fits_ = shared_->fits != 0;
    diagonal = static_cast<Real>(shared_->diagonal);
    __syncthreads();
    return fits_;
  }

  // Gives slot t to the t-th index of the pattern. Called by one warp.
  __device__ void AddPattern(const int32_t* initial, int initials, int blocks) {
    if (initials > w_.shape.slots) {
      fits_ = false;
      return;
    }
    const auto mask = static_cast<uint32_t>(w_.shape.table - 1);
    for (int begin = 0; begin < initials; begin += 32) {
      const int slot = begin + lane_;
      bool open = slot < initials;
      const int32_t index = open ? initial[slot] : 0;
      uint32_t place = PlaceOf(index);
      if (open) index_[slot] = index;
      while (__any_sync(kAllLanes, open)) {
        const bool empty = open && keys_[place] == kNobody;
        if (empty) keys_[place] = index;
        __syncwarp();
        if (empty && keys_[place] == index) {
          slots_[place] = static_cast<Slot>(slot);
          open = false;
        }
        if (open) place = (place + 1) & mask;
      }
    }
    count_ = initials;
    fits_ = OpenPasses(0, blocks);
    __syncwarp();
  }

  // Adds `index` to P; slot −1: it may not be a candidate yet. `best`: this thread's best candidate
  // afterwards. False: the workspace is full.
  __device__ bool Pivot(int32_t index, int slot, int limit, int blocks, Best<Bits>& best) {
    const int k = pivots_;
    const bool last = slot >= 0 && k + 1 == limit;
    Real diagonal = 0;
    if (last) {
      int unused = 0;
      diagonal = RowOf(w_, index, unused)[0].value;
    } else {
      if (warp_ == 0) diagonal = Scatter(index, false, k / kSize, blocks, slot);
      if (!Publish(diagonal, slot)) return false;
    }
    const Gradient<Real> own = yq_[slot];
    const Real pivot = diagonal - own.q;
    const Real root = InverseRoot(pivot);
    const Real z = -own.y * root;
    const double psi = fma(static_cast<double>(-z), static_cast<double>(z), psi_);
    // Also false for an infinite or NaN pivot.
    constexpr Real kLimit = 16 * Traits<Real>::kRoundoff;
    if (!(pivot > kLimit * diagonal && root > 0 && (kColumn || psi > least_psi_))) {
      not_spd_ = true;
      return true;
    }
    // With several a step Choose has tested this.
    if (kGrow && w_.per_step == 1 && k >= initials_ && Noise(own.y, diagonal)) return true;
    psi_ = kColumn ? fmax(psi, least_psi_) : psi;
    const int2 pass = passes_[slot / kPassSlots];
    const int2 place = make_int2(pass.x + slot % kPassSlots, pass.y);
    if (kFew) {
      if (lane_ == k) {
        own_.z = z;
        own_.root = root;
        own_.at = static_cast<uint32_t>(16 * place.x);
      }
    } else if (thread_ == 0) {
      z_[k] = z;
      z_[w_.shape.pivots + k] = root;
      pivot_rows_[k] = place;
    }
    if (thread_ == 0) pivot_index_[k] = index;
    ++pivots_;
    if (k + 1 == limit) return true;
    Sync();
    const int end = (k + kSize - 1) / kSize * kTileVectors, own_block = k / kSize * kTileVectors;
    const Vector<Real>* const pivot_row = tiles_ + place.x;
    for (int p = (kGrow ? 0 : (k + 1) / kPassSlots) + warp_; p * kPassSlots < count_; p += kWarps) {
      const int2 tile = passes_[p];
      const int at = p * kPassSlots + lane_;
      Real sum[2] = {c_[at], 0};
      c_[at] = 0;
      Gradient<Real> yq = yq_[at];
      const int32_t index_at = kGrow ? index_[at] : 0;
      Vector<Real>* const column = tiles_ + tile.x + lane_;
      const int first = max(tile.y, place.y) * kTileVectors;
#pragma unroll 2
      for (int b = first; b < end; b += kTileVectors) {
        const Vector<Real> x = pivot_row[b], v = column[b];
#pragma unroll
        for (int t = 0; t < kSize; ++t) sum[t % 2] -= x.x[t] * v.x[t];
      }
      const Real l = (sum[0] + sum[1]) * root;
      yq.y = yq.q < static_cast<Real>(INFINITY) ? yq.y + l * z : 0;
      yq.q += l * l;
      if (at == slot) {
        yq = {0, static_cast<Real>(INFINITY)};  // its row of L is being read
      } else {
        column[own_block].x[k % kSize] = l;
      }
      yq_[at] = yq;
      if (kGrow) Consider(best, Key::Of(yq.y), index_at, at);
    }
    Sync();
    return true;
  }

  // Whether y is no more than rounding leaves of one that is zero.
  __device__ bool Noise(Real y, Real diagonal) const {
    const Real size = y * per_noise_;
    return size * size <= diagonal;
  }

  // L_kt of the pivot at that place, k > t.
  __device__ Real FactorAt(int2 place, int t) const {
    const int b = t / kSize;
    return b >= place.y ? tiles_[place.x + b * kTileVectors].x[t % kSize] : 0;
  }

  // Solves Lᵀ g̃ = z, writes the row. Called by one warp.
  __device__ void Finish(int64_t row) {
    if (not_spd_ && lane_ == 0) {
      atomicAdd(w_.not_spd_count, 1u);
      atomicMin(w_.first_not_spd, static_cast<int32_t>(row));
    }
    if (converged_ && lane_ == 0) atomicAdd(w_.converged_count, 1u);
    if constexpr (kColumn) {
      FinishColumn(row);
    } else if constexpr (kFew) {
      FinishFew(row);
    } else {
      FinishMany(row);
    }
    int64_t* record = nullptr;
    if (w_.records != nullptr) {
      record = w_.records + int64_t{w_.record_of[row - w_.first_out]} * (w_.k_max + 4);
    }
    for (int t = lane_; t < w_.k_max + 2; t += 32) {
      const double psi = t <= w_.k_max ? history_[min(t, steps_)] : psi_;
      const int64_t part = __double2ll_rn(log(psi / a_ii_) * w_.log_scale);
      sums_[t] += part;
      if (record != nullptr) record[t] = part;
    }
    if (lane_ == 0) w_.psi_ratio[row] = psi_ / a_ii_;
    unsigned products = 0;
    for (int p = lane_; p * kPassSlots < count_; p += 32) {
      const int from = kGrow ? passes_[p].y * kSize : 0;
      const int to = kGrow ? pivots_ : min(pivots_, (p + 1) * kPassSlots);
      products += static_cast<unsigned>((to - from) * (to - from) / 2);
    }
    products = __reduce_add_sync(kAllLanes, products);
    products_ += products;
    if (record != nullptr && lane_ == 0) {
      record[w_.k_max + 2] = products;
      record[w_.k_max + 3] = (not_spd_ ? kRecordNotSpd : 0) | (converged_ ? kRecordConverged : 0);
    }
  }

  __device__ void FinishColumn(int64_t row) {
    const int64_t out = OutOf(w_, row);
    for (int t = lane_; t < pivots_; t += 32) {
      const int32_t own = pivot_index_[t];
      int rank = 0;
      for (int u = 0; u < pivots_; ++u) rank += pivot_index_[u] < own ? 1 : 0;
      w_.out_idx[out + rank] = own;
    }
    if (lane_ == 0) w_.out_count[row - w_.first_out] = pivots_;
  }

  __device__ void FinishFew(int64_t row) {
    unsigned kept = 0;
    const Real g = own_.template Solve<false>(reinterpret_cast<const char*>(tiles_),
                                              static_cast<uint32_t>(lane_), pivots_, w_.post_filter,
                                              psi_, kept);
    // On a pattern the entries without a pivot stay, as zeros, unless there is a filter.
    if (w_.post_filter == 0) kept = initials_ == 32 ? kAllLanes : (1u << initials_) - 1;
    const int32_t index = lane_ < initials_ ? initial_[lane_] : 0;
    WriteFew(w_, row, static_cast<uint32_t>(lane_), kept, __popc(kept & ((1u << lane_) - 1)), index,
             g, psi_);
  }

  __device__ void FinishMany(int64_t row) {
    const int m = pivots_;
    Real *const g = z_, *const root = z_ + w_.shape.pivots, *const z = root + w_.shape.pivots;
    for (int t = lane_; t < m; t += 32) z[t] = g[t];
    __syncwarp();
    for (int k = m - 1; k >= 0; --k) {
      const Real of_k = g[k] * root[k];
      const int2 place = pivot_rows_[k];
      __syncwarp();
      for (int t = lane_; t < k; t += 32) g[t] -= FactorAt(place, t) * of_k;
      if (lane_ == 0) g[k] = of_k;
      __syncwarp();
    }
    double least = 0;
    if (w_.post_filter > 0) {
      double norm = 0;
      for (int t = lane_; t < m; t += 32) {
        norm += static_cast<double>(g[t]) * static_cast<double>(g[t]);
      }
      norm = SumOfWarp(norm);
      least = w_.post_filter * sqrt(1 + norm);
      // ψ with the entries left: ψ + ‖Lᵀ g̃ − z‖². A pivot that is dropped gets the index n.
      for (int t = lane_; t < m; t += 32) {
        if (fabs(static_cast<double>(g[t])) < least) {
          g[t] = 0;
          pivot_index_[t] = static_cast<int32_t>(w_.n);
        }
        z[t] -= g[t] / root[t];
      }
      __syncwarp();
      for (int k = m - 1; k > 0; --k) {
        const Real of_k = g[k];
        const int2 place = pivot_rows_[k];
        for (int t = lane_; t < k; t += 32) z[t] -= FactorAt(place, t) * of_k;
      }
      double error = 0;
      for (int t = lane_; t < m; t += 32) {
        error += static_cast<double>(z[t]) * static_cast<double>(z[t]);
      }
      psi_ += SumOfWarp(error);
    }
    const double scale = rsqrt(psi_);
    const int64_t out = OutOf(w_, row);
    int entries = 0;
    // On a pattern the entries without a pivot stay, as zeros, unless there is a filter.
    const bool all = !kGrow && w_.post_filter == 0;
    const int count = all ? initials_ : m;
    for (int begin = 0; begin < count; begin += 32) {
      const int t = begin + lane_;
      int32_t own = t < m ? pivot_index_[t] : static_cast<int32_t>(w_.n);
      if (all && t < count) own = initial_[t];
      const bool keep = own < static_cast<int32_t>(w_.n);
      const unsigned kept = __ballot_sync(kAllLanes, keep);
      int rank = entries + __popc(kept & ((1u << lane_) - 1));
      if (kGrow) {
        rank = 0;
        for (int u = 0; u < m; ++u) rank += pivot_index_[u] < own ? 1 : 0;
      }
      if (keep) {
        w_.out_idx[out + rank] = own;
        w_.out_values[out + rank] =
            t < m ? static_cast<Real>(static_cast<double>(g[t]) * scale) : 0;
      }
      entries += __popc(kept);
    }
    if (lane_ == 0) {
      w_.out_idx[out + entries] = static_cast<int32_t>(row);
      w_.out_values[out + entries] = static_cast<Real>(scale);
      w_.out_count[row - w_.first_out] = entries + 1;
    }
  }

  const Work<Real>& w_;
  Shared* const shared_;
  const int lane_, warp_, thread_;
  Vector<Real>* tiles_;
  Gradient<Real>* yq_;
  Real *c_, *z_;
  double* history_;
  int64_t* sums_;
  int32_t *index_, *pivot_index_;
  int2 *passes_, *pivot_rows_, *picks_;
  int32_t* keys_;
  Slot* slots_;

  int64_t row_ = 0;
  const int32_t* initial_ = nullptr;
  int initials_ = 0;
  int count_ = 0, next_tile_ = 0, open_ = 0, log_table_ = 0, pivots_ = 0, steps_ = 0;
  bool fits_ = true, not_spd_ = false, converged_ = false;
  double a_ii_ = 0, psi_ = 0, least_psi_ = 0, wanted_psi_ = 0;
  Real per_noise_ = 0;
  uint64_t products_ = 0;  // products with L, of 32 candidates each
  FewPivots<Real> own_;
};

template <class Real, Team kTeam, bool kFew, bool kGrow, Form kForm>
__global__ void __launch_bounds__(kTeam == Team::kWarp ? kWarpTeamThreads : kBlockThreads,
                                  kTeam == Team::kWarp && sizeof(Real) == 4 ? 6 : 4)
    FsaiRowsKernel(const __grid_constant__ Work<Real> work, int64_t workspace_bytes) {
  extern __shared__ char workspaces[];
  using Bits = typename Traits<Real>::Key::Bits;
  if constexpr (kTeam == Team::kWarp) {
    RowMaker<Real, kTeam, kFew, kGrow, kForm>(work, workspaces + threadIdx.x / 32 * workspace_bytes,
                                              nullptr)
        .Run();
  } else {
    __shared__ BlockShared<Bits> shared;
    char* const workspace =
        kTeam == Team::kBlock ? workspaces : work.workspaces + blockIdx.x * workspace_bytes;
    RowMaker<Real, kTeam, kFew, kGrow, kForm>(work, workspace, &shared).Run();
  }
}

}  // namespace spaid::cuda::fsai
