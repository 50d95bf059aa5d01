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

// nnz(M) is about so many times nnz(A) / tol² where growth may go on until then: 0.08 to 0.2 of
// most in kernels/bench/results/cpu_dynamic_spai.txt, FEM with long columns less.
inline constexpr double kEntriesForTol = 0.1;

// Nanoseconds of one thread. Of a product of AᵀA; of a column that grows; of an entry of it, for
// each entry of its column of AᵀA, and again for each step; of an entry whose value is solved for,
// for each entry of its column of A, and for each other entry.
inline constexpr double kProductNs = 2.5;
inline constexpr double kColumnNs = 300;
inline constexpr double kAddedNs = 60, kAddedEntryNs = 2, kStepEntryNs = 0.25;
inline constexpr double kSolvedNs = 120, kSolvedEntryNs = 6, kSolvedSquareNs = 4;

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
