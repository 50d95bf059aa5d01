// The diagonals of a matrix, row less column, in nodes of b unknowns each: few on a grid.
#pragma once

#include <cstdint>

#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

// Unknowns of a node, and distinct diagonals, at most.
inline constexpr int kMaxNode = 3;
inline constexpr int kMaxDiagonals = 64;

struct Offsets {
  int32_t count = 0;
  int32_t at[kMaxDiagonals] = {};  // row less column, in nodes; ascending
};

// The diagonals that a sample of the nodes has, a proposal: an entry may lie on none of them.
// `node`: unknowns of a node; 0: it becomes the greatest block size whose blocks the sample finds
// whole (the same rows in all columns of a node, whole blocks of rows). `whole`: blocks are known
// to be so. None where they are more than `limit`. Waits for the device.
Offsets FindOffsets(Context& context, const PatternRef& a, bool whole, int limit, int& node);

// The diagonals of whole blocks that each node has, to what is not null (the low ones, to `low`).
// *wrong, on the device, becomes 1 where a column does not fit. Does not wait.
void FillMasks(const Context& context, const PatternRef& a, int node, const Offsets& offsets,
               uint64_t* masks, uint32_t* low, int32_t* wrong);

}  // namespace spaid::cuda
