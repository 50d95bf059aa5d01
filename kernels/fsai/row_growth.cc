#include "kernels/fsai/row_growth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dense/simd.h"
#include "kernels/fsai/fsai_tuning.h"
#include "kernels/fsai/row_growth_parts.h"

namespace spaid::kernels {
namespace {

typedef float Vec16 __attribute__((vector_size(64), may_alias));

typedef int32_t Int8 __attribute__((vector_size(32), may_alias));
typedef int32_t Int16 __attribute__((vector_size(64), may_alias));

template <class Real>
struct Wide;
template <>
struct Wide<double> {
  using Vec = Vec8;
  using Mask = Mask8;
  using Rows = Int8;
  static constexpr int64_t kMagnitude = 0x7fffffffffffffff;
  static constexpr Mask kLane = {0, 1, 2, 3, 4, 5, 6, 7};
};
template <>
struct Wide<float> {
  using Vec = Vec16;
  using Mask = Int16;
  using Rows = Int16;
  static constexpr int32_t kMagnitude = 0x7fffffff;
  static constexpr Mask kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
};

constexpr int32_t kNowhere = -1;  // place of a row that is no candidate; from -2 on down: chosen

template <class Real>
SPAID_INLINE typename Wide<Real>::Vec Magnitude(typename Wide<Real>::Vec v) {
  return (typename Wide<Real>::Vec)((typename Wide<Real>::Mask)v & Wide<Real>::kMagnitude);
}

// All lanes combined, in each of them: halves, quarters, ... exchanged.
template <class Real, class V, class Combine>
SPAID_INLINE V Reduce(V v, const Combine& combine) {
  // Constants all of them: a shuffle by a variable costs more than the rest.
  constexpr auto kLane = Wide<Real>::kLane;
  if constexpr (sizeof(Real) == 4) v = combine(v, __builtin_shuffle(v, kLane ^ 8));
  v = combine(v, __builtin_shuffle(v, kLane ^ 4));
  v = combine(v, __builtin_shuffle(v, kLane ^ 2));
  return combine(v, __builtin_shuffle(v, kLane ^ 1));
}

template <class Real>
SPAID_INLINE Real Sum(typename Wide<Real>::Vec v) {
  using V = typename Wide<Real>::Vec;
  return Reduce<Real>(
      v, [](V x, V y) __attribute__((always_inline)) { return x + y; })[0];
}

template <class Real>
SPAID_INLINE Real Largest(typename Wide<Real>::Vec v) {
  using V = typename Wide<Real>::Vec;
  return Reduce<Real>(
      v, [](V x, V y) __attribute__((always_inline)) { return y > x ? y : x; })[0];
}

template <class Real>
SPAID_INLINE auto Least(typename Wide<Real>::Mask v) {
  using V = typename Wide<Real>::Mask;
  return Reduce<Real>(
      v, [](V x, V y) __attribute__((always_inline)) { return y < x ? y : x; })[0];
}

template <class Real>
class Growth final : public RowGrower {
 public:
  using Vec = typename Wide<Real>::Vec;
  using Mask = typename Wide<Real>::Mask;
  static constexpr int64_t kGroup = 4;  // lines whose largest gradients are kept together
  static constexpr int64_t kWidth = 64 / sizeof(Real);
  static constexpr double kRoundoff = std::numeric_limits<Real>::epsilon() / 2;

  Growth(const GrowthMatrix& a, const GrowthRules& rules)
      : a_(a), rules_(rules), kept_(1 - rules.min_gain) {
    place_.assign(static_cast<size_t>(a.n_rows()), kNowhere);
  }

  RowOutcome Grow(int64_t i, std::span<const int32_t> start, int k_max,
                  std::vector<RowEntry>& entries, std::vector<double>& ratios) override;

  // The work of Grow between preparation and clean-up: the part that is compiled for each
  // instruction set.
  SPAID_INLINE void Run(std::span<const int32_t> start, int k_max, std::vector<double>& ratios);

 private:
  struct Near {  // an entry of the column that joins, in a row that is chosen already
    int32_t at;
    Real value;
  };
  struct Far {  // an entry of the block outside of its dense part
    int32_t slot, at;
    Real value;
  };
  struct Pick {
    int32_t slot, row;
    Real y;
  };

