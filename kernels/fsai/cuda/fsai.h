// FSAI on a CUDA device: all rows of G, adaptive or on a pattern.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/base/split.h"
#include "kernels/fsai/fsai.h"
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
FsaiPattern UploadPattern(Context& context, const kernels::PatternView& pattern);

struct FsaiFigures {
  // The first row of A whose diagonal entry is missing or not positive; else the first column that
  // has an entry without a mirror, or with another one than it in the tolerance. There is no G.
  int64_t fault = -1;            // -1: none
  kernels::FsaiQuality quality;  // as far as it is of single rows, with flops and steps
  int waves = 0;                 // of rows, as memory allows
  // Mean of ln(ψ_i / a_ii) in the end, and after 0 .. k_max steps: the sum over the rows made by
  // the number of all.
  double log_ratio = 0;
  std::vector<double> log_ratios;
};

// Builds rows [begin, end) of G. `pattern`: on the host, lower triangle by rows with the diagonal
// last; where options.adaptive growth begins there, or, null, at the diagonal; else it is the
// pattern of G, and not null. `there`: the same on the device; null: it is uploaded. Rows get the
// same bits whatever [begin, end) is, since choices for all rows depend on all of A.
FsaiG BuildFsai(Context& context, const Matrix& a, const kernels::PatternView* pattern,
                const FsaiPattern* there, const kernels::FsaiOptions& options,
                kernels::IndexRange rows, const Caller& caller, FsaiFigures& figures);

}  // namespace spaid::cuda
