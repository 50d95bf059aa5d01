// Whether the unknowns of a matrix come in nodes of b: whole b x b blocks. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// The lanes of a group look at columns [j, j + node): true where what this lane saw is as it must
// be, the same rows in all of them and whole blocks of rows.
__device__ inline bool NodeAgrees(const PatternRef& a, int64_t j, int node, int lane, int lanes) {
  const int64_t begin = a.col_ptr[j], count = a.col_ptr[j + 1] - begin;
  bool agrees = count % node == 0;
  for (int t = 1; t < node; ++t) {
    agrees = agrees && a.col_ptr[j + t + 1] - a.col_ptr[j + t] == count;
  }
  if (!agrees) return false;
  // Where all columns are so long, the t-th begins t * count behind the first.
  const int32_t* const rows = a.row_idx + begin;
  for (int64_t p = lane; agrees && p < count; p += lanes) {
    const int32_t row = rows[p];
    const auto in_block = static_cast<int32_t>(p % node);
    agrees = row % node == in_block && row - rows[p - in_block] == in_block;
    for (int t = 1; t < node; ++t) agrees &= rows[t * count + p] == row;
  }
  return agrees;
}

// Whether all columns of each node of `node` unknowns have the same rows, in whole blocks. Waits
// for the device.
bool HasWholeBlocks(Context& context, const PatternRef& a, int node);

}  // namespace spaid::cuda
