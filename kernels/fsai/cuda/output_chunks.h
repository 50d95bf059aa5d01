// What waves of rows leave: each wave's entries, one row behind the other, and all waves' together.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/cuda/context.h"
#include "kernels/fsai/cuda/rows.h"

namespace spaid::cuda::fsai {

struct Piece {
  Buffer<int64_t> ptr;  // rows + 1
  Buffer<int32_t> idx;
  Buffer<double> values;  // of columns none
  int64_t rows = 0, nnz = 0;
  int32_t longest = 0;  // of its rows
};

// Of the `rows` rows from work.first_out on, from where they were made. `source`: null, or of each
// the row that it is copied from (RepeatedRows). Values are times `scale`. Waits.
template <class Real>
Piece Compact(Context& context, const Work<Real>& work, int64_t rows, const int32_t* source,
              double scale);

// All of `rows` rows, whose pieces go.
Piece Join(Context& context, std::vector<Piece>& pieces, int64_t rows);

}  // namespace spaid::cuda::fsai
