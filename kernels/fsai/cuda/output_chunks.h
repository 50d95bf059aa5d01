// Output of the waves in which rows are made: one chunk a wave, rows one after the other.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

// Compacts the `rows` rows from work.first_out on, from where they were made. `source`: null, or
// for each row the one that it is copied from (RepeatedRows). Values are multiplied by `scale`.
// `longest`: becomes the longest row's entries. Waits for the device.
template <class Real>
FsaiChunk Compact(Context& context, const Work<Real>& work, int64_t rows, const int32_t* source,
                  double scale, int32_t& longest);

}  // namespace spaid::cuda::fsai
