// Small matrices by hand, and checks that several tests here share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

inline CscMatrix Make(int64_t n_rows, int64_t n_cols, std::initializer_list<int64_t> col_ptr,
                      std::initializer_list<int32_t> row_idx,
                      std::initializer_list<double> values) {
  CscMatrix m;
  m.n_rows = n_rows;
  m.n_cols = n_cols;
  m.col_ptr.assign(col_ptr);
  m.row_idx.assign(row_idx);
  m.values.assign(values);
  return m;
}

inline void ExpectCanonical(const PatternView& p) {
  ASSERT_EQ(static_cast<int64_t>(p.col_ptr.size()), p.n_cols + 1);
  ASSERT_EQ(p.col_ptr[0], 0);
  ASSERT_EQ(p.col_ptr[static_cast<size_t>(p.n_cols)], p.nnz());
  for (int64_t j = 0; j < p.n_cols; ++j) {
    ASSERT_LE(p.col_ptr[static_cast<size_t>(j)], p.col_ptr[static_cast<size_t>(j) + 1]);
    int64_t previous = -1;
    for (const int32_t i : p.column(j)) {
      ASSERT_GT(i, previous) << "column " << j;
      ASSERT_LT(i, p.n_rows) << "column " << j;
      previous = i;
    }
  }
}

template <class T>
std::vector<T> Copy(const Array<T>& a) {
  return std::vector<T>(a.begin(), a.end());
}

}  // namespace spaid::kernels
