// FSAI on a CUDA device: all rows of G, adaptive or on a pattern.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// Rows [begin, end) of G, columns ascending, the diagonal last.
struct FsaiG {
  Buffer<int64_t> row_ptr;
  Buffer<int32_t> col_idx;
  Buffer<double> values;
  Buffer<double> psi_ratio;  // one a row
};

// The lower triangle by rows, each row's diagonal last.
struct FsaiPattern {
  Buffer<int64_t> row_ptr;
  Buffer<int32_t> col_idx;
};
// The host's arrays must stay until the stream has been waited for.
FsaiPattern UploadPattern(Context& context, const SpaidCudaCsc& pattern);

// Builds rows [begin, end) of G. `pattern`: on the host, lower triangle by rows with the diagonal
// last; where options.grow is not 0 growth begins there, or, null, at the diagonal; else it is the
// pattern of G, and not null. `there`: the same on the device; null: it is uploaded. Fills `info`
// and options.log_ratios; where info.fault is not kSpaidCudaFsaiNoFault there is no G. Rows get the
// same bits whatever [begin, end) is, since choices for all rows depend on all of A.
FsaiG BuildFsai(Context& context, const Matrix& a, const SpaidCudaCsc* pattern,
                const FsaiPattern* there, const SpaidCudaFsaiOptions& options, int64_t begin,
                int64_t end, SpaidCudaFsaiInfo& info);

}  // namespace spaid::cuda