  SPAID_INLINE static Vec* Lines(Real* p) { return reinterpret_cast<Vec*>(p); }
  static int64_t Blocks(int64_t n) { return (n + kWidth - 1) / kWidth; }
  static int64_t DenseSlots(int64_t capacity) {
    return std::clamp(fsai_tuning::kDenseElements / capacity, kWidth, fsai_tuning::kDenseSlots) /
           kWidth * kWidth;
  }

  void Reserve(int64_t chosen);
  void ReserveSlots(int64_t slots);
  SPAID_INLINE void BeginLine(int64_t slot);
  SPAID_INLINE bool Add(int32_t p, int32_t slot, Real y, bool map);
  template <int kBlocks>
  SPAID_INLINE void NextDirection(std::span<const Near> near_entries, int64_t first);
  SPAID_INLINE void NextDirectionOfMany(std::span<const Near> near_entries, int64_t first,
                                        int64_t blocks);
  SPAID_INLINE void UpdateGradient();
  SPAID_INLINE void FindGroupMaxima(int64_t group);
  SPAID_INLINE int32_t LowestOfLargest(Real& largest) const;
  SPAID_INLINE void Choose();

  const GrowthMatrix a_;
  const GrowthRules rules_;
  const double kept_;  // share of ψ, of which a step that leaves more is the last

  // For each row of A: kNowhere, its slot, or -2 - its position in P̄.
  Array<int32_t> place_;

  // The row being grown.
  int64_t i_ = 0;
  double scale_ = 1;                    // fp32: a power of two that brings a_ii near 1
  double a_ii_ = 0;                     // scaled
  std::span<const double> own_values_;  // column i
  int64_t own_ = 0;                     // its slots
  int64_t slots_ = 0;
  int64_t dense_slots_ = 0;
  int64_t count_ = 0;   // |P̄|
  double psi_ = 0;      // scaled
  double limit_ = 0;    // a row with a smaller ψ is not positive definite
  double enough_ = 0;   // ψ with which it has converged
  int64_t room_ = 0;    // entries at the most
  bool moved_ = false;  // g̃ has changed since the last gradient
  int64_t block_entries_ = 0;
  RowOutcome outcome_;
  std::vector<int32_t> chosen_;  // P̄ in the order of joining
  std::vector<double> a_ip_;     // A(i, p) for each of them
  std::vector<Far> far_;
  std::vector<int32_t> far_chosen_;  // slots of chosen ones that are not dense
  std::vector<Pick> picks_;

  // By slot.
  Buffer<int32_t> rows_;
  Buffer<Real> y_;
  Buffer<Real> group_maxima_;  // lane by lane, of the lines of a group
  // The dense block, lines of kWidth slots: line v of column m at block_[v * capacity_ + m], from
  // column first_[v] on.
  Buffer<Real> block_;
  std::vector<int32_t> first_;

