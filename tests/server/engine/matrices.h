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

}  // namespace spaid::server
