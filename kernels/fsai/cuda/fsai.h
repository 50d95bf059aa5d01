// FSAI on a CUDA device: all rows of G, adaptive or on a pattern.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda_fsai.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// Rows [begin, end) of G, columns ascending, the diagonal last.
struct FsaiG {
  Buffer<int64_t> row_ptr;
  Buffer<int32_t> col_idx;
  Buffer<double> values;
  Buffer<double> psi_ratio;  // of these rows
};

// The lower triangle by rows, each row's diagonal last.
struct FsaiPattern {
  Buffer<int64_t> row_ptr;
  Buffer<int32_t> col_idx;
};
// The host's arrays must stay until the stream has been waited for.
FsaiPattern UploadPattern(Context& context, const kernels::PatternView& pattern);

// `request`: as of CudaMatrix::BuildFsai; `there`: its own. Of `figures` all but times, bytes and
// nnz is filled; where there is a fault there is no G. Rows get the same bits whatever [begin, end)
// is: what is chosen for all of them is chosen by all of A.
FsaiG BuildFsai(Context& context, const Matrix& a, const kernels::CudaFsaiRequest& request,
                const FsaiPattern* there, int64_t begin, int64_t end, const Caller& caller,
                kernels::CudaFsaiFigures& figures);

}  // namespace spaid::cuda