  // By position in P̄; capacity_ a multiple of kWidth.
  int64_t capacity_ = 0;
  Buffer<Real> w_rows_, w_columns_;  // W, unit lower triangular: by rows, and by columns
  Buffer<Real> inverse_delta_, u_, v_, d_, step_, g_;
  Buffer<Near> near_;
};

template <class Real>
void Growth<Real>::Reserve(int64_t chosen) {
  if (chosen <= capacity_) return;
  const int64_t old = capacity_;
  int64_t capacity = std::max<int64_t>(32, old);
  while (capacity < chosen) capacity *= 2;
  // W and the block are laid out anew.
  for (Buffer<Real>* w : {&w_rows_, &w_columns_}) {
    Buffer<Real> wider;
    wider.Grow(capacity * capacity, 0);
    for (int64_t m = 0; m < count_; ++m) {
      std::copy_n(w->data() + m * old, old, wider.data() + m * capacity);
    }
    *w = std::move(wider);
  }
  for (Buffer<Real>* x : {&inverse_delta_, &u_, &v_, &d_, &step_, &g_}) x->Grow(capacity, old);
  for (Buffer<Real>* x : {&inverse_delta_, &u_, &v_, &d_, &step_, &g_}) {
    std::fill(x->data() + old, x->data() + capacity, Real{0});
  }
  // Slots beyond the new limit that are dense already stay so.
  const int64_t lines = std::min(Blocks(slots_), dense_slots_ / kWidth);
  Buffer<Real> block;
  dense_slots_ = std::max(lines * kWidth, DenseSlots(capacity));
  block.Grow(dense_slots_ * capacity, 0);
  for (int64_t v = 0; v < lines; ++v) {
    std::copy_n(block_.data() + v * old * kWidth, old * kWidth,
                block.data() + v * capacity * kWidth);
  }
  block_ = std::move(block);
  capacity_ = capacity;
}

template <class Real>
void Growth<Real>::ReserveSlots(int64_t slots) {
  const int64_t room = Blocks(slots) * kWidth, used = Blocks(slots_) * kWidth;
  if (room <= y_.size()) return;
  rows_.Grow(room, used);
  y_.Grow(room, used);
  group_maxima_.Grow((Blocks(y_.size()) + kGroup - 1) / kGroup * kWidth, 0);
}

// The first slot of a line.
template <class Real>
SPAID_INLINE void Growth<Real>::BeginLine(int64_t slot) {
  Lines(y_.data())[slot / kWidth] = Vec{};
  if (slot >= dense_slots_) return;
  first_.push_back(static_cast<int32_t>(count_));
  Lines(block_.data())[slot / kWidth * capacity_ + count_] = Vec{};
}

// u = W a, v = u / δ, d = −Wᵀ v, for a W of kBlocks lines; `first`: the first line of a that is not
// zero. Two accumulators for each line keep dependent additions few.
template <class Real>
template <int kBlocks>
SPAID_INLINE void Growth<Real>::NextDirection(std::span<const Near> near_entries, int64_t first) {
  const int64_t ld = capacity_ / kWidth, k = count_;
  const Vec* rows = reinterpret_cast<const Vec*>(w_rows_.data());
  const Vec* columns = reinterpret_cast<const Vec*>(w_columns_.data());
  const Vec* inverse = reinterpret_cast<const Vec*>(inverse_delta_.data());
  Vec u[kBlocks] = {};
  for (const Near& near : near_entries) {
    const Vec* column = columns + near.at * ld;
    const int64_t from = near.at / kWidth;
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      if (b >= from) u[b] += column[b] * near.value;
    }
  }
  Vec* u_out = Lines(u_.data());
  Vec* v_out = Lines(v_.data());
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    u_out[b] = u[b];
    v_out[b] = u[b] * inverse[b];
  }
  const Real* v = v_.data();
  Vec even[kBlocks] = {}, odd[kBlocks] = {};
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) {
    if (b < first) continue;
    const int64_t end = std::min<int64_t>((b + 1) * kWidth, k);
    int64_t l = b * kWidth;
    for (; l + 1 < end; l += 2) {
      const Vec* row = rows + l * ld;
#pragma GCC unroll 4
      for (int c = 0; c <= b; ++c) {
        even[c] -= row[c] * v[l];
        odd[c] -= row[ld + c] * v[l + 1];
      }
    }
    if (l < end) {
      const Vec* row = rows + l * ld;
#pragma GCC unroll 4
      for (int c = 0; c <= b; ++c) even[c] -= row[c] * v[l];
    }
  }
  Vec* d = Lines(d_.data());
#pragma GCC unroll 4
  for (int b = 0; b < kBlocks; ++b) d[b] = even[b] + odd[b];
}

template <class Real>
SPAID_INLINE void Growth<Real>::NextDirectionOfMany(std::span<const Near> near_entries,
                                                    int64_t first, int64_t blocks) {
  const int64_t ld = capacity_ / kWidth, k = count_;
  const Vec* rows = reinterpret_cast<const Vec*>(w_rows_.data());
  const Vec* columns = reinterpret_cast<const Vec*>(w_columns_.data());
  const Vec* inverse = reinterpret_cast<const Vec*>(inverse_delta_.data());
  Vec* u = Lines(u_.data());
  Vec* v = Lines(v_.data());
  Vec* d = Lines(d_.data());
  for (int64_t b = 0; b < blocks; ++b) u[b] = d[b] = Vec{};
  for (const Near& near : near_entries) {
    const Vec* column = columns + near.at * ld;
    for (int64_t b = near.at / kWidth; b < blocks; ++b) u[b] += column[b] * near.value;
  }
  for (int64_t b = 0; b < blocks; ++b) v[b] = u[b] * inverse[b];
  // Four rows at a time: d is read and written a quarter as often.
  const Real* vs = v_.data();
  int64_t l = first * kWidth;
  for (; l + 4 <= k; l += 4) {
    const Vec* row = rows + l * ld;
    for (int64_t c = 0; c <= l / kWidth; ++c) {
      d[c] -= (row[c] * vs[l] + row[ld + c] * vs[l + 1]) +
              (row[2 * ld + c] * vs[l + 2] + row[3 * ld + c] * vs[l + 3]);
    }
  }
  for (; l < k; ++l) {
    const Vec* row = rows + l * ld;
    for (int64_t c = 0; c <= l / kWidth; ++c) d[c] -= row[c] * vs[l];
  }
}

