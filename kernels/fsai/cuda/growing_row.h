// Base of the two kernels that grow rows of G from the diagonal, one index a step, a warp a row:
// the queue of rows, rows of A, the table of candidates, and the output of a row.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/row_parts.h"

namespace spaid::cuda::fsai {

// kLookUps: entries of A that a lane looks up at once. kStride: rows of A have one length.
// Kernel::OpenPasses(block): allocates tiles for those of count_ candidates that are beyond
// opened_, from that block of columns on; a result other than kNone ends the row. (Passed as a
// function it makes three copies of Find, and rows take 2 to 3 % longer.)
template <class Kernel, class Real, int kLookUps, bool kStride, Form kForm>
class GrowingRow {
 protected:
  static constexpr int kEntries = kLookUps;
  static constexpr uint32_t kSize = Vector<Real>::kSize;
  static constexpr int32_t kNone = 0x7fffffff;
  static constexpr bool kColumn = kForm == Form::kColumn;
  // kGaveUp: the pool that rows share ran out; the row is to be made again.
  enum class End { kNone, kDone, kConverged, kNotSpd, kWorkspaceFull, kGaveUp };
  // A row of A.
  struct RowOfA {
    const Entry<Real>* entries;
    int length;
  };
  using Entries = Entry<Real>[kEntries];

  __device__ explicit GrowingRow(const Work<Real>& work)
      : w_(work), lane_(threadIdx.x % 32), below_((1u << lane_) - 1) {
    places_ = static_cast<uint32_t>(GrowTable(w_.shape));
    hash_shift_ = __clz(static_cast<int>(places_)) + 1;
    row_bytes_ = static_cast<uint32_t>(w_.a.stride * sizeof(Entry<Real>));
  }

  __device__ uint32_t Take() {
    uint32_t turn = 0;
    if (lane_ == 0) turn = atomicAdd(w_.queue, 1u);
    return __shfl_sync(kAllLanes, turn, 0);
  }

  __device__ int64_t RowOfTurn(uint32_t turn) const {
    return w_.rows != nullptr ? w_.rows[turn] : w_.first + static_cast<int64_t>(turn);
  }

  // Leaves the row to a larger workspace.
  __device__ void PassOn() {
    if (lane_ == 0) w_.overflow[atomicAdd(w_.overflow_count, 1u)] = row_;
  }

  __device__ RowOfA RowAt(int32_t row) const {
    if constexpr (kStride) {
      const uint64_t at = static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes_;
      return {
          reinterpret_cast<const Entry<Real>*>(reinterpret_cast<const char*>(w_.a.entries) + at),
          w_.a.stride};
    } else {
      const int64_t begin = w_.a.ptr[row];
      return {w_.a.entries + begin, static_cast<int>(w_.a.ptr[row + 1] - begin)};
    }
  }

  // The row of A by which this row, or column, begins.
  __device__ RowOfA OwnRow() const {
    if constexpr (kColumn) {
      RowOfA own{};
      own.entries = OwnOf(w_, row_, own.length);
      return own;
    } else {
      return RowAt(row_);
    }
  }

  // Candidates are the indices below this one.
  __device__ int32_t Below() const {
    if constexpr (kColumn) return static_cast<int32_t>(w_.n);
    return row_;
  }

  // Loads this lane's entries from `begin` on; past the end their index is kNone.
  __device__ void Fetch(const RowOfA& row, int begin, Entries& entry) const {
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      const int at = begin + 32 * e + static_cast<int>(lane_);
      entry[e] = {};
      entry[e].index = kNone;
      if (at < row.length) entry[e] = row.entries[at];
    }
  }

  // Starts a row, without candidates.
  __device__ void Begin(int32_t row) {
    row_ = row;
    count_ = opened_ = pivots_ = 0;
    for (uint32_t t = lane_; t < places_ / 8; t += 32) {
      reinterpret_cast<int4*>(table_)[t] = make_int4(-1, -1, -1, -1);
    }
  }

  __device__ void BeginPsi(Real diagonal) {
    a_ii_ = psi_ = static_cast<double>(diagonal);
    least_psi_ = 16 * Traits<Real>::kRoundoff * a_ii_;
    wanted_psi_ = w_.epsilon * a_ii_;
    if constexpr (kColumn) wanted_psi_ = fmax(wanted_psi_, least_psi_);
  }

