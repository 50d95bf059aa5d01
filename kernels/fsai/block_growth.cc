// Growth by few steps of several entries (row_growth.h).

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dense/simd.h"
#include "kernels/fsai/row_growth_parts.h"

namespace spaid::kernels {
namespace {

typedef float Vec8f __attribute__((vector_size(32), may_alias));
typedef int32_t Mask8f __attribute__((vector_size(32), may_alias));
typedef double Vec8Anywhere __attribute__((vector_size(64), aligned(8), may_alias));
typedef float Vec8fAnywhere __attribute__((vector_size(32), aligned(4), may_alias));

template <class Real>
struct Wide;
template <>
struct Wide<double> {
  using Vec = Vec8;
  using Anywhere = Vec8Anywhere;
  using Mask = Mask8;
  static constexpr int64_t kMagnitude = 0x7fffffffffffffff;
};
template <>
struct Wide<float> {
  using Vec = Vec8f;
  using Anywhere = Vec8fAnywhere;
  using Mask = Mask8f;
  static constexpr int32_t kMagnitude = 0x7fffffff;
};

constexpr int32_t kNowhere = -1;

template <class Real>
class BlockGrowth final : public RowGrower {
 public:
  using Vec = typename Wide<Real>::Vec;
  using Anywhere = typename Wide<Real>::Anywhere;
  using Mask = typename Wide<Real>::Mask;
  static constexpr double kRoundoff = std::numeric_limits<Real>::epsilon() / 2;

  BlockGrowth(const GrowthMatrix& a, const GrowthRules& rules)
      : a_(a), rules_(rules), kept_(1 - rules.min_gain) {
    place_.assign(static_cast<size_t>(a.n_rows()), kNowhere);
  }

  RowOutcome Grow(int64_t i, std::span<const int32_t> start, int k_max,
                  std::vector<RowEntry>& entries, std::vector<double>& ratios) override;

  SPAID_INLINE void Run(std::span<const int32_t> start, int k_max, std::vector<double>& ratios);

 private:
  SPAID_INLINE static Vec* Lines(Real* p) { return reinterpret_cast<Vec*>(p); }
  SPAID_INLINE static Vec Magnitude(Vec v) { return (Vec)((Mask)v & Wide<Real>::kMagnitude); }

  // -1 where x < z, else 0, for a difference within the range: so are the bits of what is not
  // negative. From combined comparisons g++ makes scalar code.
  SPAID_INLINE static Mask Less(Mask x, Mask z) { return (x - z) >> (8 * sizeof(Real) - 1); }

  void Reserve(int64_t chosen);
  void ReserveSlots(int64_t slots);
  SPAID_INLINE void WalkColumn(int64_t t, int32_t p);
  SPAID_INLINE void LookUpColumn(int64_t t, int32_t p, int64_t all);
  SPAID_INLINE bool Join(std::span<const int32_t> rows, bool map);
  SPAID_INLINE void Solve();
  SPAID_INLINE void FindGradient();
  SPAID_INLINE Real SthLargest(Vec v) const;
  SPAID_INLINE void Choose();

  const GrowthMatrix a_;
  const GrowthRules rules_;
  const double kept_;  // share of ψ, of which a step that leaves more is the last

  Array<int32_t> place_;  // slot of each row of A, or kNowhere

  // The row being grown.
  int64_t i_ = 0;
  double scale_ = 1;                    // a power of two that brings a_ii near 1
  double a_ii_ = 0;                     // scaled
  std::span<const double> own_values_;  // column i
  int64_t own_ = 0;                     // its slots
  int64_t slots_ = 0;
  int64_t listed_ = 0;
  int64_t count_ = 0;    // |P̄|
  int64_t touched_ = 0;  // and those that were refused
  double psi_ = 0;       // scaled
  double limit_ = 0;     // a row with a smaller ψ is not positive definite
  double enough_ = 0;    // ψ with which it has converged
  int64_t room_ = 0;     // entries at the most
  RowOutcome outcome_;
  std::vector<double> a_ip_;
  std::vector<int32_t> picks_;
  Buffer<int32_t> candidates_;  // their slots

  // By slot.
  Buffer<int32_t> rows_;
  Buffer<int32_t> position_;  // in P̄, from 1 on; 0: not chosen. One more in front: of no slot
  Buffer<Real> y_, own_y_;
  // Columns of A that have joined, above row i.
  Buffer<int32_t> list_slots_;
  Buffer<Real> list_values_;