// Row p joins P̄. `y`: of its slot when the gradient was last brought up to date. `map`: its column
// brings candidates. False: A is not positive definite there, and nothing has changed.
template <class Real>
SPAID_INLINE bool Growth<Real>::Add(int32_t p, int32_t slot, Real y, bool map) {
  const int64_t k = count_;
  Reserve(k + 1);
  const auto column = static_cast<size_t>(p);
  const GrowthColumn of_a = a_.Column(p);
  const auto size = static_cast<int64_t>(of_a.rows.size());
  const int32_t* const row_idx = of_a.rows.data();
  const double* const values = of_a.values.data();
  // Members that the loops read are copied to locals, as the compiler cannot know that stores do
  // not change them.
  const int64_t limit = i_;
  const double scale = scale_;
  int32_t* const place = place_.data();
  Near* const nears = near_.Grow(size, 0);
  int64_t near_count = 0;
  if (map) {
    ReserveSlots(slots_ + size);
    const int64_t capacity = capacity_, dense = dense_slots_;
    Vec* const block = Lines(block_.data());
    int32_t* const rows = rows_.data();
    int64_t slots = slots_;
    const int64_t lines = std::min(Blocks(slots), dense / kWidth);
    for (int64_t v = 0; v < lines; ++v) block[v * capacity + k] = Vec{};
    int64_t q = 0;
    for (; q < size && row_idx[q] < limit; ++q) {
      const int32_t r = row_idx[q];
      const Real value = static_cast<Real>(scale * values[q]);
      int32_t at = place[r];
      if (at < kNowhere) {
        nears[near_count++] = {-2 - at, value};
        continue;
      }
      if (r == p) continue;
      if (at == kNowhere) {
        at = static_cast<int32_t>(slots++);
        rows[at] = r;
        place[r] = at;
        if (at % kWidth == 0) BeginLine(at);
      }
      if (at < dense) {
        reinterpret_cast<Real*>(block + at / kWidth * capacity + k)[at % kWidth] = value;
      } else {
        far_.push_back({at, static_cast<int32_t>(k), value});
      }
    }
    slots_ = slots;
    block_entries_ += q - near_count;
  } else {
    for (int64_t q = 0; q < size && row_idx[q] < limit; ++q) {
      const int32_t at = place[row_idx[q]];
      if (at < kNowhere) nears[near_count++] = {-2 - at, static_cast<Real>(scale * values[q])};
    }
  }
  const std::span<const Near> near_entries(nears, static_cast<size_t>(near_count));

  const int64_t blocks = Blocks(k);
  int64_t first = blocks;
  for (const Near& near : near_entries) first = std::min(first, near.at / kWidth);
  switch (blocks) {
    case 0:
      break;
    case 1:
      NextDirection<1>(near_entries, first);
      break;
    case 2:
      NextDirection<2>(near_entries, first);
      break;
    case 3:
      NextDirection<3>(near_entries, first);
      break;
    case 4:
      NextDirection<4>(near_entries, first);
      break;
    default:
      NextDirectionOfMany(near_entries, first, blocks);
  }
  const Vec* u = Lines(u_.data());
  const Vec* v = Lines(v_.data());
  Vec squares = {};
  for (int64_t b = 0; b < blocks; ++b) squares += u[b] * v[b];
  const Real a_pp = static_cast<Real>(scale_ * a_.Diagonal(p));
  const Real delta = a_pp - Sum<Real>(squares);
  Real residual = y;
  for (const Near& near : near_entries) residual += near.value * step_.data()[near.at];
  const Real inverse = 1 / delta, alpha = -residual * inverse;
  const double psi = psi_ + static_cast<double>(residual) * alpha;
  outcome_.flops += static_cast<double>(k) * static_cast<double>(k) +
                    static_cast<double>(near_count) * static_cast<double>(k) +
                    8 * static_cast<double>(k);
  // Both are false for a NaN.
  if (!(delta > 16 * kRoundoff * a_pp && delta < std::numeric_limits<Real>::max() &&
        (psi > limit_ || (rules_.least_squares && psi <= limit_)))) {
    return false;
  }

  // The direction becomes a row of W.
  const int64_t line = k / kWidth;
  Vec* d = Lines(d_.data());
  if (line == blocks) d[line] = Vec{};
  d_.data()[k] = 1;
  Vec* row = Lines(w_rows_.data() + k * capacity_);
  Real* columns = w_columns_.data();
  if (line == blocks) {
    for (int64_t m = 0; m < k; ++m) Lines(columns + m * capacity_)[line] = Vec{};
    for (Real* x : {u_.data(), v_.data(), inverse_delta_.data(), step_.data(), g_.data()}) {
      Lines(x)[line] = Vec{};
    }
  }
  Lines(columns + k * capacity_)[line] = Vec{};
  for (int64_t m = 0; m <= k; ++m) columns[m * capacity_ + k] = d_.data()[m];
  inverse_delta_.data()[k] = inverse;
  Vec* step = Lines(step_.data());
  Vec* g = Lines(g_.data());
  for (int64_t b = 0; b <= line; ++b) {
    row[b] = d[b];
    step[b] += d[b] * alpha;
    g[b] += d[b] * alpha;
  }
  psi_ = std::max(psi, limit_);
  moved_ = true;

  // Its row of the block is not needed any more: its gradient stays zero.
  if (slot != kNowhere) {
    y_.data()[slot] = 0;
    if (slot < dense_slots_) {
      Vec* own = Lines(block_.data()) + slot / kWidth * capacity_;
      for (int64_t m = first_[static_cast<size_t>(slot / kWidth)]; m < k; ++m) {
        reinterpret_cast<Real*>(own + m)[slot % kWidth] = 0;
      }
    } else {
      far_chosen_.push_back(slot);
    }
  }
  a_ip_.push_back(slot >= 0 && slot < own_ ? own_values_[static_cast<size_t>(slot)] : 0.0);
  chosen_.push_back(p);
  place_[column] = static_cast<int32_t>(-2 - k);
  ++count_;
  return true;
}

