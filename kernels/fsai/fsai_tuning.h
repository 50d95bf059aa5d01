// Measured numbers of FSAI on the CPU.
#pragma once

#include <cstdint>

namespace spaid::kernels::fsai_tuning {

// A gradient's dense block has at most so many elements (32-byte lines of two caches: 2 MiB of
// fp64); what is beyond goes by a list.
inline constexpr int64_t kDenseElements = int64_t{1} << 18;
inline constexpr int64_t kDenseSlots = 4096;

// Several entries a step join as a block where there are at most so many steps for each of them:
// the gradient is found anew in every step then, and over more steps it is cheaper to change it.
inline constexpr int kBlockSteps = 2;
// The same of least squares, whose rows end sooner and where fewer entries of a column are found
// again: 10 x 5 and 20 x 2 took 0.3 to 0.9 of the time (E80: 0.7 to 1.1), ten for each and more
// were not tried.
inline constexpr int kLeastSquaresBlockSteps = 10;

// Rows of a batch: some tenths of a millisecond; and no more batches than this, so that what is
// kept for each is little.
inline constexpr int64_t kBatchRows = 64;
inline constexpr int64_t kMaxBatches = 4096;

// Rows of prescribed patterns that share a factor, at most.
inline constexpr int64_t kMaxNested = 8;
// Local problems over this size go by CG: a dense factor would take 8 bytes for each of its
// squares.
inline constexpr int64_t kDenseRow = 2000;
inline constexpr int64_t kCgIterations = 1000;
inline constexpr double kCgTolerance = 1e-14;

// Rows that repeat others are looked for where A has at most one kind of row in so many rows; as
// many of those of G, at most, are kept to copy from. Rounds of the search.
inline constexpr int64_t kRowsPerClass = 8;
inline constexpr int kRepeatRounds = 8;
// With so many rows or more one in kSampleStep is looked at first; there is no search where more
// than half of these are unlike all others.
inline constexpr int64_t kSampledRows = int64_t{1} << 16;
inline constexpr int64_t kSampleStep = 16;

}  // namespace spaid::kernels::fsai_tuning
