// Sizes of FSAI's kernels on a CUDA device; what was measured with them: docs/decisions/fsai.md.
#pragma once

#include <cstdint>

namespace spaid::cuda::tuning {

// A row whose room is larger than this is made by a block. The second: one that grows by one index
// a step, of which three are to be on a multiprocessor.
inline constexpr int64_t kFsaiBlockRoomBytes = 20 << 10;
inline constexpr int64_t kFsaiGrowRoomBytes = 72 << 10;
// Of the tiles that a row would have with a room of its own, what is there for it in a pool.
inline constexpr double kFsaiPoolShare = 0.6;
// The same of columns of dynamic SPAI: those of a grid want theirs at the same time. With 0.6 more
// of them give up and begin anew, with 0.9 fewer are grown at once (P27 to 30 a column in fp32: 186
// and 166 ms for 160).
inline constexpr double kColumnPoolShare = 0.75;
// Rows that are made first to see how much room rows take, and their own room.
inline constexpr int32_t kFsaiSampleRows = 264;
inline constexpr int32_t kFsaiSampleSlots = 1024;
// A row is the host's where its room is larger than this; or, of a pattern, where it has more
// entries: one block takes seconds for 3000.
inline constexpr int64_t kFsaiMostRoomBytes = int64_t{64} << 20, kFsaiMostPatternRow = 2048;
// What a build takes besides all that is counted: counters, sums, scratch of scans.
inline constexpr int64_t kFsaiSlackBytes = 256 << 10;
// Rows of a launch, between which a stop is seen: by slots × pivots², and so much for each row; an
// H100 does 3e12 to 5e12 a second. At least so many rows for each multiprocessor; in its own memory
// it makes two at a time.
inline constexpr double kFsaiLaunchWork = 1e12, kFsaiRowWork = 16384;
inline constexpr int64_t kFsaiLaunchRows = 32, kFsaiGlobalLaunchRows = 4;
// Rows on a pattern: the part of them that has no more entries than systems are made for, at least,
// and the part that goes with others of a node, if its rows are to share a factor.
inline constexpr double kFsaiChainShare = 0.875, kFsaiNodeShare = 0.9;

}  // namespace spaid::cuda::tuning