template <class Real>
SPAID_INLINE void Growth<Real>::FindGroupMaxima(int64_t group) {
  const Vec* y = Lines(y_.data());
  const int64_t end = std::min((group + 1) * kGroup, Blocks(slots_));
  Vec largest = {};
  for (int64_t v = group * kGroup; v < end; ++v) {
    const Vec size = Magnitude<Real>(y[v]);
    largest = size > largest ? size : largest;
  }
  Lines(group_maxima_.data())[group] = largest;
}

// y += block * step.
template <class Real>
SPAID_INLINE void Growth<Real>::UpdateGradient() {
  const int64_t k = count_, lines = static_cast<int64_t>(first_.size()), capacity = capacity_;
  const int32_t* const first = first_.data();
  const Vec* const all = Lines(block_.data());
  Vec* const y = Lines(y_.data());
  const Real* const step = step_.data();
  int64_t v = 0;
  for (; v + kGroup <= lines; v += kGroup) {
    const Vec* block[kGroup];
    Vec sum[kGroup];
    const int64_t common = first[v + kGroup - 1];  // they do not fall
#pragma GCC unroll 4
    for (int w = 0; w < kGroup; ++w) {
      block[w] = all + (v + w) * capacity;
      sum[w] = y[v + w];
      for (int64_t m = first[v + w]; m < common; ++m) sum[w] += block[w][m] * step[m];
    }
    for (int64_t m = common; m < k; ++m) {
#pragma GCC unroll 4
      for (int w = 0; w < kGroup; ++w) sum[w] += block[w][m] * step[m];
    }
#pragma GCC unroll 4
    for (int w = 0; w < kGroup; ++w) y[v + w] = sum[w];
  }
  for (; v < lines; ++v) {
    const Vec* block = all + v * capacity;
    Vec sum = y[v];
    for (int64_t m = first[v]; m < k; ++m) sum += block[m] * step[m];
    y[v] = sum;
  }
  for (const Far& far : far_) y_.data()[far.slot] += far.value * step[far.at];
  for (const int32_t slot : far_chosen_) y_.data()[slot] = 0;
  for (int64_t b = 0; b < Blocks(k); ++b) Lines(step_.data())[b] = Vec{};
  moved_ = false;
  outcome_.flops += 2 * static_cast<double>(block_entries_);
}

