// Small matrices of known shape, as a client would send them.
#pragma once

#include <algorithm>
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

// Two diagonals on either side of the diagonal, symmetric positive definite; which of the two is
// the larger depends on `twist` and the column.
inline kernels::CscMatrix Banded(int64_t n, int64_t twist = 0) {
  kernels::CscMatrix m;
  m.n_rows = m.n_cols = n;
  m.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = std::max<int64_t>(0, j - 2); i <= std::min(n - 1, j + 2); ++i) {
      const int64_t first = std::min(i, j), distance = std::max(i, j) - first;
      const auto weight = static_cast<double>(1 + (first * twist + distance) % 3);
      m.row_idx.push_back(static_cast<int32_t>(i));
      m.values.push_back(distance == 0 ? 5 : -1 / weight);
    }
    m.col_ptr.push_back(static_cast<int64_t>(m.row_idx.size()));
  }
  return m;
}

}  // namespace spaid::server
