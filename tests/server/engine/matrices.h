// Small matrices of known shape, as a client would send them.
#pragma once

#include <utility>

#include "kernels/sparse/matrix.h"

namespace spaid::server {

// diag(scale, 2 scale, …), n x n.
inline kernels::CscMatrix Diagonal(int64_t n, double scale = 1) {
  kernels::CscMatrix m;
  m.n_rows = m.n_cols = n;
  for (int64_t j = 0; j < n; ++j) {
    m.col_ptr.push_back(j);
    m.row_idx.push_back(static_cast<int32_t>(j));
    m.values.push_back(scale * static_cast<double>(j + 1));
  }
  m.col_ptr.push_back(n);
  return m;
}

// [4 1; 0 3] in CSC.
inline kernels::CscMatrix Upper() {
  kernels::CscMatrix m;
  m.n_rows = m.n_cols = 2;
  m.col_ptr.assign({0, 1, 3});
  m.row_idx.assign({0, 0, 1});
  m.values.assign({4, 1, 3});
  return m;
}

// Tridiagonal, n x n: 2 on the diagonal; off it −1 / (1 + (column · twist mod 7)), symmetric: SPD.
inline kernels::CscMatrix Tridiagonal(int64_t n, int64_t twist = 0) {
  kernels::CscMatrix m;
  m.n_rows = m.n_cols = n;
  const auto add = [&](int64_t i, double value) {
    m.row_idx.push_back(static_cast<int32_t>(i));
    m.values.push_back(value);
  };
  m.col_ptr.push_back(0);
  const auto beside = [&](int64_t j) { return -1 / (1 + static_cast<double>(j * twist % 7)); };
  for (int64_t j = 0; j < n; ++j) {
    if (j > 0) add(j - 1, beside(j - 1));
    add(j, 2);
    if (j + 1 < n) add(j + 1, beside(j));
    m.col_ptr.push_back(static_cast<int64_t>(m.row_idx.size()));
  }
  return m;
}

}  // namespace spaid::server
