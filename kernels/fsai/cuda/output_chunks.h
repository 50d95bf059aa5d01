// Output of the waves in which rows are made: one chunk a wave, rows one after the other, and their
// concatenation.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

struct OutputChunk {
  Buffer<int64_t> ptr;  // rows + 1
  Buffer<int32_t> idx;
  Buffer<double> values;  // empty for Form::kColumn
  int64_t rows = 0, nnz = 0;
  int32_t longest = 0;  // longest row
};

// Compacts the `rows` rows from work.first_out on, from where they were made. `source`: null, or
// for each row the one that it is copied from (RepeatedRows). Values are multiplied by `scale`.
// Waits for the device.
template <class Real>
OutputChunk Compact(Context& context, const Work<Real>& work, int64_t rows, const int32_t* source,
                    double scale);

// Concatenates the chunks of `rows` rows, and frees them.
OutputChunk Join(Context& context, std::vector<OutputChunk>& chunks, int64_t rows);

}  // namespace spaid::cuda::fsai
