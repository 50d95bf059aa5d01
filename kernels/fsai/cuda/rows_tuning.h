// Sizes of FSAI's kernels on a CUDA device; what was measured with them: docs/decisions/fsai.md.
#pragma once

#include <cstdint>

namespace spaid::cuda::tuning {

// A row whose workspace is larger than this is made by a block. The second limit is for rows that
// grow by one index a step: three of them are to fit on a multiprocessor.
inline constexpr int64_t kFsaiBlockWorkspaceBytes = 20 << 10;
inline constexpr int64_t kFsaiGrowWorkspaceBytes = 72 << 10;
// Tiles for a row in a pool, relative to those in a workspace of its own.
inline constexpr double kFsaiPoolShare = 0.6;
// The same for columns of dynamic SPAI, which on a grid need them at the same time. With 0.6 more
// of them give up and begin anew, with 0.9 fewer are grown at once (P27 to 30 a column in fp32: 186
// and 166 ms in place of 160).
inline constexpr double kColumnPoolShare = 0.75;
// Sample rows that are made first to measure the workspace that rows take, and the sample's slots.
inline constexpr int32_t kFsaiSampleRows = 264;
inline constexpr int32_t kFsaiSampleSlots = 1024;
// A row is left to the host where its workspace is larger than this; or, on a given pattern, where
// it has more entries: one block takes seconds for 3000.
inline constexpr int64_t kFsaiMostWorkspaceBytes = int64_t{64} << 20, kFsaiMostPatternRow = 2048;
// Bytes that a build takes beside those that are counted: counters, sums, scratch of scans.
inline constexpr int64_t kFsaiSlackBytes = 256 << 10;
// Work of a launch, between which stops are noticed: slots × pivots², and so much for each row; an
// H100 does 3e12 to 5e12 a second. At least so many rows for each multiprocessor; in global memory
// it makes two at a time.
inline constexpr double kFsaiLaunchWork = 1e12, kFsaiRowWork = 16384;
inline constexpr int64_t kFsaiLaunchRows = 32, kFsaiGlobalLaunchRows = 4;
// Rows on a given pattern: least share of them that the dense systems must be large enough for, and
// least share that is nested with other rows of a node, for these to share a factor.
inline constexpr double kFsaiPrescribedShare = 0.875, kFsaiNodeShare = 0.9;

}  // namespace spaid::cuda::tuning
