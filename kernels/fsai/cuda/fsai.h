// FSAI on a CUDA device: all rows of G, adaptive or on a pattern.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/base/split.h"
#include "kernels/fsai/fsai.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// Consecutive rows of G, columns ascending, the diagonal last.
struct FsaiChunk {
  int64_t first = 0, rows = 0, nnz = 0;
  Buffer<int64_t> row_ptr;  // rows + 1
  Buffer<int32_t> col_idx;
  Buffer<double> values;  // empty: of a pattern
};

// Rows of G that one device has made: a chunk for each range and wave, in ascending order.
struct FsaiG {
  std::vector<FsaiChunk> chunks;
  Buffer<double> psi_ratio;  // n; of these rows
};

// Returns the next rows to make, ascending; of no size: there are no more. `whole_part`: as of
// kernels::RangeQueue.
using NextRows = std::function<kernels::IndexRange(bool whole_part)>;
// The same for one range.
NextRows Once(kernels::IndexRange rows);

// Returns a chunk to be filled by PutInto, on this context's device.
FsaiChunk EmptyChunk(Context& context, int64_t first, int64_t rows, int64_t nnz, bool has_values);
// Lets chunk.row_ptr, of a new chunk, begin at `before`: the entries of the rows before it.
void CountFrom(Context& context, int64_t before, const FsaiChunk& chunk);
// Copies `chunk`, after that, to its place in `whole`, which lies on the device `ordinal`.
void PutInto(const FsaiChunk& whole, int ordinal, int64_t before, Context& context,
             const FsaiChunk& chunk);
// Makes one chunk of consecutive ones, of one context, which it frees.
FsaiChunk Join(Context& context, std::vector<FsaiChunk>& chunks);

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
  int waves = 0;                 // of the rows of one range, as memory allows
  int64_t left_rows = 0;         // of no entries (columns: −1 alone), left to the host
  // Mean of ln(ψ_i / a_ii) in the end, and after 0 .. k_max steps: the sum over the rows made by
  // the number of all.
  double log_ratio = 0;
  std::vector<double> log_ratios;
};

// Builds rows of G. `pattern`: on the host, lower triangle by rows with the diagonal
// last; where options.adaptive growth begins there, or, null, at the diagonal; else it is the
// pattern of G, and not null. `there`: the same on the device; null: it is uploaded. Rows get the
// same bits in whatever ranges they come, since choices for all rows depend on all of A.
FsaiG BuildFsai(Context& context, const Matrix& a, const kernels::PatternView* pattern,
                const FsaiPattern* there, const kernels::FsaiOptions& options, const NextRows& next,
                const Caller& caller, FsaiFigures& figures);

}  // namespace spaid::cuda
