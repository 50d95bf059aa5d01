// Patterns of columns of M, grown on a device by the kernels that grow rows of G (Form::kColumn of
// rows.h). Of dynamic SPAI, whose room makes what they are grown by.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/rows.h"
#include "kernels/fsai/cuda_fsai.h"

namespace spaid::cuda::fsai {

// Rows of which some kernel takes one at a time, each row's diagonal entry first.
template <class Real>
struct RowArrays {
  Buffer<Entry<Real>> entries;
  Buffer<int64_t> ptr;  // n + 1; empty where there is a stride
  int32_t stride = 0;
  int32_t longest = 0;

  Rows<Real> rows() const { return {entries.get(), ptr.get(), stride}; }
};

// The normal equations of Â, which is A with columns of length 1.
template <class Real>
struct NormalRows {
  int64_t n = 0;
  RowArrays<Real> gram;  // ÂᵀÂ by rows, in any order but for the diagonal
  // −Â by rows: of row k first 1 with the index n, then what stands on the diagonal, be it 0, then
  // the others, and what is left over is 0 with the index n. Without a stride.
  RowArrays<Real> own;
};

// By columns, rows ascending; of one that is left to the host the single row −1.
struct ColumnPatterns {
  Buffer<int64_t> col_ptr;
  Buffer<int32_t> row_idx;
};

// Columns [begin, end), as rows of G grow by these options; `most`: entries of one that growth ends
// at. `initial`: on the host, as of CudaMatrix::GrowDynamicSpai; null: the diagonal. `left`:
// columns that are left to the host. Of `figures` all but times and bytes is filled. Columns get
// the same pattern whatever the range is.
template <class Real>
ColumnPatterns GrowColumns(Context& context, NormalRows<Real> rows,
                           const kernels::PatternView* initial, const kernels::FsaiOptions& options,
                           int64_t most, int64_t begin, int64_t end, const Caller& caller,
                           kernels::CudaFsaiFigures& figures, int64_t& left);

}  // namespace spaid::cuda::fsai