// The largest |y| and, of the slots that have it, the lowest row.
template <class Real>
SPAID_INLINE int32_t Growth<Real>::LowestOfLargest(Real& largest) const {
  using Rows = typename Wide<Real>::Rows;
  const int64_t groups = (Blocks(slots_) + kGroup - 1) / kGroup;
  const Vec* const maxima = Lines(group_maxima_.data());
  const Vec* const y = Lines(y_.data());
  const auto* const rows = reinterpret_cast<const Rows*>(rows_.data());
  Vec most = {};
  for (int64_t g = 0; g < groups; ++g) most = maxima[g] > most ? maxima[g] : most;
  largest = Largest<Real>(most);
  Mask least = Mask{} + std::numeric_limits<int32_t>::max();
  for (int64_t g = 0; g < groups; ++g) {
    const Mask here = maxima[g] == largest;
    if (Least<Real>(here) == 0) continue;  // true is -1
    const int64_t end = std::min((g + 1) * kGroup, Blocks(slots_));
    for (int64_t v = g * kGroup; v < end; ++v) {
      const Mask row = __builtin_convertvector(rows[v], Mask);
      const Mask lower = (Magnitude<Real>(y[v]) == largest) & (row < least);
      least = lower ? row : least;
    }
  }
  return static_cast<int32_t>(Least<Real>(least));
}

// The s largest of the gradient that are not noise, as far as there is room, into picks_; those of
// the slots that it takes are zero from then on.
template <class Real>
SPAID_INLINE void Growth<Real>::Choose() {
  picks_.clear();
  if (moved_) UpdateGradient();
  for (int64_t g = 0; g * kGroup < Blocks(slots_); ++g) FindGroupMaxima(g);
  const double noise = rules_.least_squares ? limit_ : 64 * kRoundoff * kRoundoff * a_ii_ * scale_;
  const int64_t wanted = std::min<int64_t>(rules_.s, room_ - count_);
  for (int64_t t = 0; t < wanted; ++t) {
    Real largest = 0;
    const int32_t row = LowestOfLargest(largest);
    if (!(largest > 0)) break;
    const int32_t slot = place_[static_cast<size_t>(row)];
    const auto size = static_cast<double>(largest);
    // Later ones are not larger, but their diagonal entries may be smaller.
    if (size * size > noise * a_.Diagonal(row)) {
      picks_.push_back({slot, row, y_.data()[slot]});
    }
    y_.data()[slot] = 0;
    if (t + 1 < wanted) FindGroupMaxima(slot / kWidth / kGroup);
  }
}

template <class Real>
SPAID_INLINE void Growth<Real>::Run(std::span<const int32_t> start, int k_max,
                                    std::vector<double>& ratios) {
  const GrowthColumn own = a_.Column(i_);
  own_values_ = own.values;
  ReserveSlots(static_cast<int64_t>(own.rows.size()));
  for (const int32_t row : own.rows) {
    if (row >= i_) break;
    const int64_t slot = slots_++;
    rows_.data()[slot] = row;
    place_[static_cast<size_t>(row)] = static_cast<int32_t>(slot);
    if (slot % kWidth == 0) BeginLine(slot);
    y_.data()[slot] = static_cast<Real>(scale_ * own.values[static_cast<size_t>(slot)]);
  }
  own_ = slots_;
  for (const int32_t p : start) {
    const int32_t slot = place_[static_cast<size_t>(p)];
    if (!Add(p, slot, slot >= 0 ? y_.data()[slot] : Real{0}, k_max > 0)) {
      outcome_.not_spd = true;
      break;
    }
  }
  ratios.push_back(psi_ / a_ii_);
  for (int step = 1; step <= k_max && !outcome_.not_spd; ++step) {
    if (psi_ <= enough_ || count_ >= room_) break;
    Choose();
    if (picks_.empty()) break;
    const double before = psi_;
    const bool map = step < k_max && count_ + static_cast<int64_t>(picks_.size()) < room_;
    int64_t added = 0;
    for (const Pick& pick : picks_) {
      if (!Add(pick.row, pick.slot, pick.y, map)) {
        outcome_.not_spd = true;
        break;
      }
      ++added;
    }
    if (added == 0) break;
    ++outcome_.steps;
    ratios.push_back(psi_ / a_ii_);
    if (psi_ > kept_ * before) break;
  }
}

