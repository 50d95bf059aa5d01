#include "kernels/sparse/transpose.h"

#include <cstddef>
#include <cstdint>

namespace spaid::kernels {
namespace {

// Row counts, then their running sum: the result's col_ptr.
Array<int64_t> CountRows(const PatternView& a) {
  Array<int64_t> ptr;
  ptr.assign(static_cast<size_t>(a.n_rows) + 1, 0);
  for (const int32_t i : a.row_idx) ++ptr[static_cast<size_t>(i) + 1];
  for (size_t i = 0; i < static_cast<size_t>(a.n_rows); ++i) ptr[i + 1] += ptr[i];
  return ptr;
}

// place(p, q): entry p of `a`, of column j, is entry q of the result.
template <class Place>
void Scatter(const PatternView& a, const Array<int64_t>& ptr, const Place& place) {
  Array<int64_t> next(ptr.begin(), ptr.end() - 1);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const int64_t end = a.col_ptr[static_cast<size_t>(j) + 1];
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < end; ++p) {
      const size_t row = static_cast<size_t>(a.row_idx[static_cast<size_t>(p)]);
      place(static_cast<size_t>(p), static_cast<size_t>(next[row]++), static_cast<int32_t>(j));
    }
  }
}

}  // namespace

CscMatrix Transpose(const CscView& a) {
  CscMatrix t;
  t.n_rows = a.n_cols;
  t.n_cols = a.n_rows;
  t.col_ptr = CountRows(a);
  t.row_idx.resize(a.row_idx.size());
  t.values.resize(a.values.size());
  Scatter(a, t.col_ptr, [&](size_t p, size_t q, int32_t j) {
    t.row_idx[q] = j;
    t.values[q] = a.values[p];
  });
  return t;
}

Pattern Transpose(const PatternView& a) {
  Pattern t;
  t.n_rows = a.n_cols;
  t.n_cols = a.n_rows;
  t.col_ptr = CountRows(a);
  t.row_idx.resize(a.row_idx.size());
  Scatter(a, t.col_ptr, [&](size_t, size_t q, int32_t j) { t.row_idx[q] = j; });
  return t;
}

}  // namespace spaid::kernels
