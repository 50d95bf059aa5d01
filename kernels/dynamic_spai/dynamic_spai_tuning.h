// Measured numbers of dynamic SPAI on the CPU.
#pragma once

#include <cstdint>

namespace spaid::kernels::dynamic_spai_tuning {

// Columns of AᵀA of a batch: some tenths of a millisecond.
inline constexpr int64_t kGramBatch = 256;
// The rows of a column are sorted by a bitmap where that has at most so many words for each.
inline constexpr int64_t kWordsPerEntry = 4;
// AᵀA may have an entry, of 12 bytes, for so many of the machine's memory.
inline constexpr int64_t kMemoryPerGramEntry = 24;

// An estimate counts the entries of AᵀA where that takes at most so many products; else they are
// bounded.
inline constexpr double kCountedProducts = 1e9;

// Columns that an estimate grows (growth_sample.h): one in so many, but not fewer than the least
// nor more than the most, and within so many steps. Columns are copied where at least this share is
// like another one, and of each kind one is grown; on a grid with boundaries there are about so
// many kinds for each entry of a column of AᵀA.
inline constexpr int64_t kSampledShare = 16, kLeastColumns = 16, kSampleColumns = 96;
inline constexpr double kSampleSteps = 5e6;
inline constexpr double kAlikeShare = 0.875;
inline constexpr double kKinds = 8;

// Nanoseconds of one thread, fitted to measured builds (docs/decisions/dynamic-spai.md). Of a
// build, of a product of AᵀA, of an entry of it, and of a column. Of what is grown: of an entry, of
// an entry of the columns of AᵀA that it brings, of a candidate in a step, and of a flop, alone and
// by blocks (row_growth.h). Of an entry of AᵀA or A where repeats are found. Of an entry of M that
// is solved for, beside so many times what static SPAI predicts for it.
inline constexpr double kBuildNs = 1.2e5;
inline constexpr double kProductNs = 1.7, kGramNs = 9.5, kColumnNs = 420;
inline constexpr double kAddedNs = 50, kWalkedNs = 1.7, kSearchedNs = 1;
inline constexpr double kFlopNs = 0.09, kBlockFlopNs = 0.25;
inline constexpr double kRepeatNs = 1.3;
inline constexpr double kSolvedNs = 42, kSolveShare = 1.7;

// Nanoseconds of an NVIDIA H100 and its host, from host to host, fitted likewise. Of a build, of a
// column, of an entry of A, of a product of AᵀA, and of an entry of it. Of what is grown: of an
// entry of the columns of AᵀA that join; of a column whose room, by its candidates and entries, is
// large, so that a multiprocessor grows one or two at once; and, where it is more than shared
// memory, of a candidate for each entry. fp32 takes so much of both. Of an entry of M that is
// solved for, alone and for each entry of its local problem.
inline constexpr double kDeviceBuildNs = 2e6;
inline constexpr double kDeviceColumnNs = 40, kDeviceEntryNs = 0.4;
inline constexpr double kDeviceProductNs = 0.008, kDeviceGramNs = 0.15;
inline constexpr double kDeviceWalkedNs = 0.07, kDeviceSearchedNs = 0.12, kDeviceFp32Share = 0.75;
inline constexpr double kDeviceLargeRoom = 80 << 10, kDeviceMostRoom = 195 << 10;
inline constexpr double kDeviceLargeNs = 500;
inline constexpr double kDeviceSolvedNs = 5, kDeviceSolvedEntryNs = 0.005;

}  // namespace spaid::kernels::dynamic_spai_tuning
