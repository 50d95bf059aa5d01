// Sizes of the kernels that make AᵀA for dynamic SPAI on a CUDA device.
#pragma once

#include <cstdint>

namespace spaid::cuda::tuning {

// Columns of at most so many entries are made by a warp each, in a smaller and a larger room;
// longer ones by a block each.
inline constexpr int kGramFewSlots = 192, kGramManySlots = 768;
inline constexpr int kGramWarps = 4;  // of a block
// Bytes besides all that are counted.
inline constexpr int64_t kGramSlackBytes = 256 << 10;

}  // namespace spaid::cuda::tuning