SPAID_HOT_KERNEL
void RunRow(Growth<double>& row, std::span<const int32_t> start, int k_max,
            std::vector<double>& ratios) {
  row.Run(start, k_max, ratios);
}

SPAID_HOT_KERNEL
void RunRow(Growth<float>& row, std::span<const int32_t> start, int k_max,
            std::vector<double>& ratios) {
  row.Run(start, k_max, ratios);
}

template <class Real>
RowOutcome Growth<Real>::Grow(int64_t i, std::span<const int32_t> start, int k_max,
                              std::vector<RowEntry>& entries, std::vector<double>& ratios) {
  const double a_ii = a_.Diagonal(i);
  i_ = i;
  scale_ = std::ldexp(1.0, -std::ilogb(a_ii));
  a_ii_ = psi_ = scale_ * a_ii;
  limit_ = 16 * kRoundoff * a_ii_;
  enough_ = std::max(rules_.epsilon * a_ii_, limit_);
  room_ = std::max(rules_.max_entries, static_cast<int64_t>(start.size()));
  slots_ = count_ = own_ = block_entries_ = 0;
  moved_ = false;
  outcome_ = {};
  chosen_.clear();
  a_ip_.clear();
  far_.clear();
  far_chosen_.clear();
  first_.clear();
  ratios.clear();
  Reserve(1);
  dense_slots_ = DenseSlots(capacity_);
  RunRow(*this, start, k_max, ratios);

  entries.clear();
  for (size_t m = 0; m < chosen_.size(); ++m) {
    entries.push_back({chosen_[m], static_cast<double>(g_.data()[m])});
  }
  for (int64_t slot = 0; slot < slots_; ++slot) {
    place_[static_cast<size_t>(rows_.data()[slot])] = kNowhere;
  }
  for (const int32_t p : chosen_) place_[static_cast<size_t>(p)] = kNowhere;
  if (rules_.least_squares) {
    SortByIndex(entries);
    outcome_.psi_ratio = psi_ / a_ii_;
    outcome_.converged = psi_ <= enough_;
  } else {
    FinishRow(i, a_ii, limit_ / scale_, rules_.epsilon, rules_.fp32, a_ip_, entries, ratios,
              outcome_);
  }
  return outcome_;
}

std::unique_ptr<RowGrower> Make(const GrowthMatrix& a, const GrowthRules& rules) {
  if (GrowsByBlocks(rules)) return MakeBlockGrower(a, rules);
  if (rules.fp32) {
    return std::make_unique<Growth<float>>(a, rules);
  }
  return std::make_unique<Growth<double>>(a, rules);
}

}  // namespace

bool GrowsByBlocks(const GrowthRules& rules) {
  const int block_steps =
      rules.least_squares ? fsai_tuning::kLeastSquaresBlockSteps : fsai_tuning::kBlockSteps;
  return rules.s > 1 && rules.k_max <= block_steps * rules.s;
}

std::unique_ptr<RowGrower> MakeRowGrower(const CscView& a, std::span<const double> diagonal,
                                         const GrowthRules& rules, LackedColumns* lacked) {
  return Make({a, diagonal, lacked}, rules);
}

std::unique_ptr<RowGrower> MakeRowGrower(GrowthColumns& a, const GrowthRules& rules) {
  return Make(GrowthMatrix(a), rules);
}

}  // namespace spaid::kernels