  // Finds the slots of those entries that are below Below(), −1 for others; new ones become
  // candidates.
  __device__ End Find(const Entries& entry, int (&slot)[kEntries], uint32_t block) {
    uint32_t place[kEntries], step[kEntries];  // steps of 1, 2, 3, ...: no long occupied runs
    bool wanted[kEntries], missed[kEntries];
    bool any = false;
    // A look-up reads the index of the slot; for an empty place, slot −1, the element before the
    // first.
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      place[e] = static_cast<uint32_t>(entry[e].index) * 0x9e3779b1u >> hash_shift_;
      step[e] = 0;
      wanted[e] = entry[e].index < Below();
      slot[e] = -1;
      if (wanted[e]) slot[e] = table_[place[e]];
    }
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      const int32_t there = index_[slot[e]];
      missed[e] = slot[e] >= 0 && there != entry[e].index;
      any |= missed[e];
    }
    while (__any_sync(kAllLanes, any)) {
      any = false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (missed[e]) {
          place[e] = (place[e] + ++step[e]) & (places_ - 1);
          slot[e] = table_[place[e]];
        }
      }
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        const int32_t there = index_[slot[e]];
        missed[e] = missed[e] && slot[e] >= 0 && there != entry[e].index;
        any |= missed[e];
      }
    }
    const uint32_t before = count_;
    bool fresh[kEntries];
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      fresh[e] = wanted[e] && slot[e] < 0;
      const unsigned of_e = __ballot_sync(kAllLanes, fresh[e]);
      if (fresh[e]) slot[e] = static_cast<int>(count_ + __popc(of_e & below_));
      count_ += __popc(of_e);
    }
    if (count_ == before) return End::kNone;
    if (count_ > opened_) {
      const End end = static_cast<Kernel*>(this)->OpenPasses(block);
      if (end != End::kNone) return end;
    }
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      if (fresh[e]) index_[slot[e]] = entry[e].index;
    }
    // Among lanes that want one empty place, the one whose slot is read back gets it.
    const auto claim = [&] {
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (fresh[e]) table_[place[e]] = static_cast<int16_t>(slot[e]);
      }
      __syncwarp();
      bool lost = false;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        fresh[e] = fresh[e] && table_[place[e]] != slot[e];
        lost |= fresh[e];
      }
      return __any_sync(kAllLanes, lost);
    };
    bool lost = claim();
    while (lost) {
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        while (fresh[e] && table_[place[e]] >= 0) {
          place[e] = (place[e] + ++step[e]) & (places_ - 1);
        }
      }
      __syncwarp();
      lost = claim();
    }
    return End::kNone;
  }

  // Finishes a row whose pivots have their z and root. `index`: lane k's is that of the k-th pivot.
  // solve(kept): FewPivots::Solve for this lane. first(p): the first column that pass p has.
  template <class Solve, class First>
  __device__ void Finish(int64_t row, End end, int32_t index, const Solve& solve,
                         const First& first) {
    if (lane_ == 0) {
      if (end == End::kNotSpd) {
        atomicAdd(w_.not_spd_count, 1u);
        atomicMin(w_.first_not_spd, row_);
      }
      if (end == End::kConverged) atomicAdd(w_.converged_count, 1u);
    }
    const bool pivot = lane_ < pivots_;
    // Σ z² over the pivots up to this lane's.
    double before = pivot ? static_cast<double>(mine_.z) * static_cast<double>(mine_.z) : 0;
    for (unsigned step = 1; step < 32; step *= 2) {
      const double other = __shfl_up_sync(kAllLanes, before, step);
      if (lane_ >= step) before += other;
    }
    double psi = 0;
    if constexpr (kColumn) {
      // The first pivot, the column's own, does not count as a step.
      psi = lane_ + 1 < pivots_ ? a_ii_ - before : psi_;
    } else {
      before = __shfl_up_sync(kAllLanes, before, 1);
      psi = lane_ == 0 ? a_ii_ : pivot ? a_ii_ - before : psi_;
    }
    unsigned kept = 0;
    Real g = 0;
    if constexpr (kColumn) {
      kept = __ballot_sync(kAllLanes, pivot);
    } else {
      g = solve(kept);
    }
    const int32_t counted = kept >> lane_ & 1 ? index : kNone;
    int rank = 0;
#pragma unroll
    for (int k = 0; k < kGrowSteps; ++k) {
      rank += __shfl_sync(kAllLanes, counted, k) < index ? 1 : 0;
    }
    if constexpr (kColumn) {
      const int64_t out = OutOf(w_, row);
      if (pivot) w_.out_idx[out + rank] = index;
      if (lane_ == 0) w_.out_count[row - w_.first_out] = static_cast<int32_t>(pivots_);
    } else {
      WriteFew(w_, row, lane_, kept, rank, index, g, psi_);
    }
    // Lane t: ln(ψ/a_ii) after t steps; lane k_max + 1: in the end.
    const int64_t part = __double2ll_rn(
        log((static_cast<int>(lane_) <= w_.k_max ? psi : psi_) / a_ii_) * w_.log_scale);
    log_sum_ += part;
    if (lane_ == 0) w_.psi_ratio[row] = psi_ / a_ii_;
    unsigned products = 0;
    for (uint32_t p = lane_; p * 32 < opened_; p += 32) {
      const uint32_t columns = pivots_ - first(p);
      products += columns * columns / 2;
    }
    products = __reduce_add_sync(kAllLanes, products);
    products_ += products;
    if (w_.records == nullptr) return;
    int64_t* const record = w_.records + int64_t{w_.record_of[row - w_.first_out]} * (w_.k_max + 4);
    if (static_cast<int>(lane_) < w_.k_max + 2) record[lane_] = part;
    if (lane_ != 0) return;
    record[w_.k_max + 2] = products;
    record[w_.k_max + 3] =
        (end == End::kNotSpd ? kRecordNotSpd : 0) | (end == End::kConverged ? kRecordConverged : 0);
  }

  // Adds this warp's sums to those of the launch.
  __device__ void AddSums() {
    if (static_cast<int>(lane_) < w_.k_max + 2) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&w_.log_sums[lane_]),
                static_cast<unsigned long long>(log_sum_));
    }
    if (lane_ == 0) atomicAdd(w_.products, static_cast<unsigned long long>(products_));
  }

  const Work<Real>& w_;
  const uint32_t lane_, below_;
  int32_t* index_ = nullptr;  // index of each slot
  int16_t* table_ = nullptr;  // hash table of slots
  uint32_t places_ = 0;
  int hash_shift_ = 0;
  uint32_t row_bytes_ = 0;

  int32_t row_ = 0;
  uint32_t count_ = 0, opened_ = 0, pivots_ = 0;  // candidates, slots with tiles
  double a_ii_ = 0, psi_ = 0, least_psi_ = 0, wanted_psi_ = 0;
  // Lane k has the k-th pivot's.
  FewPivots<Real> mine_;

 private:
  uint64_t products_ = 0;  // products with L, of 32 candidates each
  int64_t log_sum_ = 0;
};

}  // namespace spaid::cuda::fsai
