// Patterns of columns of M for dynamic SPAI, grown on a device by the kernels that grow rows of G
// (Form::kColumn of rows.h). kernels/dynamic_spai makes the matrices by which they grow.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// Packed rows (Rows), each row's diagonal entry first.
template <class Real>
struct RowArrays {
  Buffer<Entry<Real>> entries;
  Buffer<int64_t> ptr;  // n + 1
  int32_t longest = 0;

  Rows<Real> rows() const { return {entries.get(), ptr.get(), 0}; }
};

// The normal equations of Â, which is A with columns of length 1.
template <class Real>
struct NormalRows {
  int64_t n = 0;
  RowArrays<Real> gram;  // ÂᵀÂ by rows, in any order but for the diagonal
  // −Â by rows: row k has first 1 with the index n, then its diagonal entry, even where that is 0,
  // then the others, then padding, 0 with the index n.
  RowArrays<Real> own;
};

// Patterns by columns, rows ascending; a column that is left to the host has the single row −1.
struct ColumnPatterns {
  Buffer<int64_t> col_ptr;
  Buffer<int32_t> row_idx;
  int64_t left = 0;  // columns to the host
};

// Grows columns, as rows of G grow by these options, each to `most` entries. `initial`: on the
// host, of each column itself, then what else it begins with, as that joins; null: itself. Columns
// get the same pattern whatever the range is.
template <class Real>
ColumnPatterns GrowColumns(Context& context, NormalRows<Real> rows,
                           const kernels::PatternView* initial, const kernels::FsaiOptions& options,
                           int64_t most, kernels::IndexRange columns, const Caller& caller,
                           FsaiFigures& figures);

}  // namespace spaid::cuda::fsai
