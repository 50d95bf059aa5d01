// Matrices of kernels/gallery as the kernels take them.
#pragma once

#include "kernels/gallery/gallery.h"
#include "kernels/sparse/matrix.h"

namespace spaid::oracle {

// A copy, by columns.
inline kernels::CscMatrix From(const gallery::Matrix& g) {
  kernels::CscMatrix a{.n_rows = g.n, .n_cols = g.n, .col_ptr = {}, .row_idx = {}, .values = {}};
  a.col_ptr.assign(g.col_ptr.begin(), g.col_ptr.end());
  a.row_idx.assign(g.row_idx.begin(), g.row_idx.end());
  a.values.assign(g.values.begin(), g.values.end());
  return a;
}

}  // namespace spaid::oracle
