// The entries of A in the rows and columns of a small set. Internal to this room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Not thread-safe: one for each thread, of 4 n bytes. `a`: symmetric, canonical; `diagonal_at`: the
// positions of its diagonal. Both borrowed.
class LocalRows {
 public:
  LocalRows(const CscView& a, std::span<const int64_t> diagonal_at)
      : a_(a), diagonal_at_(diagonal_at) {
    place_.assign(static_cast<size_t>(a.n_cols), -1);
  }

  // `set`: ascending; kept until Clear().
  void Set(std::span<const int32_t> set) {
    set_ = set;
    for (size_t t = 0; t < set.size(); ++t) {
      place_[static_cast<size_t>(set[t])] = static_cast<int32_t>(t);
    }
  }
  void Clear() {
    for (const int32_t j : set_) place_[static_cast<size_t>(j)] = -1;
    set_ = {};
  }

  // use(s, value) for the entries in rows set[s] of column set[t], s > t.
  template <class Use>
  void Below(int64_t t, const Use& use) const {
    const auto size = static_cast<int64_t>(set_.size());
    const auto j = static_cast<size_t>(set_[static_cast<size_t>(t)]);
    const int32_t last = set_.back();
    const int32_t* const row_idx = a_.row_idx.data();
    const int64_t begin = diagonal_at_[j] + 1, end = a_.col_ptr[j + 1];
    // A long column has each row of the set looked for in it: what it costs shall not grow with it.
    if (end - begin > kFew + kOften * (size - t)) {
      const int32_t* from = row_idx + begin;
      for (int64_t s = t + 1; s < size; ++s) {
        from = std::lower_bound(from, row_idx + end, set_[static_cast<size_t>(s)]);
        if (from == row_idx + end) return;
        if (*from == set_[static_cast<size_t>(s)])
          use(s, a_.values[static_cast<size_t>(from - row_idx)]);
      }
      return;
    }
    for (int64_t p = begin; p < end && row_idx[p] <= last; ++p) {
      const int32_t s = place_[static_cast<size_t>(row_idx[p])];
      if (s >= 0) use(s, a_.values[static_cast<size_t>(p)]);
    }
  }

 private:
  static constexpr int64_t kFew = 128, kOften = 16;

  const CscView a_;
  const std::span<const int64_t> diagonal_at_;
  Array<int32_t> place_;
  std::span<const int32_t> set_;
};

}  // namespace spaid::kernels