  // By position in P̄.
  int64_t capacity_ = 0;
  Buffer<int32_t> chosen_, chosen_slots_;
  Buffer<int64_t> list_ends_;
  Buffer<Real> l_;  // L of LDLᵀ without its diagonal, by columns
  Buffer<Real> b_;  // lines of 8: A[P̄, new] and what becomes of it; line 0: of no position
  Buffer<Real> inverse_, rho_, z_, g_;
};

template <class Real>
void BlockGrowth<Real>::Reserve(int64_t chosen) {
  if (chosen + kLanes <= capacity_) return;
  const int64_t old = capacity_;
  int64_t capacity = std::max<int64_t>(32, old);
  while (capacity < chosen + kLanes) capacity *= 2;
  Buffer<Real> wider;
  wider.Grow(capacity * capacity, 0);
  for (int64_t m = 0; m < count_; ++m) {
    std::copy_n(l_.data() + m * old, old, wider.data() + m * capacity);
  }
  l_ = std::move(wider);
  for (Buffer<Real>* x : {&inverse_, &rho_, &z_, &g_}) x->Grow(capacity, old);
  b_.Grow((capacity + 1) * kLanes, 0);
  chosen_.Grow(capacity, old);
  chosen_slots_.Grow(capacity, old);
  list_ends_.Grow(capacity + 1, old > 0 ? old + 1 : 0);
  list_ends_.data()[0] = 0;
  capacity_ = capacity;
}

template <class Real>
void BlockGrowth<Real>::ReserveSlots(int64_t slots) {
  const int64_t room = slots + 2 * kLanes;
  if (room <= y_.size()) return;
  y_.Grow(room, slots_);
  rows_.Grow(y_.size(), slots_);
  const int64_t old = position_.size();
  position_.Grow(y_.size() + 1, old);
  std::fill(position_.data() + old, position_.data() + position_.size(), 0);
}

// Column p, the t-th of those that join: its entries are listed, and those of P̄ copied.
template <class Real>
SPAID_INLINE void BlockGrowth<Real>::WalkColumn(int64_t t, int32_t p) {
  const GrowthColumn column = a_.Column(p);
  const auto size = static_cast<int64_t>(column.rows.size());
  ReserveSlots(slots_ + size);
  const int64_t limit = i_;
  const double scale = scale_;
  const int32_t* const row_idx = column.rows.data();
  const double* const values = column.values.data();
  int32_t* const place = place_.data();
  int32_t* const rows = rows_.data();
  const int32_t* const position = position_.data() + 1;
  Real* const b = b_.data() + t;
  int32_t* const list_slots = list_slots_.Grow(listed_ + size, listed_);
  Real* const list_values = list_values_.Grow(listed_ + size, listed_);
  int32_t slots = static_cast<int32_t>(slots_);
  int64_t listed = listed_;
  for (int64_t q = 0; q < size; ++q) {
    const int32_t r = row_idx[q];
    if (r >= limit) break;
    const Real value = static_cast<Real>(scale * values[q]);
    int32_t at = place[r];
    if (at < 0) {
      rows[slots] = r;
      place[r] = at = slots++;
    }
    list_slots[listed] = at;
    list_values[listed++] = value;
    b[position[at] * kLanes] = value;
  }
  slots_ = slots;
  listed_ = listed;
}

// Column p of the last step: its entries in the `all` positions of P̄ alone.
template <class Real>
SPAID_INLINE void BlockGrowth<Real>::LookUpColumn(int64_t t, int32_t p, int64_t all) {
  const GrowthColumn column = a_.Column(p);
  const auto size = static_cast<int64_t>(column.rows.size());
  const double scale = scale_;
  const int32_t* const row_idx = column.rows.data();
  const double* const values = column.values.data();
  Real* const b = b_.data() + t;
  if (size > 128 + 16 * all) {
    for (int64_t c = 0; c < all; ++c) {
      const int32_t r = chosen_.data()[c];
      const int32_t* const at = std::lower_bound(row_idx, row_idx + size, r);
      if (at != row_idx + size && *at == r) {
        b[(c + 1) * kLanes] = static_cast<Real>(scale * values[at - row_idx]);
      }
    }
    return;
  }
  const int32_t* const place = place_.data();
  const int32_t* const position = position_.data() + 1;
  for (int64_t q = 0; q < size; ++q) {
    b[position[place[row_idx[q]]] * kLanes] = static_cast<Real>(scale * values[q]);
  }
}

// At most kLanes rows join P̄. `map`: their columns bring candidates. False: A is not positive
// definite at one of them, and those from there on are left out.
template <class Real>
SPAID_INLINE bool BlockGrowth<Real>::Join(std::span<const int32_t> joining, bool map) {
  const int64_t k = count_, m = static_cast<int64_t>(joining.size()), all = k + m;
  Reserve(all);
  ReserveSlots(slots_ + m);
  Vec* const b = Lines(b_.data());
  for (int64_t r = 0; r <= all; ++r) b[r] = Vec{};
  alignas(64) Real residual[kLanes] = {};
  for (int64_t t = 0; t < m; ++t) {
    const int32_t p = joining[static_cast<size_t>(t)];
    int32_t& place = place_[static_cast<size_t>(p)];
    if (place < 0) {
      place = static_cast<int32_t>(slots_++);
      rows_.data()[place] = p;
    }
    position_.data()[place + 1] = static_cast<int32_t>(k + t + 1);
    chosen_.data()[k + t] = p;
    chosen_slots_.data()[k + t] = place;
    const double a_ip = place < own_ ? own_values_[static_cast<size_t>(place)] : 0.0;
    a_ip_.push_back(a_ip);
    residual[t] = static_cast<Real>(-scale_ * a_ip);
  }
  touched_ = all;
  for (int64_t t = 0; t < m; ++t) {
    const int32_t p = joining[static_cast<size_t>(t)];
    if (map) {
      WalkColumn(t, p);
      list_ends_.data()[k + t + 1] = listed_;
    } else {
      LookUpColumn(t, p, all);
    }
  }

  const int64_t ld = capacity_;
  Real* const l = l_.data();
  Vec* const w = b + 1;
  const Real* const inverse = inverse_.data();
  const Real* const rho = rho_.data();
  Vec rest = *Lines(residual);
  for (int64_t r = 0; r < k; ++r) {
    Vec sum = w[r];
    for (int64_t c = 0; c < r; ++c) sum -= w[c] * l[c * ld + r];
    w[r] = sum;
    const Vec v = sum * inverse[r];
    *reinterpret_cast<Anywhere*>(l + r * ld + k) = v;
    rest -= v * rho[r];
  }
  *Lines(residual) = rest;
  outcome_.flops +=
      static_cast<double>(m) * static_cast<double>(k + m) * static_cast<double>(k + m);
  for (int64_t t = 0; t < m; ++t) {
    const int64_t r = k + t;
    Vec sum = w[r];
    for (int64_t c = 0; c < r; ++c) sum -= w[c] * l[c * ld + r];
    w[r] = sum;
    const Real delta = reinterpret_cast<const Real*>(w + r)[t];
    const Real a_pp = static_cast<Real>(scale_ * a_.Diagonal(joining[static_cast<size_t>(t)]));
    const Real own = residual[t];
    const Real reciprocal = 1 / delta, alpha = own * reciprocal;
    const double psi = psi_ - static_cast<double>(own) * alpha;
    // Both are false for a NaN.
    if (!(delta > 16 * kRoundoff * a_pp && delta < std::numeric_limits<Real>::max() &&
          (psi > limit_ || (rules_.least_squares && psi <= limit_)))) {
      return false;
    }
    const Vec v = sum * reciprocal;
    *reinterpret_cast<Anywhere*>(l + r * ld + k) = v;
    rest -= v * own;
    *Lines(residual) = rest;
    inverse_.data()[r] = reciprocal;
    rho_.data()[r] = own;
    z_.data()[r] = alpha;
    psi_ = std::max(psi, limit_);
    ++count_;
  }
  return true;
}

// g̃ of P̄: Lᵀ g̃ = z.
template <class Real>
SPAID_INLINE void BlockGrowth<Real>::Solve() {
  const int64_t k = count_, ld = capacity_;
  const Real* const z = z_.data();
  Real* const g = g_.data();
  for (int64_t c = k - 1; c >= 0; --c) {
    const Real* const l = l_.data() + c * ld;
    Real sum = z[c];
    for (int64_t r = k - 1; r > c; --r) sum -= l[r] * g[r];
    g[c] = sum;
  }
  outcome_.flops += static_cast<double>(k) * static_cast<double>(k);
}

// y = A g̃ + a_i over the slots; zero where they are chosen.
template <class Real>
SPAID_INLINE void BlockGrowth<Real>::FindGradient() {
  Solve();
  const int64_t k = count_;
  Real* const y = y_.data();
  std::copy_n(own_y_.data(), own_, y);
  std::fill(y + own_, y + slots_, Real{0});
  const int32_t* const slots = list_slots_.data();
  const Real* const values = list_values_.data();
  const int64_t* const ends = list_ends_.data();
  for (int64_t c = 0; c < k; ++c) {
    const Real g = g_.data()[c];
    for (int64_t e = ends[c]; e < ends[c + 1]; ++e) y[slots[e]] += values[e] * g;
  }
  for (int64_t c = 0; c < k; ++c) y[chosen_slots_.data()[c]] = 0;
  outcome_.flops += 2 * static_cast<double>(listed_);
}

// The s-th largest of the lanes, none of them negative.
template <class Real>
SPAID_INLINE Real BlockGrowth<Real>::SthLargest(Vec v) const {
  const Mask lane = {0, 1, 2, 3, 4, 5, 6, 7};
  Mask larger = {};  // how many are
#pragma GCC unroll 7
  for (int by = 1; by < kLanes; ++by) {
    larger -= Less((Mask)v, (Mask)__builtin_shuffle(v, (lane + by) & (kLanes - 1)));
  }
  const Mask in = Less(larger, Mask{} + rules_.s);
  const Vec most = Vec{} + std::numeric_limits<Real>::max();
  Vec least = (Vec)(((Mask)v & in) | ((Mask)most & ~in));
#pragma GCC unroll 3
  for (int by = kLanes / 2; by > 0; by /= 2) {
    const Vec other = __builtin_shuffle(least, lane ^ by);
    least = other < least ? other : least;
  }
  return least[0];
}

// The rows of the s largest of the gradient that are not noise, as far as there is room, into
// picks_.
template <class Real>
SPAID_INLINE void BlockGrowth<Real>::Choose() {
  const int64_t slots = slots_;
  Real* const y = y_.data();
  for (int64_t v = 0; v < kLanes; ++v) y[slots + v] = 0;
  Real bound = std::numeric_limits<Real>::denorm_min();
  if (slots > kLanes && rules_.s <= kLanes) {
    // At least s of the slots are not below the s-th of the lanes' largest.
    Vec largest = {};
    const int64_t lines = (slots + kLanes - 1) / kLanes;
    for (int64_t v = 0; v < lines; ++v) {
      const Vec size = Magnitude(Lines(y)[v]);
      largest = size > largest ? size : largest;
    }
    bound = std::max(bound, SthLargest(largest));
  }
  int32_t* const found_at = candidates_.Grow(slots + 1 + kLanes, 0);
  int64_t found = 0;
  for (int64_t slot = 0; slot < slots; ++slot) {
    found_at[found] = static_cast<int32_t>(slot);
    found += std::abs(y[slot]) >= bound ? 1 : 0;
  }
  int32_t* const rows = rows_.data();
  const int64_t wanted = std::min({static_cast<int64_t>(rules_.s), room_ - count_, found});
  int32_t sorted[kLanes + 1];
  const int32_t* first = found_at;
  if (found <= kLanes) {
    // The place of each by counting those before it, eight whatever is there: nobody can tell what
    // a comparison gives. The slot behind the last has y = 0.
    rows[slots] = std::numeric_limits<int32_t>::max();
    const int32_t none = static_cast<int32_t>(slots);
    for (int64_t x = 0; x < kLanes; ++x) found_at[found + x] = none;
    const auto size = [&](int x) __attribute__((always_inline)) { return y[found_at[x]]; };
    const auto row = [&](int x) __attribute__((always_inline)) { return rows[found_at[x]]; };
    const Mask sizes = (Mask)Magnitude(
        Vec{size(0), size(1), size(2), size(3), size(4), size(5), size(6), size(7)});
    const Mask at = {row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)};
    const Mask lane = {0, 1, 2, 3, 4, 5, 6, 7};
    Mask before = {};
#pragma GCC unroll 7
    for (int by = 1; by < kLanes; ++by) {
      const Mask of = (lane + by) & (kLanes - 1);
      const Mask other = __builtin_shuffle(sizes, of);
      const Mask lower = Less(__builtin_shuffle(at, of), at);
      before -= Less(sizes, other) | (lower & ~(Less(sizes, other) | Less(other, sizes)));
    }
#pragma GCC unroll 8
    for (int x = 0; x < kLanes; ++x) sorted[before[x]] = found_at[x];
    first = sorted;
  } else {
    std::partial_sort(found_at, found_at + wanted, found_at + found,
                      [y, rows](int32_t x, int32_t z) {
                        const Real a = std::abs(y[x]), b = std::abs(y[z]);
                        return a > b || (a == b && rows[x] < rows[z]);
                      });
  }
  const double noise = rules_.least_squares ? limit_ : 64 * kRoundoff * kRoundoff * a_ii_ * scale_;
  picks_.clear();
  for (int64_t t = 0; t < wanted; ++t) {
    const auto size = static_cast<double>(y[first[t]]);
    const int32_t row = rows[first[t]];
    if (size * size > noise * a_.Diagonal(row)) picks_.push_back(row);
  }
}

template <class Real>
SPAID_INLINE void BlockGrowth<Real>::Run(std::span<const int32_t> start, int k_max,
                                         std::vector<double>& ratios) {
  const GrowthColumn own = a_.Column(i_);
  own_values_ = own.values;
  const auto size = static_cast<int64_t>(own.rows.size());
  ReserveSlots(size);
  own_y_.Grow(size, 0);
  for (const int32_t row : own.rows) {
    if (row >= i_) break;
    const int64_t slot = slots_++;
    rows_.data()[slot] = row;
    place_[static_cast<size_t>(row)] = static_cast<int32_t>(slot);
    const Real value = static_cast<Real>(scale_ * own.values[static_cast<size_t>(slot)]);
    y_.data()[slot] = own_y_.data()[slot] = value;
  }
  own_ = slots_;
  const auto join = [&](std::span<const int32_t> rows, bool map) __attribute__((always_inline)) {
    for (size_t t = 0; t < rows.size(); t += kLanes) {
      if (!Join(rows.subspan(t, std::min<size_t>(kLanes, rows.size() - t)), map)) return false;
    }
    return true;
  };
  outcome_.not_spd = !join(start, k_max > 0);
  ratios.push_back(psi_ / a_ii_);
  for (int step = 1; step <= k_max && !outcome_.not_spd; ++step) {
    if (psi_ <= enough_ || count_ >= room_) break;
    if (count_ > 0) FindGradient();
    Choose();
    if (picks_.empty()) break;
    const double before = psi_;
    const int64_t count = count_;
    outcome_.not_spd =
        !join(picks_, step < k_max && count + static_cast<int64_t>(picks_.size()) < room_);
    if (count_ == count) break;
    ++outcome_.steps;
    ratios.push_back(psi_ / a_ii_);
    if (psi_ > kept_ * before) break;
  }
  Solve();
}

SPAID_HOT_KERNEL
void RunRow(BlockGrowth<double>& row, std::span<const int32_t> start, int k_max,
            std::vector<double>& ratios) {
  row.Run(start, k_max, ratios);
}

SPAID_HOT_KERNEL
void RunRow(BlockGrowth<float>& row, std::span<const int32_t> start, int k_max,
            std::vector<double>& ratios) {
  row.Run(start, k_max, ratios);
}

template <class Real>
RowOutcome BlockGrowth<Real>::Grow(int64_t i, std::span<const int32_t> start, int k_max,
                                   std::vector<RowEntry>& entries, std::vector<double>& ratios) {
  const double a_ii = a_.Diagonal(i);
  i_ = i;
  scale_ = std::ldexp(1.0, -std::ilogb(a_ii));
  a_ii_ = psi_ = scale_ * a_ii;
  limit_ = 16 * kRoundoff * a_ii_;
  enough_ = std::max(rules_.epsilon * a_ii_, limit_);
  room_ = std::max(rules_.max_entries, static_cast<int64_t>(start.size()));
  slots_ = count_ = touched_ = own_ = listed_ = 0;
  outcome_ = {};
  a_ip_.clear();
  ratios.clear();
  RunRow(*this, start, k_max, ratios);

  entries.clear();
  for (int64_t m = 0; m < count_; ++m) {
    entries.push_back({chosen_.data()[m], static_cast<double>(g_.data()[m])});
  }
  for (int64_t slot = 0; slot < slots_; ++slot) {
    place_[static_cast<size_t>(rows_.data()[slot])] = kNowhere;
  }
  for (int64_t m = 0; m < touched_; ++m) position_.data()[chosen_slots_.data()[m] + 1] = 0;
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

}  // namespace

std::unique_ptr<RowGrower> MakeBlockGrower(const GrowthMatrix& a, const GrowthRules& rules) {
  if (rules.fp32) {
    return std::make_unique<BlockGrowth<float>>(a, rules);
  }
  return std::make_unique<BlockGrowth<double>>(a, rules);
}

}  // namespace spaid::kernels
