// Sizes of FSAI's kernels on a CUDA device; what was measured with them: kernels/bench/README.md.
#pragma once

#include <cstdint>

namespace spaid::cuda::tuning {

// A row whose room is larger than this is made by a block. The second: one that grows by one index
// a step, of which three are to be on a multiprocessor.
inline constexpr int64_t kFsaiBlockRoomBytes = 20 << 10;
inline constexpr int64_t kFsaiGrowRoomBytes = 72 << 10;
// Rows that are made first to see how much room rows take, and their own room.
inline constexpr int32_t kFsaiSampleRows = 264;
inline constexpr int32_t kFsaiSampleSlots = 1024;
// Entries of rows that are made at once, before they are put together.
inline constexpr int64_t kFsaiWaveBytes = int64_t{4} << 30;

}  // namespace spaid::cuda::tuning
