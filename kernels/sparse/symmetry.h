// Part of the diagnosis: compares each entry with its mirror.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

inline constexpr double kSymmetryTolerance = 1e-12;
// The assembly of a matrix may leave so much of an entry that is zero in theory: a few roundings of
// the size of the diagonal entries beside it.
inline constexpr double kAssemblyNoise = 8 * std::numeric_limits<double>::epsilon();

// Columns ahead of their use: the time that memory takes to answer.
inline constexpr int64_t kAhead = 8;

// Meets each pair (a_ij, a_ji), i > j, of the columns j in [begin, end) once, without a copy of A:
// `next[i]` is the first entry of column i above the diagonal, not above row `begin`, whose mirror
// has not been met. Columns come in ascending order, so what stands before row j there has none.
// Ranges of columns are independent of one another, and what they find can be put together in any
// order. Mirrors are read an entry here and an entry there, an order that no hardware foresees:
// those of a column reach as far as its last row, and the columns behind that one are fetched
// ahead.
class SymmetryWalk {
 public:
  SymmetryWalk(const CscView& a, double max_abs_value, int64_t begin, int64_t end)
      : a_(a), max_abs_value_(max_abs_value), begin_(begin), end_(end) {}

  // A difference of a row from the column of the same number: an entry (row, column) without a
  // mirror, or, where `column` is -1, an entry whose mirror is missing or has another value.
  struct Odd {
    int32_t row, column;
    double value;  // of (row, column)
  };

  // Compares all. As the walk comes by, look(j, p) sees each column, its entries in the cache; p:
  // the first one on or below the diagonal. Not any more once oddities are many().
  template <class LookAt>
  void Run(LookAt look);
  // In no order; a row may come several times. Rows that are in no walk's list equal their columns.
  const std::vector<Odd>& oddities() const { return odd_; }
  // More than a few of the columns: they are not listed any more.
  bool many() const { return many_; }

  // For each column of the range, after the walk: the first entry on or below the diagonal.
  int64_t FromDiagonal(int64_t j) const { return a_.col_ptr[Z(j)] + next_[Z(j - begin_)]; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  // Gives back the scratch of columns behind the range.
  void Trim();

  // Findings of both.
  void Add(const SymmetryWalk& other);
  void Tell(Diagnosis& d) const;
  // The largest difference of a pair relative to the pair.
  double largest_relative() const { return largest_relative_; }

 private:
  // The first in column-major order of those met so far.
  struct First {
    bool After(int64_t i, int64_t j) const {
      return column < 0 || column > j || (column == j && row > i);
    }
    void Meet(const First& other) {
      if (other.column >= 0 && After(other.row, other.column)) *this = other;
    }
    int64_t row = -1, column = -1;
  };

  static size_t Z(int64_t i) { return static_cast<size_t>(i); }
  // Inlined by force: g++ takes a function that only prefetches for one without effect.
  __attribute__((always_inline)) void PrefetchColumn(int64_t j) const {
    constexpr int64_t kMaxEntries = 64;  // the processor follows a longer column by itself
    j = std::min(j, a_.n_cols - 1);
    const int64_t begin = a_.col_ptr[Z(j)];
    const int64_t end = std::min(a_.col_ptr[Z(j) + 1], begin + kMaxEntries);
    for (int64_t p = begin; p < end; p += 8) __builtin_prefetch(&a_.values[Z(p)]);
    for (int64_t p = begin; p < end; p += 16) __builtin_prefetch(&a_.row_idx[Z(p)]);
  }
  void Note(const Odd& odd);
  // The entries of column i above row `row`, from `next` on, have no mirror.
  void SkipLonely(int64_t i, int64_t row, int32_t& next) {
    const int64_t end = a_.col_ptr[Z(i) + 1];
    for (int64_t p = a_.col_ptr[Z(i)] + next; p < end && a_.row_idx[Z(p)] < row; ++p, ++next) {
      Lonely(i, a_.row_idx[Z(p)], a_.values[Z(p)], /*upper=*/true);
    }
  }
  void SkipRowsBefore(int32_t* next) const;
  void Lonely(int64_t i, int64_t j, double v, bool upper);
  void Unequal(int64_t i, int64_t j, double v, double w);
  void Differ(int64_t i, int64_t j, double v, double w);

  const CscView a_;
  const double max_abs_value_;
  const int64_t begin_, end_;
  Array<int32_t> next_;  // of the columns from begin_ on; counted from the column's first entry
  std::vector<Odd> odd_;
  bool many_ = false;
  First structure_, values_;
  double max_asymmetry_ = 0, largest_relative_ = 0;
};

// Findings of a comparison of all pairs.
struct Mirrors {
  bool structurally_symmetric = false, numerically_symmetric = false;  // as of Diagnosis
  double largest_relative = 0;  // difference of a pair relative to the pair
};
// `a`: square, canonical, with values. O(nnz). Thread-safe.
Mirrors CompareMirrors(const CscView& a, int threads);

template <class LookAt>
void SymmetryWalk::Run(LookAt look) {
  const int64_t* const col_ptr = a_.col_ptr.data();
  const int32_t* const row_idx = a_.row_idx.data();
  const double* const values = a_.values.data();
  next_.assign(Z(a_.n_cols - begin_), 0);
  int32_t* const next = next_.data() - begin_;
  if (begin_ > 0) SkipRowsBefore(next);
  for (int64_t j = begin_; j < end_; ++j) {
    SkipLonely(j, j, next[j]);
    const int64_t column_end = col_ptr[j + 1];
    if (column_end > col_ptr[j]) PrefetchColumn(row_idx[column_end - 1] + kAhead);
    int64_t p = col_ptr[j] + next[j];
    if (!many_) look(j, p);
    if (p < column_end && row_idx[p] == j) ++p;
    for (; p < column_end; ++p) {
      const int64_t i = row_idx[p];
      const int64_t i_end = col_ptr[i + 1];
      int64_t q = col_ptr[i] + next[i];
      if (q < i_end && row_idx[q] < j) {
        SkipLonely(i, j, next[i]);
        q = col_ptr[i] + next[i];
      }
      if (q < i_end && row_idx[q] == j) {
        ++next[i];
        if (values[p] != values[q]) Unequal(i, j, values[p], values[q]);
      } else {
        Lonely(i, j, values[p], /*upper=*/false);
      }
    }
  }
  // Entries of later columns above the range's end have no mirror.
  for (int64_t i = end_; i < a_.n_cols; ++i) SkipLonely(i, end_, next[i]);
}

}  // namespace spaid::kernels
