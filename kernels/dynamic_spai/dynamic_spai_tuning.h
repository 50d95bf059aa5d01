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

// Columns that an estimate grows (growth_sample.h): one in so many, but not fewer than the least nor
// more than the most, and within so many steps. Where fewer than this share of all columns are like
// a neighbour, none is predicted to be copied (kRowsPerClass of FSAI's).
inline constexpr int64_t kSampledShare = 16, kLeastColumns = 16, kSampleColumns = 96;
inline constexpr double kSampleSteps = 8e6;
inline constexpr double kAlikeShare = 0.875;

// Nanoseconds of one thread. Of a product of AᵀA; of an entry of it, made and looked at for repeats;
// of a column, kept or copied; and of one that is grown; of an entry that joins it; of an entry of
// the columns that join; of a candidate in a step; of a flop. Of static SPAI's own prediction.
inline constexpr double kProductNs = 1.2, kGramNs = 5;
inline constexpr double kColumnNs = 60, kGrownNs = 300, kAddedNs = 60, kWalkedNs = 2;
inline constexpr double kSearchedNs = 0.2, kFlopNs = 0.1;
inline constexpr double kSolveShare = 1;

// Nanoseconds of an NVIDIA H100. Of a build; of a product of AᵀA, and of an entry; of an entry that
// joins a column, for each entry of a column of AᵀA, and for each candidate and entry before; of a
// column whose values are solved for, of each entry, for each entry of a column of A and of M; of a
// byte between the host and the device.
inline constexpr double kDeviceBuildNs = 2e6;
inline constexpr double kDeviceProductNs = 0.014, kDeviceGramNs = 0.06;
inline constexpr double kDeviceAddedNs = 0.5, kDeviceEntryNs = 0.015, kDeviceCandidateNs = 1e-3;
inline constexpr double kDeviceColumnNs = 4.5, kDeviceSolvedNs = 0.15, kDeviceSolvedEntryNs = 8e-4;
inline constexpr double kDeviceCopyNs = 0.06;
// Candidates that an entry brings which were none, of a column of AᵀA; fp32 takes so much of fp64's
// time.
inline constexpr double kDeviceNewShare = 0.15, kDeviceFp32Share = 0.55;

}  // namespace spaid::kernels::dynamic_spai_tuning
